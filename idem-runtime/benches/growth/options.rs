//! What the command line says.

use std::process::exit;
use std::time::Duration;

use super::child::Task;
use super::load::options::{Options, check_sizes};

/// More than the largest answer that is usual here.
pub(crate) const MAX_VALUE_BYTES: usize = 2 << 20;

const HELP: &str = "\
options:
  --json          one JSON line a figure instead of text
  --part A,B      these of keys, memory, sizes, waiters, processes; default all
  --quick         small numbers and 3 rounds, for a first look
  --keys N,M      records of the part `keys`, rising; default 10000,1000000,10000000 (10 M take 6 GB)
  --size N,M      bytes of an answer of the part `sizes`; default 100,1024,10240,102400,1048576
  --rounds N      rounds whose medians are printed; default 7
  --edition valkey|redis8|redis62   another server than the system's redis-server
Client and server share the machine. `taskset -c 0,1` says which cores of it.";

/// The options of this benchmark.
pub(crate) struct Growth {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    parts: Vec<String>,
    /// How many records there are to be, one measurement after the other.
    pub(crate) keys: Vec<u64>,
    /// How to measure what the other load benchmarks measure as well.
    pub(crate) load: Options,
}

impl Growth {
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    /// One figure or the other, the second for a first look.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// What this process is.
pub(crate) enum Mode {
    Parent(Box<Growth>),
    /// One of those that `processes` starts.
    Child(Task),
}

/// From the command line; ends the program where that makes no sense.
pub(crate) fn parse() -> Mode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if_eq("--child").is_some() {
        return Mode::Child(Task::of(words));
    }
    let mut growth = Growth {
        json: false,
        quick: false,
        parts: Vec::new(),
        keys: Vec::new(),
        load: defaults(),
    };
    let mut rounds = None;
    while let Some(word) = words.next() {
        let mut value = || {
            let value = words.next();
            value.unwrap_or_else(|| refuse(&format!("`{word}` needs a value")))
        };
        match word.as_str() {
            // What cargo says to every benchmark.
            "--bench" => {}
            "--json" => growth.json = true,
            "--quick" => growth.quick = true,
            "--part" => growth.parts = value().split(',').map(part).collect(),
            "--keys" => growth.keys = value().split(',').map(number).collect(),
            "--size" => growth.load.sizes = value().split(',').map(size).collect(),
            "--rounds" => rounds = Some(number(&value())),
            "--edition" => growth.load.edition = Some(value()),
            "--help" => {
                eprintln!("{HELP}");
                exit(0)
            }
            other => refuse(&format!("`{other}` is no option")),
        }
    }
    growth.load.rounds = rounds.unwrap_or(growth.pick(7, 3)) as usize;
    growth.load.slice = growth.pick(Duration::from_millis(100), Duration::from_millis(30));
    growth.load.json = growth.json;
    if growth.keys.is_empty() {
        growth.keys = growth.pick(vec![10_000, 1_000_000, 10_000_000], vec![1_000, 20_000]);
    }
    if growth.load.sizes.is_empty() {
        growth.load.sizes = growth.pick(
            vec![100, 1_024, 10_240, 102_400, 1_048_576],
            vec![100, 10_240, 1_048_576],
        );
    }
    check_sizes(&growth.load.sizes);
    if !growth.keys.is_sorted() {
        refuse("`--keys` are to rise: each measurement adds to what is there");
    }
    Mode::Parent(Box::new(growth))
}

fn defaults() -> Options {
    Options {
        json: false,
        url: None,
        edition: None,
        cases: Vec::new(),
        impls: Vec::new(),
        stores: Vec::new(),
        concurrency: vec![1, 64],
        sizes: Vec::new(),
        multi: false,
        rounds: 0,
        slice: Duration::ZERO,
        calls: None,
        compare: false,
    }
}

fn part(name: &str) -> String {
    match name {
        "keys" | "memory" | "sizes" | "waiters" | "processes" => name.to_owned(),
        other => refuse(&format!("`{other}` is no part")),
    }
}

fn number(text: &str) -> u64 {
    match text.replace('_', "").parse() {
        Ok(0) | Err(_) => refuse(&format!("`{text}` is no number above 0")),
        Ok(number) => number,
    }
}

fn size(text: &str) -> usize {
    let bytes = usize::try_from(number(text)).unwrap_or(usize::MAX);
    if bytes > MAX_VALUE_BYTES {
        refuse(&format!("`{text}` is more than {MAX_VALUE_BYTES} bytes"));
    }
    bytes
}

/// Ends the program: this is for a person at a terminal.
fn refuse(why: &str) -> ! {
    eprintln!("{why}\n{HELP}");
    exit(2)
}
