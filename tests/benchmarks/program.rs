//! The programs, and what one that ran has said.

use std::env;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use idem_harness::TestDir;

/// Where they are: `name=path`, one a line.
const PROGRAMS: &str = "IDEM_BENCHMARKS";

/// Several times what the longest of them takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a program has said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    /// `None` after a signal.
    pub(crate) code: Option<i32>,
}

impl Ran {
    /// What it printed, if all went well.
    #[track_caller]
    pub(crate) fn printed(&self) -> &str {
        assert_eq!(
            self.code,
            Some(0),
            "it failed, and said:\n{}\n{}",
            self.out,
            self.err
        );
        &self.out
    }
}

/// The names of all programs.
pub(crate) fn names() -> Vec<String> {
    let all = all();
    all.lines()
        .map(|line| line.split_once('=').unwrap().0.to_owned())
        .collect()
}

/// Runs one of them, with the words of `arguments`, in a directory of its own.
pub(crate) fn run(name: &str, arguments: &str) -> Ran {
    let all = all();
    let mut lines = all.lines();
    let path = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let path = path.unwrap_or_else(|| panic!("no {name} in {PROGRAMS}:\n{all}"));
    let dir = TestDir::new("benchmark").unwrap();
    let file = |name| File::create(dir.path().join(name)).unwrap();
    let mut child = Command::new(path)
        .args(arguments.split_whitespace())
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"))
        .spawn()
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let text = |name| fs::read_to_string(dir.path().join(name)).unwrap();
    let (out, err) = (text("out"), text("err"));
    let Some(status) = status else {
        panic!("{name} {arguments}: not done after {PATIENCE:?}; it said:\n{out}\n{err}");
    };
    Ran {
        out,
        err,
        code: status.code(),
    }
}

fn all() -> String {
    let all = env::var(PROGRAMS);
    all.unwrap_or_else(|_| panic!("{PROGRAMS} is not set: run this by `scripts/test bench`"))
}
