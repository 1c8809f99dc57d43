//! The command line.

use std::path::PathBuf;

/// Output of `--help`.
pub const HELP: &str = "\
Runs a log of payment webhooks, with repeats and faults, through idempotent functions, and checks
that money moved once.

Usage: cargo run --example payments -- [OPTIONS]

Records and books survive the process, unless said otherwise: run it again, and everything is
replayed; kill it half-way (kill -9), and the next run continues.

  --file PATH        the SQLite file of both; default: idem-payments.db beside the program
  --postgres URL     both in PostgreSQL (postgres://user:password@127.0.0.1/database)
  --mysql URL        both in MySQL or MariaDB (mysql://user:password@127.0.0.1/database)
  --store NAME       sqlite (the default) or memory, where both end with the process
  --fresh            forget the earlier run: new books
  --notes FILE       what the provider's double keeps for itself; default: beside the SQLite file, or
                     beside the program
  --redis URL        keep the records in Redis (redis://127.0.0.1:6379); the books are in memory
  --prefix NAME      name of the records in Redis; default: a new one each time. The same name again
                     replays the earlier run: nothing is executed, and no money moves
  --without          call the same functions without the attribute, and count the damage
  --deliveries FILE  another log; default: the one beside this example
  --tasks N          deliveries under way at a time, 1 to 10000; default 64
  --seed N           which steps fail; default 7
  --help             this text

Exit code: 0 if the books agree with the log, 1 if they do not, 2 if the run cannot start.
";

/// Location of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a file, the books too.
    Sqlite(Option<PathBuf>),
    /// In this process, the books too.
    Memory,
    /// In Redis; the books in this process.
    Redis(String),
    /// In PostgreSQL, the books too.
    Postgres(String),
    /// In MySQL or MariaDB, the books too.
    MySql(String),
}

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Location of the records.
    pub store: Store,
    /// Whether to start new books.
    pub fresh: bool,
    /// The file of the parties downstream.
    pub notes: Option<PathBuf>,
    /// The name of the records in Redis.
    pub prefix: Option<String>,
    /// Whether to run without the attribute.
    pub without: bool,
    /// Another log.
    pub deliveries: Option<PathBuf>,
    /// Deliveries under way at a time.
    pub tasks: usize,
    /// Which steps fail.
    pub seed: u64,
    /// Whether only the help is requested.
    pub help: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            store: Store::Sqlite(None),
            fresh: false,
            notes: None,
            prefix: None,
            without: false,
            deliveries: None,
            tasks: 64,
            seed: 7,
            help: false,
        }
    }
}

impl Args {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    ///
    /// A sentence for the person who typed them.
    pub fn parse(given: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut given = given.into_iter();
        let mut store: Option<(String, Store)> = None;
        while let Some(argument) = given.next() {
            let (name, mut inline) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let mut value = |what: &str| {
                let value = inline.take().or_else(|| given.next());
                value.ok_or_else(|| format!("{name} needs a value: {name} {what}"))
            };
            let chosen = match name {
                "--file" => Some(Store::Sqlite(Some(value("PATH")?.into()))),
                "--redis" => Some(Store::Redis(value("URL")?)),
                "--postgres" => Some(Store::Postgres(value("URL")?)),
                "--mysql" => Some(Store::MySql(value("URL")?)),
                "--store" => Some(named(&value("NAME")?)?),
                _ => None,
            };
            if let Some(chosen) = chosen {
                let name = name.to_owned();
                store = Some(match store.take() {
                    None => (name, chosen),
                    // The option that contains the path.
                    Some((_, file @ Store::Sqlite(Some(_)))) if chosen == Store::Sqlite(None) => {
                        (name, file)
                    }
                    Some((_, Store::Sqlite(None))) if matches!(chosen, Store::Sqlite(_)) => {
                        (name, chosen)
                    }
                    Some((first, _)) => {
                        return Err(format!("{first} and {name} are two stores; choose one"));
                    }
                });
                continue;
            }
            match name {
                "--fresh" => args.fresh = true,
                "--notes" => args.notes = Some(value("FILE")?.into()),
                "--prefix" => args.prefix = Some(value("NAME")?),
                "--deliveries" => args.deliveries = Some(value("FILE")?.into()),
                "--tasks" => args.tasks = number(name, &value("N")?)?,
                "--seed" => args.seed = number(name, &value("N")?)?,
                "--without" => args.without = true,
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument {argument:?}; see --help")),
            }
            if inline.is_some() {
                return Err(format!("{name} takes no value"));
            }
        }
        let given = store.as_ref().map(|(name, _)| name.clone());
        if let Some((_, store)) = store {
            args.store = store;
        }
        args.checked(given.as_deref())
    }

    fn checked(self, store: Option<&str>) -> Result<Self, String> {
        if !(1..=10_000).contains(&self.tasks) {
            return Err("--tasks must be 1 to 10000".to_owned());
        }
        if self.prefix.is_some() && !matches!(self.store, Store::Redis(_)) {
            return Err("--prefix goes with --redis; books have a prefix of their own".to_owned());
        }
        if let (true, Some(store)) = (self.without, store) {
            return Err(format!("--without keeps no records, so {store} has no use"));
        }
        let durable = !matches!(self.store, Store::Memory | Store::Redis(_)) && !self.without;
        if (self.fresh || self.notes.is_some()) && !durable {
            return Err(
                "--fresh and --notes are for books that survive: they have no use here".into(),
            );
        }
        Ok(self)
    }
}

fn named(name: &str) -> Result<Store, String> {
    match name {
        "sqlite" => Ok(Store::Sqlite(None)),
        "memory" => Ok(Store::Memory),
        "redis" | "postgres" | "mysql" => Err(format!("{name} needs an address: --{name} URL")),
        _ => Err(format!("--store is sqlite or memory, not {name:?}")),
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} needs a whole number, not {text:?}"))
}
