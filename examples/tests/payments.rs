//! The payments example as a person runs it: once, again, killed half-way, without the attribute, with altered books.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use idem_harness::{TestDir, gated_lines};
use sqlx::{Connection as _, SqliteConnection};

const ONCE: &str = "ok: everything that was asked for happened, and once\n";
const REPLAYED: &str =
    "ok: everything was answered from the earlier run, and nothing moved again\n";

/// The lines of the log that are no deliveries.
const BAD: [usize; 14] = [
    177, 355, 528, 704, 883, 1056, 1232, 1411, 1586, 1760, 1940, 2112, 2289, 2465,
];

/// The program with these arguments.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(support::built("payments"));
    command.args(args);
    command
}

/// Runs the program: its exit code, standard output and standard error.
fn payments(args: &[&str]) -> (Option<i32>, String, String) {
    let run = program(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (run.status.code(), text(run.stdout), text(run.stderr))
}

/// Runs the program, which ends well and with these words. Returns its output.
fn ends_with(args: &[&str], end: &str) -> String {
    let (code, printed, said) = payments(args);
    assert!(printed.ends_with(end), "{printed}\n{said}");
    assert_eq!(code, Some(0), "{printed}\n{said}");
    printed
}

/// The numbers of a row of a table: of `pay`, `refund`, `notify` and all.
fn row(printed: &str, name: &str) -> Vec<u64> {
    let mut lines = printed.lines().map(str::trim_start);
    let row = lines.find_map(|line| line.strip_prefix(name)).unwrap();
    let numbers = row.split_whitespace().map_while(|word| word.parse().ok());
    numbers.collect()
}

#[tokio::test]
async fn the_log_passes_the_check_and_altered_books_do_not() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    let printed = ends_with(&args, ONCE);
    let skipped = printed.lines().filter_map(|line| {
        let (line, _) = line
            .trim()
            .strip_prefix("line ")?
            .split_once(" is skipped")?;
        line.parse().ok()
    });
    assert_eq!(skipped.collect::<Vec<usize>>(), BAD);
    for (column, name) in [
        (0, "executed"),
        (0, "business errors kept"),
        (0, "system errors, key given back"),
        (0, "replayed"),
        (0, "waited"),
        (0, "mismatched"),
        (2, "refused, done before"),
        (2, "unknown outcome kept"),
    ] {
        assert!(row(&printed, name)[column] > 0, "{name}: {printed}");
    }
    assert!(!printed.contains("\n0 were, and the provider"), "{printed}");

    // Two faults that a run without the attribute does not show: a lost movement, and a wrong amount.
    let books = format!("sqlite:{}", file.display());
    let mut books = SqliteConnection::connect(&books).await.unwrap();
    let delete = "DELETE FROM journal WHERE position = 1 RETURNING movement ->> 'number'";
    let lost: String = sqlx::query_scalar(delete)
        .fetch_one(&mut books)
        .await
        .unwrap();
    let alter = "UPDATE journal SET movement = json_set(movement, '$.amount', movement ->> 'amount' + 1) \
                 WHERE position = 2";
    sqlx::query(alter).execute(&mut books).await.unwrap();
    let notes = dir.path().join("payments.db.provider.jsonl");
    let text = fs::read_to_string(&notes).unwrap();
    let number = format!("\"number\":\"{lost}\"");
    let others = text
        .split_inclusive('\n')
        .filter(|note| !note.contains(&number));
    fs::write(&notes, others.collect::<String>()).unwrap();
    let (code, printed, _) = payments(&args);
    assert_eq!(code, Some(1), "{printed}");
    for title in ["payments", "amounts", "journal"] {
        assert!(printed.contains(&format!("WRONG {title}")), "{printed}");
    }
}

#[test]
fn without_the_attribute_money_moves_twice() {
    let (code, printed, errors) = payments(&["--without"]);
    assert_eq!(code, Some(1), "{printed}");
    for title in [
        "payments",
        "refunds",
        "messages",
        "same answer",
        "conflicts",
    ] {
        assert!(printed.contains(&format!("WRONG {title}")), "{printed}");
    }
    assert!(
        printed.contains("payments charged more than once"),
        "{printed}"
    );
    assert!(errors.contains("100 %"), "{errors}");
}

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    // Port 1 is reserved, and has no listener.
    for (args, reason) in [
        (&["--redsi"][..], "unexpected argument '--redsi'"),
        (&["--tasks", "0"], "0 is not in 1..=10000"),
        (&["--without", "--redis", "x"], "cannot be used with"),
        (&["--redis", "x", "--file", "f.db"], "cannot be used with"),
        (
            &["--redis", "redis://127.0.0.1:1"],
            "connecting to Redis at 127.0.0.1:1: nothing listens at this address",
        ),
    ] {
        let (code, _, errors) = payments(args);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
}

/// Percentages of the log after which the run is killed soon; then one completes, and another one replays.
const PERCENTAGES: [u32; 6] = [10, 20, 30, 40, 50, 60];

#[test]
fn kills_change_nothing_in_a_file() {
    let dir = TestDir::new("payments").unwrap();
    let file = dir.path().join("payments.db");
    let args = ["--file", file.to_str().unwrap()];
    for percent in PERCENTAGES {
        let (mut lines, stderr) = gated_lines().unwrap();
        // The command, which has the other end of the pipe, is dropped here.
        let run = program(&args).stdout(Stdio::null()).stderr(stderr).spawn();
        let mut run = run.unwrap();
        let line = format!("{percent:>3} %");
        let mut said = lines.by_ref().map(Result::unwrap);
        assert!(said.any(|text| text.starts_with(&line)), "no {line}");
        // Any moment will do, and a different one each time. The run stops at its next lines, so it has not ended.
        let moment = Duration::from_micros(RandomState::new().hash_one(0) % 150_000);
        eprintln!("killed {moment:?} after {percent} %");
        std::thread::sleep(moment);
        run.kill().unwrap();
        assert_eq!(run.wait().unwrap().signal(), Some(9));
    }

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
    // It stops at its second line.
    let (mut lines, stderr) = gated_lines().unwrap();
    let mut first = program(&args).stderr(stderr).spawn().unwrap();
    lines.next().unwrap().unwrap();
    let second = payments(&args);
    first.kill().unwrap();
    first.wait().unwrap();
    let (code, _, said) = second;
    assert_eq!(code, Some(2));
    assert!(said.contains("another run is under way"), "{said}");
}
