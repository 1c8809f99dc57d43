//! Histories made by hand: each violation is found, and each exception is one.

use super::*;

/// Groups of a line for each process, and of cases: `name: findings + further line ! fault`, second starts in brackets.
///
/// Events are those of a journal, with milliseconds, and short words for several: `open <call> <key> <fence>` begins a
/// call and its body, `ran … <answer>` also ends both, and `got <call> <key> <answer>` is a call that runs no body.
const CASES: &str = "\
0 1000 ran 1 p1 100 ok 0.1/0
- a replay: good + 1 1100 got 1 p1 ok 0.1/0
- another answer in a replay: Differing, Payload + 1 1100 got 1 p1 ok 7.7/0
- an outcome that is unknown later: Lost + 1 1100 got 1 p1 Unknown
- no attempt is left though there is an answer: Lost + 1 1100 got 1 p1 Exhausted
- the call began before the answer was told: good + 1 1002 call 1 p1 0 | 1101 told 1 p1 Exhausted
- an unavailable store says nothing of the answer: good + 1 1100 got 1 p1 StoreUnavailable
- the answer to another request: Payload + 1 1100 call 1 p1 1 | 1101 told 1 p1 ok 0.1/0
- a mismatch of none: Lost, Payload + 1 1100 got 1 p1 Mismatch
- a call of a process that was killed has no end: good + 1 1100 call 1 p1 0
- one of a process that ended in order: NeverEnded + 1 1100 call 1 p1 0 | 9000 stopped 0 - in order
- a process that ended in order: good + 1 9000 stopped 0 - in order
- a process that had work left: NeverEnded + 1 9000 stopped 0 - the engine is not idle

0 1000 ran 1 p1 100 ok 0.1/0
1 3000 ran 9 p1 200 ok 1.9/0
- a start after the answer: Differing, StartedAfterAnswer, Unexplained
- a fault does not excuse the loss: Differing, StartedAfterAnswer, (killed) ! 1500-1500 kill 0
- a failover that may forget is counted: (failover-asked), 2 forgotten ! 1500-2500 failover-asked -

0 1000 open 1 p1 100
1 3000 ran 9 p1 200 ok 1.9/0
- no explanation: Unexplained
- a body that failed: (system error) + 0 1500 end 1 p1 down
- a body that panicked: (panic) + 0 1500 end 1 p1 panic
- a body that was dropped: (dropped) + 0 1500 end 1 p1 gone
- an error of class unknown gives nothing back: Unexplained + 0 1500 end 1 p1 unknown
- a body that failed after the second start: Unexplained + 0 3500 end 1 p1 down
- its process was killed: (killed) ! 1500-1500 kill 0
- its process was killed after the second start: Unexplained ! 3500-3500 kill 0
- another process was killed: Unexplained ! 1500-1500 kill 1
- its claim lapsed in the store: (lapse) ! 1500-1500 lapse -
- claims lapsed before: Unexplained ! 900-950 lapse -
- claims lapsed afterwards: Unexplained ! 3100-3100 lapse -
- its process was paused: (pause) ! 1500-2900 pause 0
- another process was paused: Unexplained ! 1500-2900 pause 2
- its process was paused for less than half a lease: Unexplained ! 2000-2400 pause 0
- its process was paused before: Unexplained ! 0-600 pause 0
- its process was paused before and meanwhile: (pause) ! 0-600 pause 0 ! 2200-2900 pause 0
- the server was down: (server-kill) ! 1500-2900 server-kill -
- three faults are one outage: (black-hole) ! 1800-1800 cut 0 ! 2000-2200 black-hole 0 ! 2300-2500 server-pause -

0 1000 open 1 p1 100
1 1900 ran 9 p1 200 ok 1.9/0
- a killed owner has its claim for a lease: Unexplained ! 1500-1500 kill 0
- a body that was dropped as well: Unexplained + 0 1500 end 1 p1 gone

0 1000 ran 1 b1 - ok 0.1/0
1 3000 ran 9 b2 - down
2 9000 row 0 b1 0.1/0
- a row of each answer: good
- a commit whose caller did not receive it: good + 2 9000 row 0 b2 1.9/0
- another row of the answer: Ledger + 2 9000 row 0 b1 0.1/0
- another row of no answer: Ledger + 2 9000 row 0 b2 1.9/0 | 9000 row 0 b2 1.9/0

0 1000 ran 1 b1 - ok 0.1/0
- no row of an answer: Ledger
- the row of another answer: Ledger + 2 9000 row 0 b1 7.7/0

0 1000 ran 1 b1 - declined 0.1/0
- a business error writes no row: good
- and has one: Ledger + 2 9000 row 0 b1 0.1/0

0 2500 ran 1 p1 250 ok 0.1/0
1 1000 call 9 p1 0 | 3001 start 9 p1 1 d | 3002 end 9 p1 ok 1.9/0 | 3004 told 9 p1 ok 0.1/0
- paused between its claim and its body: (late: pause) ! 1200-3000 pause 1
- not paused: Unexplained

1 3000 ran 9 b1 - ok 1.9/0
2 9000 row 0 b1 1.9/0
- a transaction that was rolled back: (rolled back) + 0 1000 open 1 b1 - | 1002 end 1 b1 ok 0.1/0 | 1003 told 1 b1 down
- no outage excuses a commit: Differing, StartedAfterAnswer, Unexplained, Ledger + 0 1000 ran 1 b1 - ok 0.1/0 ! 1002-4000 cut 0

0 1000 ran 1 b1 - ok 0.1/0
1 990 call 9 b1 0 | 1002 start 9 b1 1 d
2 9000 row 0 b1 0.1/0
- a cut of an instant ends its claim: (late: cut) + 1 1100 end 9 b1 down | 1101 told 9 b1 down ! 995-996 cut 1
- no cut: Unexplained + 1 1100 end 9 b1 down | 1101 told 9 b1 down
- a commit had its connection: Differing, Unexplained, Ledger + 1 1100 end 9 b1 ok 1/0 | 1101 told 9 b1 ok 1/0 ! 995-996 cut 1

0 1000 ran 1 p1 100 down
- a lower fence: Fence, (system error) + 1 3000 ran 9 p1 99 ok 1.9/0
- the same fence: Fence, (system error) + 1 3000 ran 9 p1 100 ok 1.9/0

0 1000 open 1 o1 100 | 1002 end 1 o1 down
1 3000 ran 9 o1 200 ok 1.9/0
- one attempt is one start, whatever happened: Twice, (system error) ! 1500-1500 kill 0

0 1000 open 1 p1 100 | 2100 end 1 p1 ok 0.1/0
1 3000 ran 9 p1 200 ok 1.9/0
- told within its lease: (black-hole), 2 unstored + 0 2200 told 1 p1 ok 0.1/0 ! 1500-4000 black-hole 0
- told after its lease: LateSuccess, (black-hole) + 0 2950 told 1 p1 ok 0.1/0 ! 1500-4000 black-hole 0

0 1000 open 1 p1 100 | 2100 end 1 p1 ok 0.1/0 | 2200 told 1 p1 ok 0.1/0
1 3000 ran 9 p1 200 ok 1.9/0
2 2300 got 3 p1 ok 0.1/0
- told to another, so that it was stored: Differing, StartedAfterAnswer, (black-hole) ! 1500-4000 black-hole 0

0 1000 open 1 o1 100 | 2100 end 1 o1 ok 0.1/0 | 2200 told 1 o1 ok 0.1/0
2 2500 call 4 o1 0 | 4900 told 4 o1 Exhausted
- a caller may be refused until it is stored: 1 unstored + 1 5000 got 3 o1 ok 0.1/0 ! 1500-4000 black-hole 0
- and not afterwards: Lost + 1 2300 got 3 o1 ok 0.1/0 ! 1500-4000 black-hole 0

0 1000 ran 1 s1 100 ok 0.1/0
1 3000 ran 9 s1 200 ok 1.9/0
- a reset makes the key new: (reset) + 2 2000 reset 5 s1 begin | 2001 reset 5 s1 done
- one that failed may have landed: (reset told as failed) + 2 2000 reset 5 s1 begin | 2001 reset 5 s1 failed
- one came later: Differing, StartedAfterAnswer, Unexplained + 2 3500 reset 5 s1 begin | 3501 reset 5 s1 done

0 1000 open 1 s1 100 | 1002 end 1 s1 ok 0.1/0
1 3000 ran 9 s1 200 ok 1.9/0
2 2000 reset 5 s1 begin | 2001 reset 5 s1 done
4 4500 got 8 s1 ok 1.9/0
- an old answer after the new one: Stale, (reset) + 0 1003 told 1 s1 ok 0.1/0 + 3 3500 got 7 s1 ok 0.1/0
- its call began before the reset: (reset) + 0 1003 told 1 s1 ok 0.1/0 + 3 1999 call 7 s1 0 | 4000 told 7 s1 ok 0.1/0
- its owner stood still: (reset) + 0 4000 told 1 s1 ok 0.1/0

0 1000 ran 1 u1 100 unknown
- another body starts: Unexplained, StartedAfterUnknown + 1 3000 ran 9 u1 200 ok 1.9/0
- the attempt was overtaken: (lapse) + 1 3000 ran 9 u1 200 ok 1.9/0 ! 1001-1001 lapse -

0 1000 open 1 u1 100 | 1002 end 1 u1 gone
1 3000 ran 9 u1 200 ok 1.9/0
- a dropped body whose outcome is unknown: Unexplained

0 1000 open 1 u1 100
1 1500 got 2 u1 Unknown | 3000 ran 9 u1 200 ok 1.9/0
- a caller was refused as unknown: StartedAfterUnknown, (killed) ! 1200-1200 kill 0
- and a reset followed: (reset) + 2 2000 reset 5 u1 begin | 2001 reset 5 u1 done

0 1000 ran 1 u1 100 unknown
2 2000 resolve 5 u1 begin 2.5/0 | 2001 resolve 5 u1 done 2.5/0
- a resolution is the answer: good + 1 3000 got 9 u1 ok 2.5/0
- another answer than that of the resolution: Differing, Payload + 1 3000 got 9 u1 ok 8.8/0

1 1000 got 1 p1 ok 7.7/0
- an answer that no body of the key gave: Payload
- that of a body of which no end is known: good + 0 900 open 1 p1 100
- a body that ended otherwise: Payload + 0 900 open 1 p1 100 | 950 end 1 p1 down

1 1000 got 1 r1 ok 7.7/0
- that of an effect that a hook found: good + 0 900 open 1 r1 100 | 950 end 1 r1 unknown

0 1000 ran 1 p1 100 down | 1100 ran 2 p1 150 down | 1200 ran 3 p1 200 ok 0.3/0
- a record has each end: (system error) + 1 9000 recorded 0 p1 100:system-error 150:system-error 200:value
- a lost release lapses: (system error) + 1 9000 recorded 0 p1 100:lapsed 150:system-error 200:value
- the first is forgotten: (system error) + 1 9000 recorded 0 p1 150:system-error 200:value
- another end: Recorded, (system error) + 1 9000 recorded 0 p1 100:system-error 150:panicked 200:value
- one is left out: Recorded, (system error) + 1 9000 recorded 0 p1 100:system-error 200:value";

fn lines(event: &str) -> String {
    let (time, event) = event.split_once(' ').expect("a time");
    let time: u64 = time.parse().expect("milliseconds");
    let (word, rest) = event.split_once(' ').expect("a word");
    let at = |after: u64, words: String| format!("{}000 {words}\n", time + after);
    let mut words = rest.splitn(4, ' ');
    let mut next = || words.next().unwrap_or_default();
    let (id, key) = (next(), next());
    let call = at(0, format!("call {id} {key} 0"));
    let body = |fence| {
        let fence = match fence {
            "-" => String::new(),
            fence => at(1, format!("fence {id} {key} {fence}")),
        };
        format!("{call}{}{fence}", at(1, format!("start {id} {key} 1 d")))
    };
    match word {
        "open" => body(next()),
        "ran" => {
            let (body, answer) = (body(next()), next());
            let [end, told] = [(2, "end"), (3, "told")]
                .map(|(after, word)| at(after, format!("{word} {id} {key} {answer}")));
            body + &end + &told
        }
        "got" => format!("{call}{}", at(1, format!("told {rest}"))),
        _ => at(0, event.to_owned()),
    }
}

/// `<from>-<to> <kind> <seat, or - for the store>`
fn fault(line: &str) -> Fault {
    let words: Vec<_> = line.split(' ').collect();
    let [times, kind, seat] = words[..] else {
        panic!("not a fault: {line}");
    };
    let (from, to) = times.split_once('-').expect("two times");
    let [from, to] = [from, to].map(|time| time.parse::<u64>().expect("a time") * 1_000);
    let seat: Option<u32> = seat.parse().ok();
    Fault {
        kind: kind.to_owned(),
        target: seat.map_or(Target::Store, Target::Seat),
        from,
        to,
        killed: seat.filter(|_| kind == "kill"),
    }
}

/// The journals of these processes, of which one may have several lines.
fn history(processes: &[&str]) -> History {
    let (mut history, mut journals) = (History::default(), BTreeMap::<u32, String>::new());
    for line in processes {
        let (process, events) = line.split_once(' ').expect("a process");
        let journal = journals
            .entry(process.parse().expect("a number"))
            .or_default();
        journal.extend(events.split(" | ").map(lines));
    }
    for (process, lines) in &journals {
        lines.lines().for_each(|line| history.line(*process, line));
    }
    history
}

fn summary(findings: &Findings) -> String {
    let kinds = findings
        .violations
        .iter()
        .map(|one| format!("{:?}", one.what));
    let mut words: Vec<_> = kinds.collect();
    words.dedup();
    let counts = [
        (findings.unstored, "unstored"),
        (findings.forgotten, "forgotten"),
    ];
    let starts = findings.second_starts.keys().map(|why| format!("({why})"));
    words.extend(starts);
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    words.extend(counts.map(|(count, what)| format!("{count} {what}")));
    if words.is_empty() {
        "good".to_owned()
    } else {
        words.join(", ")
    }
}

#[test]
fn each_history_has_its_findings() {
    let promise = Promise {
        lease: 1_000_000,
        forgets: &["failover-asked"],
    };
    let cases = CASES.split("\n\n").flat_map(|group| {
        let (lines, cases): (Vec<_>, Vec<_>) =
            group.lines().partition(|line| !line.starts_with('-'));
        cases.into_iter().map(move |case| (lines.clone(), case))
    });
    for (lines, case) in cases {
        let mut parts = case.split(" ! ");
        let (head, faults) = (
            parts.next().expect("a head"),
            Faults::new(parts.clone().map(fault).collect()),
        );
        let mut parts = head.split(" + ");
        let expected = parts
            .next()
            .and_then(|head| head.split_once(": "))
            .expect("findings")
            .1;
        let history = history(&lines.into_iter().chain(parts).collect::<Vec<_>>());
        let findings = check(&history, &faults, promise);
        assert_eq!(
            summary(&findings),
            expected,
            "{case}: {:?}",
            findings.violations
        );
    }
}
