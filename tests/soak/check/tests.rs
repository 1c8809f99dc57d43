//! Histories made by hand: each violation is found, and each exception is one.

use super::*;
use crate::faults::{Fault, Target};

/// A body that runs, its answer, and a replay in another process.
const FIRST: &str = "\
1000000 call 1 p1 0
1001000 start 1 p1 1 digest
1001500 fence 1 p1 100
1002000 end 1 p1 ok 0.1/0
1003000 told 1 p1 ok 0.1/0";
const REPLAY: &str = "\
1100000 call 1 p1 0
1101000 told 1 p1 ok 0.1/0";

/// A body that runs in another process two seconds later, and has another answer.
const SECOND: &str = "\
3000000 call 9 p1 0
3001000 start 9 p1 2 digest
3001500 fence 9 p1 200
3002000 end 9 p1 ok 1.9/0
3003000 told 9 p1 ok 1.9/0";

const LASTS: Promise = Promise {
    lease: 1_000_000,
    forgets: &[],
};
const FORGETS: Promise = Promise {
    forgets: &["failover-asked"],
    ..LASTS
};

fn fault(kind: &str, target: Target, from: u64, to: u64) -> Fault {
    Fault {
        kind: kind.to_owned(),
        target,
        from,
        to,
        killed: None,
    }
}

fn killed(process: u32, at: u64) -> Fault {
    Fault {
        killed: Some(process),
        ..fault("kill", Target::Seat(process % 4), at, at)
    }
}

fn history(processes: &[&str]) -> History {
    let mut history = History::default();
    for (process, lines) in (0..).zip(processes) {
        history.take(process, lines);
    }
    assert_eq!(history.torn, 0, "lines that are none");
    history
}

fn run(processes: &[&str], faults: Vec<Fault>) -> Findings {
    check(&history(processes), &Faults::new(faults), LASTS)
}

fn kinds(findings: &Findings) -> Vec<What> {
    let mut kinds: Vec<_> = findings.violations.iter().map(|one| one.what).collect();
    kinds.dedup();
    kinds
}

#[track_caller]
fn assert_found(processes: &[&str], faults: Vec<Fault>, what: &[What]) {
    let findings = run(processes, faults);
    assert_eq!(kinds(&findings), what, "{:?}", findings.violations);
}

#[track_caller]
fn assert_good(processes: &[&str], faults: Vec<Fault>) -> Findings {
    let findings = run(processes, faults);
    assert_eq!(kinds(&findings), [], "{:?}", findings.violations);
    findings
}

/// Without the lines that contain this.
fn without(lines: &str, part: &str) -> String {
    let rest = lines.lines().filter(|line| !line.contains(part));
    rest.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_good_history_is_good() {
    let findings = assert_good(&[FIRST, REPLAY], Vec::new());
    assert_eq!((findings.starts, findings.answered), (1, 1));
    assert!(findings.second_starts.is_empty());
}

#[test]
fn another_answer_and_a_start_after_the_answer_are_found() {
    // Nothing explains the start, either.
    let all = [What::Differing, What::StartedAfterAnswer, What::Unexplained];
    assert_found(&[FIRST, SECOND], Vec::new(), &all);
}

#[test]
fn a_fault_excuses_a_second_start_and_not_the_loss_of_the_answer() {
    let kill = vec![killed(0, 1_500_000)];
    let both = [What::Differing, What::StartedAfterAnswer];
    assert_found(&[FIRST, SECOND], kill, &both);
}

#[test]
fn another_answer_in_a_replay_is_found() {
    let replay = REPLAY.replace("0.1/0", "7.7/0");
    assert_found(&[FIRST, &replay], Vec::new(), &[What::Differing]);
}

#[test]
fn an_answer_that_is_unknown_later_is_lost() {
    for kind in [
        "Unknown",
        "Exhausted",
        "NotStored",
        "UnknownRecord",
        "Undecodable",
    ] {
        let replay = format!("1100000 call 1 p1 0\n1101000 told 1 p1 {kind}");
        assert_found(&[FIRST, &replay], Vec::new(), &[What::Lost]);
        let before = format!("1000500 call 1 p1 0\n1101000 told 1 p1 {kind}");
        assert_good(&[FIRST, &before], Vec::new());
    }
    let unavailable = "1100000 call 1 p1 0\n1101000 told 1 p1 StoreUnavailable";
    assert_good(&[FIRST, unavailable], Vec::new());
}

#[test]
fn a_second_start_needs_a_named_explanation() {
    let unanswered = without(&without(FIRST, "told"), "end");
    let start = |end: &str| format!("{unanswered}\n{end}");
    assert_found(&[&unanswered, SECOND], Vec::new(), &[What::Unexplained]);
    let named = |end: &str, faults: Vec<Fault>| {
        let findings = assert_good(&[&start(end), SECOND], faults);
        let names: Vec<_> = findings.second_starts.into_iter().collect();
        assert_eq!(names.len(), 1);
        names[0].0.clone()
    };
    assert_eq!(named("1500000 end 1 p1 down", Vec::new()), "system error");
    assert_eq!(named("1500000 end 1 p1 panic", Vec::new()), "panic");
    assert_eq!(named("1500000 end 1 p1 dropped", Vec::new()), "dropped");
    assert_eq!(named("", vec![killed(0, 1_500_000)]), "killed");
    let pause = |from, to| vec![fault("pause", Target::Seat(0), from, to)];
    assert_eq!(named("", pause(1_500_000, 2_900_000)), "pause");
    let server = vec![fault("server-kill", Target::Store, 1_500_000, 2_900_000)];
    assert_eq!(named("", server), "server-kill");
    let unexplained = |end: &str, faults: Vec<Fault>| {
        assert_found(&[&start(end), SECOND], faults, &[What::Unexplained]);
    };
    // It comes after the second start.
    unexplained("3500000 end 1 p1 down", Vec::new());
    unexplained("", vec![killed(0, 3_500_000)]);
    // Another process's, one that is too short, one that is over for long, one that was before.
    unexplained("", vec![killed(1, 1_500_000)]);
    unexplained(
        "",
        vec![fault("pause", Target::Seat(2), 1_500_000, 2_900_000)],
    );
    unexplained("", pause(2_000_000, 2_400_000));
    unexplained("", vec![fault("pause", Target::Seat(0), 0, 900_000)]);
    // An error of class unknown gives nothing back.
    unexplained("1500000 end 1 p1 unknown", Vec::new());
}

#[test]
fn short_faults_that_follow_each_other_are_one_outage() {
    let unanswered = without(&without(FIRST, "told"), "end");
    let faults = vec![
        fault("cut", Target::Seat(0), 1_800_000, 1_800_000),
        fault("black-hole", Target::Seat(0), 2_000_000, 2_200_000),
        fault("server-pause", Target::Store, 2_300_000, 2_500_000),
    ];
    let findings = assert_good(&[&unanswered, SECOND], faults);
    assert_eq!(findings.second_starts.len(), 1);
}

#[test]
fn an_outage_explains_though_another_one_was_over_before() {
    let unanswered = without(&without(FIRST, "told"), "end");
    let [before, now] = [(0, 600_000), (2_200_000, 2_900_000)];
    let pause = |(from, to)| fault("pause", Target::Seat(0), from, to);
    assert_good(&[&unanswered, SECOND], vec![pause(before), pause(now)]);
    assert_found(
        &[&unanswered, SECOND],
        vec![pause(before)],
        &[What::Unexplained],
    );
}

#[test]
fn a_process_that_was_paused_between_its_claim_and_its_body_starts_late() {
    let late = "\
1000000 call 9 p1 0
3000900 start 9 p1 1 digest
3000950 end 9 p1 ok 1.9/0
3004000 told 9 p1 ok 0.1/0";
    let first = FIRST.replace("100", "250");
    let pause = vec![fault("pause", Target::Seat(1), 1_200_000, 3_000_500)];
    let findings = assert_good(&[&first, late], pause);
    let names: Vec<_> = findings.second_starts.keys().map(String::as_str).collect();
    assert_eq!(names, ["late: pause"]);
    assert_found(&[&first, late], Vec::new(), &[What::Unexplained]);
}

/// Its transaction ends with its connection, however short the outage, and another process claims the key.
#[test]
fn a_transaction_whose_connection_was_cut_starts_its_body_late() {
    let first = without(&FIRST.replace("p1", "b1"), "fence");
    let late = "\
990000 call 9 b1 0
1001800 start 9 b1 1 digest
1100000 end 9 b1 down
1101000 told 9 b1 down";
    let cut = vec![fault("cut", Target::Seat(1), 995_000, 996_000)];
    let findings = assert_good(&[&first, late], cut.clone());
    let names: Vec<_> = findings.second_starts.keys().map(String::as_str).collect();
    assert_eq!(names, ["late: cut"]);
    assert_found(&[&first, late], Vec::new(), &[What::Unexplained]);
    // One that was committed had its connection.
    let committed = late.replace("down", "ok 1.9/0");
    let findings = run(&[&first, &committed], cut);
    assert!(kinds(&findings).contains(&What::Unexplained));
}

#[test]
fn fences_grow() {
    let down = FIRST.replace("ok 0.1/0", "down");
    let low = SECOND.replace("p1 200", "p1 99");
    assert_found(&[&down, &low], Vec::new(), &[What::Fence]);
    let same = SECOND.replace("p1 200", "p1 100");
    assert_found(&[&down, &same], Vec::new(), &[What::Fence]);
    assert_good(&[&down, SECOND], Vec::new());
}

#[test]
fn one_attempt_is_one_start_in_every_case() {
    let first = without(FIRST, "told")
        .replace("p1", "o1")
        .replace("ok 0.1/0", "down");
    let second = SECOND.replace("p1", "o1");
    assert_found(
        &[&first, &second],
        vec![killed(0, 1_500_000)],
        &[What::Twice],
    );
}

/// The first caller receives its answer at 2.2 s, and its process is cut off from the store all the time.
fn unstored(told: u64) -> String {
    without(FIRST, "told").replace("1002000 end", &format!("{} end", told - 100_000))
        + &format!("\n{told} told 1 p1 ok 0.1/0")
}

#[test]
fn a_success_returned_within_its_lease_in_an_outage_may_be_unstored() {
    let hole = |to| vec![fault("black-hole", Target::Seat(0), 1_500_000, to)];
    let findings = assert_good(&[&unstored(2_200_000), SECOND], hole(4_000_000));
    // Another answer, and a start after it.
    assert_eq!(findings.unstored, 2);
    // Without the outage it is lost; received later than its lease, it is named as such.
    let lost = [What::Differing, What::StartedAfterAnswer, What::Unexplained];
    assert_found(&[&unstored(2_200_000), SECOND], Vec::new(), &lost);
    let late = unstored(2_950_000);
    assert_found(&[&late, SECOND], hole(4_000_000), &[What::LateSuccess]);
    // Another process has seen it: it was stored.
    let seen = "2300000 call 3 p1 0\n2301000 told 3 p1 ok 0.1/0";
    let all = [What::Differing, What::StartedAfterAnswer];
    assert_found(&[&unstored(2_200_000), SECOND, seen], hole(4_000_000), &all);
    // Stored in the end, it is the one answer; until then a caller may be refused because no attempt is left.
    let once = |lines: &str| lines.replace("p1", "o1");
    let replay = once("5000000 call 3 p1 0\n5001000 told 3 p1 ok 0.1/0");
    let exhausted = |begun| format!("{begun}000 call 4 o1 0\n4900000 told 4 o1 Exhausted");
    let first = once(&unstored(2_200_000));
    let findings = assert_good(&[&first, &replay, &exhausted(2_500)], hole(4_000_000));
    assert_eq!(findings.unstored, 1);
    let later = replay.replace("500", "230");
    assert_found(
        &[&first, &later, &exhausted(2_500)],
        hole(4_000_000),
        &[What::Lost],
    );
}

#[test]
fn no_outage_excuses_a_commit_that_was_none() {
    let [first, second] = [&*unstored(2_200_000), SECOND].map(|lines| lines.replace("p1", "b1"));
    let [first, second] = [first, second].map(|lines| without(&lines, "fence"));
    let hole = vec![fault("black-hole", Target::Seat(0), 1_500_000, 4_000_000)];
    let all = [What::Differing, What::StartedAfterAnswer, What::Unexplained];
    assert_found(&[&first, &second], hole, &all);
}

#[test]
fn a_reset_makes_the_key_new() {
    let [first, second] = [FIRST, SECOND].map(|lines| lines.replace("p1", "s1"));
    let reset = "2000000 reset 5 s1 begin\n2001000 reset 5 s1 done";
    let findings = assert_good(&[&first, &second, reset], Vec::new());
    assert_eq!(findings.second_starts["reset"], 1);
    let failed = reset.replace("done", "failed");
    let findings = assert_good(&[&first, &second, &failed], Vec::new());
    assert_eq!(findings.second_starts["reset told as failed"], 1);
    let later = "3500000 reset 5 s1 begin\n3501000 reset 5 s1 done";
    let all = [What::Differing, What::StartedAfterAnswer, What::Unexplained];
    let only_later = run(&[&first, &second, later], Vec::new());
    assert!(
        all[1..]
            .iter()
            .all(|what| kinds(&only_later).contains(what))
    );
}

#[test]
fn an_old_answer_after_a_new_one_is_found() {
    let [first, second] = [FIRST, SECOND].map(|lines| lines.replace("p1", "s1"));
    let reset = "2000000 reset 5 s1 begin\n2001000 reset 5 s1 done";
    let stale = "3500000 call 7 s1 0\n3501000 told 7 s1 ok 0.1/0";
    assert_found(&[&first, &second, reset, stale], Vec::new(), &[What::Stale]);
    // It began before a caller received the new one.
    let early = stale.replace("3500000", "3002500");
    assert_good(&[&first, &second, reset, &early], Vec::new());
}

#[test]
fn an_old_answer_to_a_call_from_before_the_reset_is_good() {
    let [first, second] = [FIRST, SECOND].map(|lines| lines.replace("p1", "s1"));
    let reset = "2000000 reset 5 s1 begin\n2001000 reset 5 s1 done";
    let again = "4500000 call 8 s1 0\n4501000 told 8 s1 ok 1.9/0";
    // A follower whose reply was on its way, or the owner, that stood still.
    let follower = "1999000 call 7 s1 0\n4000000 told 7 s1 ok 0.1/0";
    assert_good(&[&first, &second, reset, follower, again], Vec::new());
    let owner = first.replace("1003000 told", "4000000 told");
    assert_good(&[&owner, &second, reset, again], Vec::new());
    // It began after a caller received the new one.
    let late = follower.replace("1999000", "3500000");
    assert_found(
        &[&first, &second, reset, &late, again],
        Vec::new(),
        &[What::Stale],
    );
}

#[test]
fn unknown_stays_unknown_until_it_is_resolved() {
    let [first, second] = [FIRST, SECOND].map(|lines| lines.replace("p1", "u1"));
    let unknown = first.replace("ok 0.1/0", "unknown");
    let both = [What::Unexplained, What::StartedAfterUnknown];
    assert_found(&[&unknown, &second], Vec::new(), &both);
    let resolved = "2000000 resolve 5 u1 begin 2.5/0\n2001000 resolve 5 u1 done 2.5/0";
    let replay = "3000000 call 9 u1 0\n3003000 told 9 u1 ok 2.5/0";
    assert_good(&[&unknown, replay, resolved], Vec::new());
    let other = replay.replace("2.5/0", "8.8/0");
    assert_found(
        &[&unknown, &other, resolved],
        Vec::new(),
        &[What::Differing],
    );
}

#[test]
fn an_answer_to_another_request_is_found() {
    let replay = REPLAY.replace("call 1 p1 0", "call 1 p1 1");
    assert_found(&[FIRST, &replay], Vec::new(), &[What::Payload]);
    let mismatch = "1100000 call 1 p1 0\n1101000 told 1 p1 Mismatch";
    let both = [What::Lost, What::Payload];
    assert_found(&[FIRST, mismatch], Vec::new(), &both);
}

#[test]
fn a_call_of_an_orderly_process_that_never_ended_is_found() {
    let open = "1100000 call 1 p1 0";
    assert_good(&[FIRST, open], Vec::new());
    let stopped = format!("{open}\n9000000 stopped 0 - in order");
    assert_found(&[FIRST, &stopped], Vec::new(), &[What::NeverEnded]);
}

#[test]
fn a_failover_that_may_forget_is_counted() {
    let faults = Faults::new(vec![fault(
        "failover-asked",
        Target::Store,
        1_500_000,
        2_500_000,
    )]);
    let findings = check(&history(&[FIRST, SECOND]), &faults, FORGETS);
    assert_eq!(kinds(&findings), []);
    // The answer, the start, and where the start has an outage to explain it, not that.
    assert_eq!(findings.forgotten, 2);
    let findings = check(&history(&[FIRST, SECOND]), &Faults::default(), FORGETS);
    assert!(kinds(&findings).contains(&What::Differing));
}

#[test]
fn the_ledger_has_one_row_of_each_answer() {
    let [first, down] = [FIRST, SECOND].map(|lines| without(&lines.replace("p1", "b1"), "fence"));
    let down = down.replace("b1", "b2").replace("ok 1.9/0", "down");
    let history = history(&[&first, &down]);
    let check = |rows: &[(&str, &str)]| {
        let mut ledger = crate::books::Ledger::default();
        for (key, answer) in rows {
            ledger.add(key, answer);
        }
        let mut findings = Findings::default();
        check_ledger(&history, &ledger, &mut findings);
        findings.violations.len()
    };
    assert_eq!(check(&[("b1", "0.1/0")]), 0);
    // Its commit may have been done without its caller having received it.
    assert_eq!(check(&[("b1", "0.1/0"), ("b2", "1.9/0")]), 0);
    assert_eq!(check(&[]), 1);
    assert_eq!(check(&[("b1", "7.7/0")]), 1);
    assert_eq!(check(&[("b1", "0.1/0"), ("b1", "0.1/0")]), 1);
    assert_eq!(
        check(&[("b1", "0.1/0"), ("b2", "1.9/0"), ("b2", "1.9/0")]),
        1
    );
}

#[test]
fn a_second_body_in_a_transaction_needs_a_first_that_was_not_committed() {
    let [first, second] = [FIRST, SECOND].map(|lines| without(&lines.replace("p1", "b1"), "fence"));
    let rolled_back = first.replace("told 1 b1 ok 0.1/0", "told 1 b1 down");
    let findings = assert_good(&[&rolled_back, &second], Vec::new());
    assert_eq!(findings.second_starts["rolled back"], 1);
    let all = [What::Differing, What::StartedAfterAnswer, What::Unexplained];
    assert_found(&[&first, &second], Vec::new(), &all);
    // The claim of the second is older, and its transaction is gone; it learns of that at the end.
    let late = second
        .replace("3000000 call", "1000500 call")
        .replace("ok 1.9/0", "down");
    let pause = vec![fault("pause", Target::Seat(1), 1_000_700, 3_000_500)];
    let findings = assert_good(&[&first, &late], pause);
    assert_eq!(findings.second_starts["late: pause"], 1);
    assert_found(&[&first, &late], Vec::new(), &[What::Unexplained]);
}

/// A body that fails, one that fails again, and one that succeeds.
const TWO_FAIL: &str = "\
1000000 call 1 p1 0
1001000 start 1 p1 1 digest
1001500 fence 1 p1 100
1002000 end 1 p1 down
1003000 told 1 p1 down
1100000 call 2 p1 0
1101000 start 2 p1 1 digest
1101500 fence 2 p1 150
1102000 end 2 p1 down
1103000 told 2 p1 down
1200000 call 3 p1 0
1201000 start 3 p1 1 digest
1201500 fence 3 p1 200
1202000 end 3 p1 ok 0.3/0
1203000 told 3 p1 ok 0.3/0";

#[test]
fn a_record_remembers_each_end_as_it_was() {
    for (recorded, found) in [
        ("100:system-error 150:system-error 200:value", &[][..]),
        // A release that did not arrive.
        ("100:lapsed 150:system-error 200:value", &[]),
        ("150:system-error 200:value", &[]),
        ("100:system-error 150:panicked 200:value", &[What::Recorded]),
        ("100:system-error 200:value", &[What::Recorded]),
        ("100:value 150:system-error 200:value", &[What::Recorded]),
    ] {
        let audit = format!("9000000 recorded 0 p1 {recorded}");
        assert_found(&[TWO_FAIL, &audit], Vec::new(), found);
    }
}
