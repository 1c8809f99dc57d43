//! The payments example is killed half-way, repeatedly, and still completes.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, TestDir};

use super::{payments, program};

const ONCE: &str = "ok: everything that was asked for happened, and once\n";
const REPLAYED: &str =
    "ok: everything was answered from the earlier run, and nothing moved again\n";

#[test]
fn kills_change_nothing_in_a_file() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    killed_and_continued(&args, &[10, 20, 30, 40, 50, 60, 70, 80]);
    ends_with(&[&args[..], &["--fresh"]].concat(), ONCE);
}

#[test]
fn kills_change_nothing_in_postgres() {
    let (server, dir) = (PostgresServer::start(), TestDir::new("payments").unwrap());
    killed_on_a_server("--postgres", &server.url(), &dir);
}

#[test]
fn kills_change_nothing_in_mariadb() {
    let (server, dir) = (MariaDbServer::start(), TestDir::new("payments").unwrap());
    killed_on_a_server("--mysql", &server.url(), &dir);
}

fn killed_on_a_server(option: &str, url: &str, dir: &TestDir) {
    let notes = dir.path().join("notes.jsonl");
    let args = [option, url, "--notes", notes.to_str().unwrap()];
    killed_and_continued(&args, &[10, 30, 50, 70, 80]);
}

#[test]
fn two_runs_at_once_are_refused() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    let mut first = program(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let second = payments(&args);
    first.kill().unwrap();
    first.wait().unwrap();
    let (code, _, said) = second;
    assert_eq!(code, Some(2));
    assert!(said.contains("another run is under way"), "{said}");
}

/// Kills a run soon after each of these percentages of the log, then completes one run, and replays another.
fn killed_and_continued(args: &[&str], percentages: &[u32]) {
    let mut kills = 0;
    for percent in percentages {
        let mut run = program(args);
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut run = run.spawn().unwrap();
        let line = format!("{percent:>3} %");
        let mut said = Vec::new();
        // If standard error ends first, the run ended before this percentage.
        for text in BufReader::new(run.stderr.take().unwrap()).lines() {
            said.push(text.unwrap());
            if said.last().is_some_and(|text| text.starts_with(&line)) {
                // Any moment will do, and a different one each time.
                let moment = Duration::from_micros(RandomState::new().hash_one(0) % 150_000);
                eprintln!("killed {moment:?} after {percent} %");
                std::thread::sleep(moment);
                break;
            }
        }
        run.kill().unwrap();
        let status = run.wait().unwrap();
        assert_ne!(status.code(), Some(2), "{said:#?}");
        kills += u32::from(status.signal() == Some(9));
    }
    let half = u32::try_from(percentages.len() / 2).unwrap();
    assert!(
        kills > half,
        "only {kills} runs were still there to be killed"
    );

    let printed = ends_with(args, ONCE);
    assert!(printed.contains("This one continues it"), "{printed}");
    ends_with(args, REPLAYED);
}

/// Runs the program, which ends well and with these words; what it printed.
fn ends_with(args: &[&str], end: &str) -> String {
    let (code, printed, said) = payments(args);
    assert!(printed.ends_with(end), "{printed}\n{said}");
    assert_eq!(code, Some(0), "{printed}\n{said}");
    printed
}
