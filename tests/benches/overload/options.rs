//! The command line.

use std::process::exit;

use super::stores::STORES;

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) json: bool,
    /// Stores, all if empty.
    pub(crate) stores: Vec<String>,
    /// How long calls are offered in a row.
    pub(crate) seconds: u32,
    /// How long each concurrency of the closed loop runs that finds the peak.
    pub(crate) peak_millis: u32,
    /// Callers without a reply at a time.
    pub(crate) callers: u32,
    /// Multiples of the peak that are offered.
    pub(crate) factors: Vec<u32>,
    /// How long the server stands still; 0 for no such rows.
    pub(crate) stop: u32,
    /// Callers of the row that calls all at once; 0 for no such row.
    pub(crate) burst: u32,
    /// Acknowledged answers that are read again in a row.
    pub(crate) audit: u32,
    /// Calls after which a row offers no more.
    pub(crate) most: u32,
}

const HELP: &str = "\
options:
  --json              one JSON object a line instead of a table
  --store NAME        this store only; may be repeated, or name several: memory, sqlite, redis, postgres,
                      mariadb, redis+postgres, memory+sqlite
  --factor 1,2,5,10   multiples of the peak that are offered; 0 for none
  --seconds N         how long they are offered; default 60
  --callers N         callers without a reply at a time; what arrives beyond is not offered; default 20000
  --stop N            the same rows again with the server stopped for N seconds in the middle; 0 for
                      none; default 10
  --burst N           one row of N callers at once; 0 for none; default 10000
  --audit N           acknowledged answers of a row that are read again, chosen at random where there are
                      more; default 200000
  --most N            a row offers no more after N calls, so that its records fit into memory; default
                      4000000
  --quick             2 seconds, 2000 callers, factor 10, stopped for 1 second, a burst of 1000
Each row has a server and a process of its own.";

impl Options {
    /// From the command line; ends the program where that makes no sense.
    pub(crate) fn parse() -> Self {
        let mut options = Self {
            json: false,
            stores: Vec::new(),
            seconds: 60,
            peak_millis: 3_000,
            callers: 20_000,
            factors: vec![1, 2, 5, 10],
            stop: 10,
            burst: 10_000,
            audit: 200_000,
            most: 4_000_000,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.unwrap_or_else(|| refuse(&format!("`{word}` needs a value")))
            };
            match word.as_str() {
                // Cargo passes it to every benchmark.
                "--bench" => {}
                "--json" => options.json = true,
                "--help" => {
                    eprintln!("{HELP}");
                    exit(0)
                }
                "--quick" => {
                    options.seconds = 2;
                    options.peak_millis = 300;
                    options.callers = 2_000;
                    options.factors = vec![10];
                    options.stop = 1;
                    options.burst = 1_000;
                }
                "--store" => options.stores.extend(value().split(',').map(store)),
                "--factor" => {
                    let factors = value();
                    let factors = factors.split(',').map(number);
                    options.factors = factors.filter(|factor| *factor > 0).collect();
                }
                "--seconds" => options.seconds = above_zero(&value()),
                "--callers" => options.callers = above_zero(&value()),
                "--stop" => options.stop = number(&value()),
                "--burst" => options.burst = number(&value()),
                "--audit" => options.audit = above_zero(&value()),
                "--most" => options.most = above_zero(&value()),
                other => refuse(&format!("`{other}` is no option")),
            }
        }
        if options.stop >= options.seconds && !options.factors.is_empty() {
            refuse(
                "`--stop` is to be shorter than `--seconds`: calls are offered before and after",
            );
        }
        options
    }

    pub(crate) fn wants(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.iter().any(|wanted| wanted == store)
    }
}

fn store(name: &str) -> String {
    if !STORES.contains(&name) {
        refuse(&format!("`{name}` is no store"));
    }
    name.to_owned()
}

fn number(text: &str) -> u32 {
    let number = text.parse();
    number.unwrap_or_else(|_| refuse(&format!("`{text}` is no number")))
}

fn above_zero(text: &str) -> u32 {
    match number(text) {
        0 => refuse("`0` is no number above 0"),
        number => number,
    }
}

fn refuse(why: &str) -> ! {
    eprintln!("{why}\n{HELP}");
    exit(2)
}
