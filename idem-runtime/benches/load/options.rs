//! What the command line says.

use std::fmt;
use std::process::exit;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::driver::current_thread;
use super::order::Receipt;

/// The options of all load benchmarks.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) url: Option<String>,
    pub(crate) edition: Option<String>,
    /// Cases, all if empty.
    pub(crate) cases: Vec<String>,
    /// Implementations, all if empty.
    pub(crate) impls: Vec<String>,
    /// Stores, all if empty.
    pub(crate) stores: Vec<String>,
    pub(crate) concurrency: Vec<usize>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) multi: bool,
    pub(crate) rounds: usize,
    /// How long one run of one case is to take.
    pub(crate) slice: Duration,
    /// Calls of one thread in one run on the store in memory.
    pub(crate) calls: Option<usize>,
    pub(crate) compare: bool,
}

const HELP: &str = "\
options:
  --json                one JSON line a row instead of a table
  --case A,B            these cases only
  --impl A,B            these implementations only, for a profiler; no ratio without `raw`
  --store A,B           these stores only (sql_load, engine_load)
  --concurrency 1,64    calls at once; default 1,16,64,256
  --size 200,10240      bytes of an answer; default 200,10240
  --runtime current|multi   default current: one thread, as for the figures that are quoted
  --rounds N            rounds whose medians are printed; default 7
  --slice MS            how long one run of one case takes; default 100
  --calls N             calls of one thread in one run on the store in memory, which no slice limits;
                        default 33000, fewer of larger answers (engine_load)
  --quick               3 rounds of 30 ms, for a first look
  --url URL             a server that runs already, instead of one of the benchmark's own. It is not
                        flushed: what is left behind expires within two minutes
  --edition valkey|redis8|redis62   another server than the system's redis-server
  --compare             also the crates of benches/peers, where they are built (redis_load)
Prefix `taskset -c 0` to keep client and server on one core.";

impl Options {
    /// From the command line; ends the program where that makes no sense.
    pub(crate) fn parse() -> Self {
        let mut options = Self {
            json: false,
            url: None,
            edition: None,
            cases: Vec::new(),
            impls: Vec::new(),
            stores: Vec::new(),
            concurrency: vec![1, 16, 64, 256],
            sizes: vec![200, 10_240],
            multi: false,
            rounds: 7,
            slice: Duration::from_millis(100),
            calls: None,
            compare: false,
        };
        // `--case=first` is `--case first`.
        let split = |word: String| -> Vec<String> {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if word.starts_with("--") => (name, Some(value)),
                _ => (word.as_str(), None),
            };
            [Some(name), value]
                .into_iter()
                .flatten()
                .map(str::to_owned)
                .collect()
        };
        let mut words = std::env::args().skip(1).flat_map(split);
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.unwrap_or_else(|| refuse(&format!("`{word}` needs a value")))
            };
            match word.as_str() {
                // What cargo says to every benchmark.
                "--bench" => {}
                "--json" => options.json = true,
                "--help" => {
                    eprintln!("{HELP}");
                    exit(0)
                }
                "--compare" => options.compare = true,
                "--quick" => {
                    options.rounds = 3;
                    options.slice = Duration::from_millis(30);
                }
                "--url" => options.url = Some(value()),
                "--edition" => options.edition = Some(value()),
                "--case" => options.cases = list(&value()),
                "--impl" => options.impls = list(&value()),
                "--store" => options.stores = list(&value()),
                "--concurrency" => options.concurrency = numbers(&value()),
                "--size" => options.sizes = numbers(&value()),
                "--calls" => options.calls = Some(numbers(&value())[0]),
                "--rounds" => options.rounds = numbers(&value())[0],
                "--slice" => {
                    options.slice = Duration::from_millis(numbers(&value())[0] as u64);
                }
                "--runtime" => {
                    options.multi = match value().as_str() {
                        "current" => false,
                        "multi" => true,
                        other => refuse(&format!("`{other}` is no runtime")),
                    }
                }
                other => refuse(&format!("`{other}` is no option")),
            }
        }
        check_sizes(&options.sizes);
        options
    }

    /// Whether this case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        is_in(&self.cases, case)
    }

    /// Whether this implementation was asked for.
    pub(crate) fn wants_impl(&self, made_by: &str) -> bool {
        is_in(&self.impls, made_by)
    }

    /// Whether this store was asked for.
    pub(crate) fn wants_store(&self, store: &str) -> bool {
        is_in(&self.stores, store)
    }

    /// What says the same about how to measure, to another program.
    pub(crate) fn words(&self) -> Vec<String> {
        let numbers = |numbers: &[usize]| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            numbers.join(",")
        };
        let mut words = vec![
            format!("--concurrency={}", numbers(&self.concurrency)),
            format!("--size={}", numbers(&self.sizes)),
            format!("--rounds={}", self.rounds),
            format!("--slice={}", self.slice.as_millis()),
        ];
        if self.multi {
            words.push("--runtime=multi".to_owned());
        }
        if self.json {
            words.push("--json".to_owned());
        }
        if !self.cases.is_empty() {
            words.push(format!("--case={}", self.cases.join(",")));
        }
        words
    }

    /// The runtime that was asked for.
    pub(crate) fn runtime(&self) -> Runtime {
        if self.multi {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.enable_all().build().unwrap()
        } else {
            current_thread()
        }
    }
}

/// For people: how it is measured.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = if self.multi {
            "multi-thread"
        } else {
            "current-thread"
        };
        let (rounds, slice) = (self.rounds, self.slice);
        write!(
            f,
            "{runtime} runtime, medians of {rounds} rounds of {slice:?}"
        )
    }
}

fn is_in(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn numbers(text: &str) -> Vec<usize> {
    let number = |part: &str| match part.parse() {
        Ok(0) | Err(_) => refuse(&format!("`{part}` is no number above 0")),
        Ok(number) => number,
    };
    text.split(',').map(number).collect()
}

/// Ends the program if an answer is to be smaller than one without text.
pub(crate) fn check_sizes(sizes: &[usize]) {
    let least = Receipt::bare_bytes();
    if let Some(size) = sizes.iter().find(|size| **size < least) {
        refuse(&format!("no answer has `{size}` bytes: {least} at least"));
    }
}

/// Ends the program: this is for a person at a terminal.
pub(crate) fn refuse(why: &str) -> ! {
    eprintln!("{why}\n{HELP}");
    exit(2)
}
