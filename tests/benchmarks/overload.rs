//! `overload`: its rows, and that none of them shows a loss.

use crate::line::Line;
use crate::program;

/// How many acknowledged answers a row reads again.
const AUDIT: u64 = 300;

fn rows(store: &str) -> Vec<Line> {
    let words = format!("--json --quick --store {store} --audit {AUDIT}");
    let ran = program::run("overload", &words);
    ran.printed().lines().map(Line::parse).collect()
}

fn check(store: &str, cases: &[&str]) {
    let rows = rows(store);
    let there: Vec<_> = rows.iter().map(|row| row.word("case")).collect();
    assert_eq!(there, cases);
    for row in &rows {
        assert_eq!(row.word("store"), store);
        let counts = |names: &[&str]| names.iter().map(|name| row.count(name)).sum::<u64>();
        let replies = counts(&[
            "admitted",
            "refused_shed",
            "refused_unavailable",
            "refused_other",
            "without_reply",
        ]);
        assert_eq!(replies, row.count("offered"), "{row:?}");
        row.positive("peak_per_s");
        assert!(row.count("admitted_in_time") <= row.count("admitted"));
        // The probes of the recovery are audited, too.
        let asked = row.count("audited");
        assert!(
            asked == AUDIT || asked < AUDIT && asked >= row.count("admitted"),
            "{row:?}"
        );
        let ruled_out = counts(&[
            "lost",
            "differing",
            "unanswered",
            "of_no_run",
            "ran_though_refused",
        ]);
        assert_eq!(ruled_out, 0, "{row:?}");
        if row.word("case") == "burst" {
            assert_eq!((row.count("offered"), row.count("not_offered")), (1_000, 0));
        }
    }
}

#[test]
fn a_store_without_a_server_is_not_stopped() {
    check("memory", &["load", "burst"]);
}

#[test]
fn a_file_is_locked_for_a_while_as_well() {
    check("sqlite", &["load", "stopped", "burst"]);
}

#[test]
fn a_server_is_stopped_for_a_while_as_well() {
    check("redis", &["load", "stopped", "burst"]);
}
