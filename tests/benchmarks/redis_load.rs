//! `redis_load`: all cases, and how many commands a call is.

use idem_harness::RedisServer;

use crate::program;
use crate::row::{Name, Row, assert_names, rows};

/// Everything that is measured: implementation, case, and how many commands a call sends. Those who wait are
/// not counted.
const CASES: [(&str, &str, Option<f64>); 18] = [
    ("raw_unfenced", "first", Some(2.0)),
    ("raw", "first", Some(2.0)),
    ("raw_ifeq", "first", Some(2.0)),
    ("idem", "first", Some(2.0)),
    ("idem", "first_vs_unfenced", Some(2.0)),
    ("raw_get", "replay", Some(1.0)),
    ("raw", "replay", Some(1.0)),
    ("idem", "replay", Some(1.0)),
    ("raw", "local_replay", Some(0.0)),
    ("idem", "local_replay", Some(0.0)),
    ("raw", "business_error", Some(1.0)),
    ("idem", "business_error", Some(1.0)),
    ("raw", "release", Some(2.0)),
    ("idem", "release", Some(2.0)),
    ("raw", "first+replay", Some(3.0)),
    ("idem", "first+replay", Some(3.0)),
    ("idem", "wait", None),
    ("idem", "wait_same_engine", None),
];

/// What a server can do, of what makes a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ability {
    /// No `SET NX GET`, as before Redis 7: nothing to compare with.
    Old,
    /// A value is replaced by a script that looks who holds the claim: a large answer is sent ahead of it.
    Scripts,
    /// `SET IFEQ`.
    CompareAndSet,
}

impl Ability {
    fn of(server: &RedisServer) -> Self {
        let can = |words: &[&str]| server.reply(words).as_error().is_none();
        if !can(&["SET", "probe", "", "NX", "GET"]) {
            Self::Old
        } else if can(&["SET", "probe", "", "IFEQ", ""]) {
            Self::CompareAndSet
        } else {
            Self::Scripts
        }
    }

    /// Of the server that the benchmarks start when none is named.
    fn of_default() -> Self {
        Self::of(&RedisServer::start())
    }

    fn has(self, (made_by, case): (&str, &str)) -> bool {
        match self {
            Self::Old => made_by == "idem" && case != "first_vs_unfenced",
            Self::Scripts => made_by != "raw_ifeq",
            Self::CompareAndSet => true,
        }
    }

    fn commands(self, row: &Row) -> Option<f64> {
        let mut cases = CASES.iter();
        let case = cases.find(|(made_by, case, _)| row.made_by == *made_by && row.case == *case);
        let (made_by, case, commands) = case.expect("the names were looked at");
        let is_large = row.value_bytes == 10_240;
        let is_ahead = *made_by == "idem" && case.starts_with("first") && is_large;
        if is_ahead && self != Self::CompareAndSet {
            return commands.map(|commands| commands + 1.0);
        }
        *commands
    }
}

/// How much more than promised a call may have sent. Of 64 calls that are counted one or two claim by script, where
/// the server's time is not known well: once in ten seconds, and after replies that were slow. For a large answer
/// that is a `GET` more.
fn spare(row: &Row) -> f64 {
    let reads = row.made_by == "idem" && row.case.ends_with("replay") && row.case != "local_replay";
    match reads && row.value_bytes == 10_240 {
        true => 2.0 / 64.0,
        false => 0.0,
    }
}

/// Runs it, and looks that just those rows are there that are `wanted` and that such a server can have, at each
/// of these numbers at once, with answers of these sizes, and that calls are as many commands as promised.
fn check(
    arguments: &str,
    ability: Ability,
    wanted: impl Fn(&str, &str) -> bool,
    concurrency: &[u64],
    sizes: &[u64],
) {
    let rows = rows("redis_load", arguments);
    let mut names: Vec<Name> = Vec::new();
    for (made_by, case, _) in CASES {
        if !wanted(made_by, case) || !ability.has((made_by, case)) {
            continue;
        }
        for &at_once in concurrency {
            for &bytes in sizes {
                names.push((made_by.into(), case.into(), "redis".into(), at_once, bytes));
            }
        }
    }
    assert_names(&rows, names);
    for row in &rows {
        let commands = ability.commands(row);
        let spare = commands.map(|commands| commands + spare(row));
        let is_kept = row.commands >= commands && row.commands <= spare;
        assert!(is_kept, "{commands:?} commands: {:?}", row.line);
        match commands {
            None => assert_eq!(row.server_cpu, None, "{:?}", row.line),
            // The server has nothing to do, but is asked how much that was.
            Some(0.0) => assert!(row.server_cpu.is_some_and(|cpu| cpu >= 0.0)),
            Some(_) => {
                row.line.positive("server_cpu_us_per_call");
            }
        }
    }
}

#[test]
fn every_case_is_there_and_is_as_many_commands_as_promised() {
    let all = |_: &str, _: &str| true;
    check(
        "--size 200",
        Ability::of_default(),
        all,
        &[1, 16, 64, 256],
        &[200],
    );
}

#[test]
fn a_large_answer_is_one_more_command_for_a_first_call() {
    let words = "--size 10240 --concurrency 16";
    check(words, Ability::of_default(), |_, _| true, &[16], &[10_240]);
}

#[test]
fn without_options_it_is_all_sizes_and_all_numbers_at_once() {
    let is_raw = |made_by: &str, _: &str| made_by == "raw";
    check(
        "--impl raw",
        Ability::of_default(),
        is_raw,
        &[1, 16, 64, 256],
        &[200, 10_240],
    );
}

#[test]
fn on_the_runtime_with_threads_as_well() {
    let words = "--runtime multi --size 200 --concurrency 1,64";
    check(words, Ability::of_default(), |_, _| true, &[1, 64], &[200]);
}

#[test]
fn a_server_with_compare_and_set_sends_no_large_answer_ahead() {
    let words = "--edition valkey --case first --size 200,10240 --concurrency 1,16";
    let is_first = |_: &str, case: &str| case.starts_with("first") && case != "first+replay";
    check(
        words,
        Ability::CompareAndSet,
        is_first,
        &[1, 16],
        &[200, 10_240],
    );
}

#[test]
fn an_old_server_measures_idem_alone() {
    let words = "--edition redis62 --size 200 --concurrency 4";
    check(words, Ability::Old, |_, _| true, &[4], &[200]);
}

#[test]
fn a_server_that_runs_already_keeps_what_it_has() {
    let server = RedisServer::start();
    server.reply(&["SET", "mine", "here"]);
    let words = format!(
        "--url {} --case replay --size 200 --concurrency 4",
        server.url()
    );
    let is_replay = |_: &str, case: &str| case == "replay";
    check(&words, Ability::of(&server), is_replay, &[4], &[200]);
    assert_eq!(server.cli(&["GET", "mine"]), "here");
}

#[test]
fn a_table_has_the_same_rows_and_medians_of_several_rounds() {
    let words = "--rounds 3 --slice 1 --case replay --impl idem --size 200 --concurrency 4";
    let ran = program::run("redis_load", words);
    let table = ran.printed();
    let lines: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1], ["redis,", "200", "bytes,", "4", "at", "once"]);
    assert_eq!(lines[3][..2], ["replay", "idem"]);
    let figures: Vec<f64> = lines[3][2..]
        .iter()
        .map(|word| word.parse().unwrap())
        .collect();
    // As the heading says: calls a second, latencies, commands, the server's time; no ratio, for there is no raw.
    assert_eq!(
        (figures.len(), figures[3], lines.len()),
        (5, 1.0, 4),
        "{table}"
    );
    assert!(figures.iter().all(|figure| *figure > 0.0), "{table}");
}
