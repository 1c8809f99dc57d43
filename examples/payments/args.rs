//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
Runs a log of payment webhooks, with repeats and faults, through idempotent functions, and checks
that money moved once.

Usage: cargo run --example payments -- [OPTIONS]

  --redis URL        keep the records in Redis (redis://127.0.0.1:6379) and not in this process
  --prefix NAME      name of the records in Redis; default: a new one each time. The same name again
                     replays the earlier run: nothing is executed, and no money moves
  --without          call the same functions without the attribute, and count the damage
  --deliveries FILE  another log; default: the one beside this example
  --tasks N          deliveries under way at a time, 1 to 10000; default 64
  --seed N           which steps fail; default 7
  --help             this text

Exit code: 0 if the books agree with the log, 1 if they do not, 2 if the run cannot start.
";

/// What is asked on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Where the records are kept, if not in this process.
    pub redis: Option<String>,
    /// The name of the records in Redis.
    pub prefix: Option<String>,
    /// Whether to leave the attribute out.
    pub without: bool,
    /// Another log.
    pub deliveries: Option<PathBuf>,
    /// Deliveries under way at a time.
    pub tasks: usize,
    /// Which steps fail.
    pub seed: u64,
    /// Whether only the help is wanted.
    pub help: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            redis: None,
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
        while let Some(argument) = given.next() {
            let (name, mut inline) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let mut value = |what: &str| {
                let value = inline.take().or_else(|| given.next());
                value.ok_or_else(|| format!("{name} needs a value: {name} {what}"))
            };
            match name {
                "--redis" => args.redis = Some(value("URL")?),
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
        args.checked()
    }

    fn checked(self) -> Result<Self, String> {
        if !(1..=10_000).contains(&self.tasks) {
            return Err("--tasks must be 1 to 10000".to_owned());
        }
        if self.prefix.is_some() && self.redis.is_none() {
            return Err(
                "--prefix goes with --redis: records in memory end with the run".to_owned(),
            );
        }
        if self.without && self.redis.is_some() {
            return Err("--without keeps no records, so --redis has no use".to_owned());
        }
        Ok(self)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} needs a whole number, not {text:?}"))
}
