//! The programs of tests, from fast to slow, and how one is run with a mutant.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A program of tests: the folder of its package, its target, and a part of the names of its tests.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    package: &'static str,
    target: &'static str,
    pub(crate) filter: Option<&'static str>,
}

/// In place of a part of a name: the tests of the module of the mutant.
pub(crate) const OWN_MODULE: &str = "";

const fn program(name: &'static str, package: &'static str, target: &'static str) -> Program {
    Program {
        name,
        package,
        target,
        filter: None,
    }
}

const fn part(name: &'static str, target: &'static str, filter: &'static str) -> Program {
    Program {
        name,
        package: "tests",
        target,
        filter: Some(filter),
    }
}

pub(crate) const PROGRAMS: [Program; 29] = [
    Program {
        name: "units",
        package: "idem-runtime",
        target: "idem_runtime",
        filter: Some(OWN_MODULE),
    },
    part("semantics memory", "semantics", "memory::"),
    part("conformance memory", "conformance", "memory::"),
    program("observed", "tests", "observed"),
    program("http", "tests", "http"),
    part("conformance sqlite", "conformance", "sqlite::"),
    part("conformance redis", "conformance", "redis::"),
    program("redis_commands", "tests", "redis_commands"),
    part("sql sqlite", "sql", "sqlite::"),
    program("shapes", "tests", "shapes"),
    program("layered", "tests", "layered"),
    program("watching", "tests", "watching"),
    program("listings", "tests", "listings"),
    program("semantics", "tests", "semantics"),
    program("all units", "idem-runtime", "idem_runtime"),
    program("memory_store", "tests", "memory_store"),
    program("processes", "tests", "processes"),
    program("clock", "tests", "clock"),
    program("command", "idem-cli", "command"),
    program("mutants", "tests", "mutants"),
    program("protocol", "tests/proof/protocol", "protocol"),
    program("killed_steps", "tests", "killed_steps"),
    program("redis_faults", "tests", "redis_faults"),
    program("sql", "tests", "sql"),
    program("failover", "tests", "failover"),
    program("conformance", "tests", "conformance"),
    program("steps", "tests", "steps"),
    program("cluster", "tests", "cluster"),
    program("consumers", "tests", "consumers"),
];

/// The executables of the programs and the folders of their packages, built if they are not.
pub(crate) fn build(dir: &Path) -> BTreeMap<&'static str, (PathBuf, PathBuf)> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(dir)
        .args(["test", "--no-run", "--workspace", "--all-features", "--lib"]);
    for program in PROGRAMS
        .iter()
        .filter(|program| program.target != "idem_runtime")
    {
        cargo.args(["--test", program.target]);
    }
    // Their warnings are those of the switches.
    let output = cargo
        .args(["--quiet", "--message-format=json"])
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let dir = dir.canonicalize().expect("the copy is there");
    let mut built = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).expect("JSON of cargo");
        let (Some(executable), true) = (
            value["executable"].as_str(),
            value["profile"]["test"] == true,
        ) else {
            continue;
        };
        let manifest = Path::new(value["manifest_path"].as_str().expect("a manifest"));
        let package = manifest.parent().expect("a folder");
        let same = |program: &&Program| {
            dir.join(program.package) == package && value["target"]["name"] == program.target
        };
        for program in PROGRAMS.iter().filter(same) {
            built.insert(
                program.name,
                (PathBuf::from(executable), package.to_owned()),
            );
        }
    }
    for program in PROGRAMS {
        assert!(
            built.contains_key(program.name),
            "not built: {}",
            program.name
        );
    }
    built
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    Passes,
    Fails,
    Hangs,
    /// With no test named as failed.
    Aborts,
}

/// Runs a program, and ends it at its third failure, a second after its first, when it is
/// silent for as long as the limit, or at three times the limit.
pub(crate) fn execute(
    filter: &str,
    (executable, package): &(PathBuf, PathBuf),
    mutant: usize,
    only: Option<&str>,
    limit: Duration,
    reached: Option<&Path>,
) -> (End, Vec<String>) {
    let mut command = Command::new(executable);
    command
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package);
    command
        .env("IDEM_MUTANT", mutant.to_string())
        .env("RUST_BACKTRACE", "0");
    command
        .env("RUST_TEST_THREADS", "4")
        .env_remove("IDEM_MUTANTS_REACHED");
    if let Some(path) = reached {
        command.env("IDEM_MUTANTS_REACHED", path);
    }
    if let Some(test) = only {
        command.args(["--exact", test]);
    } else {
        command.arg(filter);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let (mut latest, mut first) = (begun, begun);
    let mut child = command.spawn().expect("a program starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = channel();
    // Detached: a server that the program has left may keep the pipe open.
    thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    let (mut failed, mut slow, mut status) = (Vec::new(), Vec::new(), None);
    loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                latest = Instant::now();
                let Some((_, line)) = line.split_once("test ") else {
                    continue;
                };
                if let Some(test) = line.strip_suffix(" ... FAILED") {
                    let test = test.trim_end().trim_end_matches(" - should panic");
                    failed.push(test.to_owned());
                } else if let Some((test, _)) = line.split_once(" has been running for") {
                    slow.push(test.to_owned());
                } else if let Some((test, _)) = line.split_once(" ... ") {
                    slow.retain(|slow| slow != test.trim_end());
                }
            }
            // The rest of the output has been read.
            Err(RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if status.is_some() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        status = status.or(child.try_wait().expect("the program is a child"));
        if failed.is_empty() {
            first = Instant::now();
        }
        let is_enough = failed.len() >= 3 || first.elapsed() > Duration::from_secs(1);
        if status.is_none()
            && (latest.elapsed() > limit || begun.elapsed() > limit * 3 || is_enough && mutant != 0)
        {
            break;
        }
    }
    // Its servers end with it: each has a guard that reads a pipe of the program.
    let _ = child.kill();
    let _ = child.wait();
    let end = match status {
        Some(status) if status.success() => End::Passes,
        _ if !failed.is_empty() => End::Fails,
        Some(_) => End::Aborts,
        None => End::Hangs,
    };
    let mut tests = if end == End::Hangs { slow } else { failed };
    tests.truncate(3);
    (end, tests)
}
