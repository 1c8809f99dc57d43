//! `growth`: every part, and its lines.

use std::sync::LazyLock;

use crate::line::Line;
use crate::program;

/// All parts at once, for all tests.
static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| {
    let words = "--json --quick --rounds 1 --keys 1_000,2000 --size 100,10240";
    let ran = program::run("growth", words);
    ran.printed().lines().map(Line::parse).collect()
});

fn part(name: &str) -> Vec<Line> {
    let lines = LINES.iter().filter(|line| line.word("part") == name);
    lines.cloned().collect()
}

/// These words and counts say what a line is about.
fn about(line: &Line, words: &[&str], counts: &[&str]) -> String {
    let words = words.iter().map(|name| line.word(name).to_owned());
    let counts = counts.iter().map(|name| line.count(name).to_string());
    words.chain(counts).collect::<Vec<_>>().join(" ")
}

/// Fails if a line has other fields than these, figures that are not above 0, or is about something else.
fn check(lines: &[Line], words: &[&str], counts: &[&str], figures: &[&str], wanted: &[String]) {
    for line in lines {
        let fields = [&["part"], words, counts, figures].concat();
        line.has_just(&fields);
        for name in figures {
            line.positive(name);
        }
    }
    let there: Vec<_> = lines
        .iter()
        .map(|line| about(line, words, counts))
        .collect();
    assert_eq!(there, wanted);
}

#[test]
fn without_a_part_every_part_is_measured_in_order() {
    let mut parts: Vec<_> = LINES.iter().map(|line| line.word("part")).collect();
    parts.dedup();
    assert_eq!(parts, ["keys", "memory", "sizes", "waiters", "processes"]);
}

#[test]
fn a_part_is_measured_alone() {
    let words = "--json --quick --rounds 1 --keys 10 --part keys";
    let ran = program::run("growth", words);
    let lines: Vec<_> = ran.printed().lines().map(Line::parse).collect();
    assert_eq!(lines.len(), 4, "{}", ran.out);
    assert!(
        lines.iter().all(|line| line.word("part") == "keys"),
        "{}",
        ran.out
    );
}

#[test]
fn keys_has_both_cases_at_each_number_of_records() {
    let lines = part("keys");
    let mut wanted = Vec::new();
    for keys in [1_000, 2_000] {
        for at_once in [1, 64] {
            wanted.extend(["first", "replay"].map(|case| format!("{case} {keys} {at_once}")));
        }
    }
    let figures = [
        "ops_per_s",
        "p50_us",
        "p99_us",
        "bytes_in_per_call",
        "bytes_out_per_call",
        "used_memory_per_key",
    ];
    check(
        &lines,
        &["case"],
        &["keys", "concurrency"],
        &figures,
        &wanted,
    );
}

/// A record is 56 bytes and the answer; its name is the prefix, the operation and 43 characters.
#[test]
fn memory_has_records_of_the_sizes_that_are_promised() {
    let lines = part("memory");
    let wanted = [
        "bare 50000 22 200",
        "finished 50000 61 256",
        "running 50000 61 56",
    ];
    let counts = ["keys", "name_bytes", "value_bytes"];
    let figures = ["bytes_per_key", "ratio_to_bare"];
    check(
        &lines,
        &["case"],
        &counts,
        &figures,
        &wanted.map(str::to_owned),
    );
    let [bare, ..] = &lines[..] else {
        unreachable!()
    };
    assert!(
        (bare.positive("ratio_to_bare") - 1.0).abs() < 1e-9,
        "{bare:?}"
    );
    for line in &lines {
        let ratio = line.positive("bytes_per_key") / bare.positive("bytes_per_key");
        assert!(
            (ratio - line.positive("ratio_to_bare")).abs() < 0.01,
            "{line:?}"
        );
    }
}

#[test]
fn sizes_has_idem_beside_the_redis_crate() {
    let lines = part("sizes");
    let mut wanted = Vec::new();
    for bytes in [100, 10_240] {
        for at_once in [1, 64] {
            for case in ["first", "replay"] {
                wanted.extend(["raw", "idem"].map(|by| format!("{case} {by} {bytes} {at_once}")));
            }
        }
    }
    let figures = [
        "ops_per_s",
        "p50_us",
        "p99_us",
        "server_cpu_us_per_call",
        "ratio_to_raw",
    ];
    check(
        &lines,
        &["case", "impl"],
        &["value_bytes", "concurrency"],
        &figures,
        &wanted,
    );
}

#[test]
fn waiters_cost_the_server_what_their_engines_do_and_not_what_they_are() {
    let lines = part("waiters");
    let wanted: Vec<_> = [1, 4]
        .iter()
        .flat_map(|engines| [1, 100, 1_000].map(|waiters| format!("{engines} {waiters}")))
        .collect();
    let counts = ["engines", "waiters"];
    for line in &lines {
        line.has_just(&[
            "part",
            "engines",
            "waiters",
            "first_us",
            "middle_us",
            "last_us",
            "commands",
        ]);
        // Who waits may have the answer no later than who ran, and then it is 0.
        let [first, middle, last] = ["first_us", "middle_us", "last_us"].map(|name| {
            line.figure(name)
                .unwrap_or_else(|| panic!("no {name}: {line:?}"))
        });
        assert!(
            0.0 <= first && first <= middle && middle <= last,
            "{line:?}"
        );
        let commands = line.positive("commands");
        let waiters = line.count("waiters");
        assert!(
            waiters < 1_000 || commands < 500.0,
            "as if each asked for itself: {line:?}"
        );
    }
    let there: Vec<_> = lines.iter().map(|line| about(line, &[], &counts)).collect();
    assert_eq!(there, wanted);
}

#[test]
fn processes_has_both_cases_with_one_and_with_two() {
    let lines = part("processes");
    let wanted = ["first 1 64", "replay 1 64", "first 2 64", "replay 2 64"];
    let counts = ["processes", "concurrency_each"];
    let figures = ["ops_per_s", "server_cores"];
    check(
        &lines,
        &["case"],
        &counts,
        &figures,
        &wanted.map(str::to_owned),
    );
}
