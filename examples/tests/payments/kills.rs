//! The payments example is killed half-way, repeatedly, and still completes.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use idem_harness::TestDir;

use super::{payments, program};

const ONCE: &str = "ok: everything that was asked for happened, and once\n";
const REPLAYED: &str =
    "ok: everything was answered from the earlier run, and nothing moved again\n";

/// The run is killed soon after each of these percentages of the log; then one completes, and another one replays.
const PERCENTAGES: [u32; 6] = [10, 20, 30, 40, 50, 60];

#[test]
fn kills_change_nothing_in_a_file() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    let mut kills = 0;
    for percent in PERCENTAGES {
        let mut run = program(&args);
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
    let half = u32::try_from(PERCENTAGES.len() / 2).unwrap();
    assert!(
        kills > half,
        "only {kills} runs were still there to be killed"
    );

    let printed = ends_with(&args, ONCE);
    assert!(printed.contains("This one continues it"), "{printed}");
    ends_with(&args, REPLAYED);
    ends_with(&[&args[..], &["--fresh"]].concat(), ONCE);
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

/// Runs the program, which ends well and with these words; what it printed.
fn ends_with(args: &[&str], end: &str) -> String {
    let (code, printed, said) = payments(args);
    assert!(printed.ends_with(end), "{printed}\n{said}");
    assert_eq!(code, Some(0), "{printed}\n{said}");
    printed
}
