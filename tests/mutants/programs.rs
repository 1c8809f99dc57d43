//! The programs of tests, fast ones first, and their runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Programs of tests by target and folder of their package.
pub(crate) const PROGRAMS: [(&str, &str); 18] = [
    ("idem_runtime", "idem-runtime"),
    ("http", "tests"),
    ("shapes", "tests"),
    ("observed", "tests"),
    ("layered", "tests"),
    ("semantics", "tests"),
    ("stores", "tests"),
    ("command", "idem-cli"),
    ("mutants", "tests"),
    ("protocol", "tests/proof/protocol"),
    ("killed_steps", "tests"),
    ("redis_faults", "tests"),
    ("sql", "tests"),
    ("failover", "tests"),
    ("conformance", "tests"),
    ("steps", "tests"),
    ("cluster", "tests"),
    ("consumers", "tests"),
];

/// A program prints something within this time, or it hangs.
const SILENCE: Duration = Duration::from_mins(3);

/// An executable, and the folder of its package.
pub(crate) struct Built(PathBuf, PathBuf);

/// The executables of the programs, built if they are not.
pub(crate) fn build(copy: &Path) -> BTreeMap<&'static str, Built> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(copy)
        .args(["test", "--no-run", "--workspace", "--all-features", "--lib"]);
    for (target, _) in &PROGRAMS[1..] {
        cargo.args(["--test", target]);
    }
    // Their warnings are those of the switches.
    cargo.args(["--quiet", "--message-format=json"]);
    let output = cargo.output().expect("cargo runs");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("the copy does not compile: {errors}");
    }
    let copy = copy.canonicalize().expect("the copy is there");
    let mut built = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).expect("JSON of cargo");
        let Some(executable) = value["executable"].as_str() else {
            continue;
        };
        let manifest = Path::new(value["manifest_path"].as_str().expect("a manifest"));
        let package = manifest.parent().expect("a folder");
        let same = |(target, folder): &&(&str, &str)| {
            copy.join(folder) == package && value["target"]["name"] == *target
        };
        if let Some((target, _)) = PROGRAMS.iter().find(same)
            && value["profile"]["test"] == true
        {
            built.insert(*target, Built(executable.into(), package.to_owned()));
        }
    }
    for (target, _) in PROGRAMS {
        assert!(built.contains_key(target), "not built: {target}");
    }
    built
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passes,
    /// A test failed, or has not ended.
    Found(String),
    /// Without a failing test.
    Aborts,
}

/// Runs a program with a mutant (0: none) to its first failure; `only` names one test.
pub(crate) fn execute(built: &Built, mutant: usize, only: Option<&str>) -> End {
    let Built(executable, package) = built;
    let mut command = Command::new(executable);
    command
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package)
        .env("IDEM_MUTANT", mutant.to_string())
        .env("RUST_BACKTRACE", "0")
        .env("RUST_TEST_THREADS", "4")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(test) = only {
        command.args(["--exact", test]);
    }
    let mut child = command.spawn().expect("a program starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = channel();
    // Detached: a server that the program has left may keep the pipe open.
    thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut slow = Vec::new();
    let end = loop {
        let line = match lines.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => break slow.pop().map_or(End::Aborts, End::Found),
            Err(RecvTimeoutError::Disconnected) => break End::Aborts,
        };
        let Some((_, line)) = line.split_once("test ") else {
            continue;
        };
        if line.starts_with("result: ok") {
            break End::Passes;
        } else if let Some(test) = line.strip_suffix(" ... FAILED") {
            let test = test.trim_end().trim_end_matches(" - should panic");
            break End::Found(test.to_owned());
        } else if let Some((test, _)) = line.split_once(" has been running for") {
            slow.push(test.to_owned());
        } else if let Some((test, _)) = line.split_once(" ... ") {
            slow.retain(|slow| slow != test.trim_end());
        }
    };
    // Its servers end with it: each has a guard that reads a pipe of the program.
    let _ = child.kill();
    let _ = child.wait();
    end
}
