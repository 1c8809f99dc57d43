//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// Output of `--help`.
pub const HELP: &str = "\
A shop whose checkout survives double clicks, reloads and a client that calls again: a page with a
form and its one-time token, a JSON API and a payment endpoint with the Idempotency-Key header, and
a live page of what was executed and what was replayed.

Usage: cargo run --example checkout -- [OPTIONS]

The books (orders, charges) and the records of idem survive the process, unless said otherwise.

  --file PATH      the SQLite file of both; default: idem-checkout.db beside the program
  --redis URL      the records in Redis (redis://127.0.0.1:6379), the books in the SQLite file
  --postgres URL   both in PostgreSQL (postgres://user:password@127.0.0.1/database)
  --store NAME     sqlite (the default) or memory, where both end with the process
  --port N         the port on 127.0.0.1; 0 takes a free one and prints it; default 3000
  --fresh          forget what was sold: new books
  --slow MS        how long a payment takes, in milliseconds; default 50
  --life SECONDS   how long a form can be submitted, 1 to 86400; default 300
  --help           this text

Exit code: 0 after SIGTERM or Ctrl-C, 1 if calls were still running then, 2 if it cannot start.
";

/// Location of the records and the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// Both in a file.
    Sqlite,
    /// Both in this process.
    Memory,
    /// The records in Redis, the books in a file.
    Redis(String),
    /// Both in PostgreSQL.
    Postgres(String),
}

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Location of the records and the books.
    pub store: Store,
    /// The file of the books.
    pub file: Option<PathBuf>,
    /// The port, 0 for a free one.
    pub port: u16,
    /// Whether to start new books.
    pub fresh: bool,
    /// Duration of a payment.
    pub slow: Duration,
    /// Lifetime of a form.
    pub life: Duration,
    /// Whether only the help is requested.
    pub help: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            store: Store::Sqlite,
            file: None,
            port: 3000,
            fresh: false,
            slow: Duration::from_millis(50),
            life: Duration::from_mins(5),
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
                "--redis" => Some(Store::Redis(value("URL")?)),
                "--postgres" => Some(Store::Postgres(value("URL")?)),
                "--store" => Some(named(&value("NAME")?)?),
                _ => None,
            };
            match (chosen, name) {
                (Some(chosen), _) => {
                    if let Some((first, _)) = store.replace((name.to_owned(), chosen)) {
                        return Err(format!("{first} and {name} are two stores; choose one"));
                    }
                }
                (None, "--file") => args.file = Some(value("PATH")?.into()),
                (None, "--port") => args.port = number(name, &value("N")?)?,
                (None, "--slow") => {
                    args.slow = Duration::from_millis(number(name, &value("MS")?)?);
                }
                (None, "--life") => {
                    args.life = Duration::from_secs(number(name, &value("SECONDS")?)?);
                }
                (None, "--fresh") => args.fresh = true,
                (None, "--help" | "-h") => args.help = true,
                _ => return Err(format!("unknown argument {argument:?}; see --help")),
            }
            if inline.is_some() {
                return Err(format!("{name} takes no value"));
            }
        }
        if let Some((_, store)) = store {
            args.store = store;
        }
        if args.file.is_some() && matches!(args.store, Store::Memory | Store::Postgres(_)) {
            return Err("--file is for books in a file: it has no use here".to_owned());
        }
        Ok(args)
    }
}

fn named(name: &str) -> Result<Store, String> {
    match name {
        "sqlite" => Ok(Store::Sqlite),
        "memory" => Ok(Store::Memory),
        "redis" | "postgres" => Err(format!("{name} needs an address: --{name} URL")),
        _ => Err(format!("--store is sqlite or memory, not {name:?}")),
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} needs a whole number, not {text:?}"))
}
