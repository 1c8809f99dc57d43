//! The payments example is killed half-way, repeatedly, and still completes.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use idem_examples::payments::ledger::{AnyPool, Ledger};
use idem_examples::payments::notes::Note;
use idem_harness::{MariaDbServer, PostgresServer, TestDir};

#[tokio::test]
async fn kills_change_nothing_in_a_file() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    killed_and_continued(&args, &[10, 20, 30, 40, 50, 60, 70, 80]);
    let notes = dir.path().join("payments.db.provider.jsonl");
    check_books(AnyPool::sqlite(&file).await.unwrap(), &notes).await;

    let anew = payments(&[&args[..], &["--fresh"]].concat());
    assert_ends_with(
        &anew,
        "ok: everything that was asked for happened, and once\n",
    );
}

#[tokio::test]
async fn kills_change_nothing_in_postgres() {
    let (server, dir) = (PostgresServer::start(), TestDir::new("payments").unwrap());
    let notes = dir.path().join("notes.jsonl");
    killed_on_a_server("--postgres", &server.url(), &notes);
    check_books(AnyPool::postgres(&server.url()).await.unwrap(), &notes).await;
}

#[tokio::test]
async fn kills_change_nothing_in_mariadb() {
    let (server, dir) = (MariaDbServer::start(), TestDir::new("payments").unwrap());
    let notes = dir.path().join("notes.jsonl");
    killed_on_a_server("--mysql", &server.url(), &notes);
    check_books(AnyPool::mysql(&server.url()).await.unwrap(), &notes).await;
}

fn killed_on_a_server(option: &str, url: &str, notes: &Path) {
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
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("another run is under way"), "{said}");
}

/// Kills a run soon after each of these percentages of the log, then completes one run, and replays another.
fn killed_and_continued(args: &[&str], percentages: &[u32]) {
    let mut kills = 0;
    for percent in percentages {
        let mut run = program(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
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

    let last = payments(args);
    assert_ends_with(
        &last,
        "ok: everything that was asked for happened, and once\n",
    );
    let printed = String::from_utf8(last.stdout).unwrap();
    assert!(printed.contains("This one continues it"), "{printed}");

    let replayed = payments(args);
    assert_ends_with(
        &replayed,
        "ok: everything was answered from the earlier run, and nothing moved again\n",
    );
}

/// Checks independently: the tables and the provider's notes.
async fn check_books(pool: AnyPool, notes: &Path) {
    let ledger = Ledger::open(pool, String::new(), false, Duration::MAX).await;
    let books = ledger.unwrap().books().await.unwrap();
    let notes = std::fs::read_to_string(notes).unwrap();
    let notes = notes
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let moved = notes.filter_map(|note| match note {
        Note::Answered { answer, .. } => answer.ok(),
        _ => None,
    });
    let moved: Vec<_> = moved.collect();
    assert!(moved.len() > 600, "{} movements", moved.len());

    let at_provider: HashSet<_> = moved.iter().collect();
    let booked: HashSet<_> = books.journal.iter().collect();
    assert_eq!(at_provider, booked);
    // No movement is there twice.
    assert_eq!(moved.len(), booked.len());
    assert_eq!(books.journal.len(), booked.len());
    let different: HashSet<_> = moved.iter().map(|m| (m.kind, &m.merchant, &m.id)).collect();
    assert_eq!(moved.len(), different.len());

    let mut explained = BTreeMap::new();
    for row in &books.journal {
        for (account, change) in row.changes() {
            let account = (account.to_owned(), row.currency.clone());
            *explained.entry(account).or_insert(0) += change;
        }
    }
    assert_eq!(books.balances, explained);
}

fn payments(args: &[&str]) -> Output {
    program(args).output().unwrap()
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(support::built("payments"));
    command.args(args);
    command
}

fn assert_ends_with(run: &Output, end: &str) {
    let printed = String::from_utf8_lossy(&run.stdout);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(printed.ends_with(end), "{printed}\n{said}");
    assert_eq!(run.status.code(), Some(0), "{printed}\n{said}");
}
