//! The checker finds each kind of violation in an otherwise good history.

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use idem_runtime::store::OutcomeKind;
use libtest_mimic::Trial;

use super::{Rules, violations};
use crate::history::{Ending, Event, Said, What};

fn number<T: FromStr<Err: Debug>>(word: &str) -> T {
    word.parse().expect("a number")
}

fn seconds(word: &str) -> Duration {
    Duration::from_secs(number(word))
}

/// An event in words. Numbers of calls, fences and steps are in the order of the fields.
fn event(words: &[&str]) -> What {
    let granted = |fence: &str, until, owner, reconciling| What::Granted {
        owner: number(owner),
        fence: number(fence),
        until: seconds(until),
        reconciling,
    };
    let outcome = |word| match word {
        "Value" => OutcomeKind::Value,
        _ => OutcomeKind::Unknown,
    };
    match *words {
        ["call", call] => What::Called {
            call: number(call),
            far: false,
        },
        ["grant", fence, "until", until] => granted(fence, until, fence, false),
        ["grant", fence, "until", until, "to", owner] => granted(fence, until, owner, false),
        ["ask", fence] => granted(fence, "30", fence, true),
        ["verdict", fence, verdict] => What::Verdict {
            fence: number(fence),
            not_landed: verdict == "nothing",
        },
        ["start", call, fence, ref attempt @ ..] => What::Start {
            call: number(call),
            fence: number(fence),
            attempt: number(attempt.last().unwrap_or(&call)),
        },
        ["end", call, how] => What::End {
            call: number(call),
            how: match how {
                "Value" => Ending::Value,
                "Business" => Ending::Business,
                "System" => Ending::System,
                _ => Ending::Unknown,
            },
        },
        ["return", call, ref said @ ..] => What::Returned {
            call: number(call),
            said: match *said {
                ["Value", run] => Said::Value(number(run)),
                ["Business", run] => Said::Business(number(run)),
                ["Failed"] => Said::Failed,
                _ => Said::Refused(said.concat()),
            },
        },
        ["store", kind] => What::Stored(outcome(kind)),
        [end @ ("ends" | "release"), owner] => What::Ends(number(owner), end == "release"),
        ["unsaved", place] => What::Unsaved {
            far: place == "far",
        },
        ["lease-lost", place] => What::LeaseLost {
            far: place == "far",
        },
        ["step-start", call, step, fence] => What::StepStart {
            call: number(call),
            step: number(step),
            fence: number(fence),
        },
        ["step-effect", call, step] => What::StepEffect {
            call: number(call),
            step: number(step),
        },
        ["step-stored", step] => What::StepStored { step: number(step) },
        ["step-got", call, step, run] => What::StepGot {
            call: number(call),
            step: number(step),
            run: number(run),
        },
        ["left", "nothing"] => What::Left(None),
        ["left", kind] => What::Left(Some(outcome(kind))),
        [idle @ ("idle" | "busy"), place] => What::Idle {
            far: place == "far",
            idle: idle == "idle",
        },
        ["gone"] => What::Gone,
        ["stuck"] => What::Stuck,
        _ => panic!("not an event: {words:?}"),
    }
}

/// Parts of the histories below, which stand for these words.
const PARTS: [(&str, &str); 11] = [
    ("FIRST", "CLAIM, end 1 Value, store Value, return 1 Value 1"),
    (
        "UNKNOWN",
        "CLAIM, end 1 Unknown, ends 1, store Unknown, return 1 Failed, call 2",
    ),
    // Of two bodies, of which the second takes over.
    ("TAKEN", "at 30, call 2, grant 2 until 60, start 2 2"),
    ("BOTH", "ANSWER, end 1 Value, return 1 Value 2"),
    // The attempts of a body that fails, and of its continuation.
    (
        "FAILS",
        "end 1 System, release 1, return 1 Failed, call 2, grant 2 until 30, start 2 2",
    ),
    (
        "STEP",
        "step-start 1 0 1, step-effect 1 0, step-stored 0, step-got 1 0 1",
    ),
    (
        "AGAIN-1",
        "step-start 2 1 2, step-effect 2 1, step-stored 1, step-got 2 1 2",
    ),
    // The owner that reconciled is also the runner.
    ("RUNS", "grant 3 until 30 to 2, start 2 3, ANSWER"),
    ("CLAIM", "call 1, grant 1 until 30, start 1 1"),
    ("ANSWER", "end 2 Value, store Value, return 2 Value 2"),
    ("END", "left Value, idle near, idle far, gone"),
];

/// The name of a history, its events, and after `=>` its violation. It ends with `END` unless it has an end. That the
/// checker finds none elsewhere, the sweep shows.
const HISTORIES: &str = "
two bodies within a lease: CLAIM, at 29, call 2, grant 2 until 59, start 2 2, BOTH
    => call 2 starts while the lease of call 1 lasts; owner 2 is granted the claim of owner 1
a fence that does not grow: call 1, grant 2 until 30, start 1 2, at 30, call 2, grant 1 until 60, start 2 1, BOTH
    => call 2 starts with fence 1 after 2
a body without a claim: CLAIM, at 30, call 2, ask 2, verdict 2 nothing, start 2 2, BOTH
    => call 2 starts without a claim

an error for a success: CLAIM, TAKEN, end 2 Business, store Value, return 2 Business 2, end 1 Value, return 1 Business 2
    => call 1 succeeded, and got Business(2); the last call got Business
two answers: CLAIM, TAKEN, ANSWER, end 1 Value, return 1 Value 1
    => call 1 got Value(1), and call 2 Value(2)
two answers, and a report of another process: CLAIM, TAKEN, ANSWER, end 1 Value, unsaved far, return 1 Value 1
    => call 1 got Value(1), and call 2 Value(2)
a value and an error: FIRST, call 2, return 2 Business 1, call 3, return 3 Value 1
    => call 2 got Business(1), and call 1 Value(1)
an answer out of nowhere: call 1, return 1 Value 7
    => call 1 got Value(7), and no such body ran

a body after a stored answer: FIRST, at 40, call 2, grant 2 until 70, start 2 2, end 2 System, return 2 Failed, \
    call 3, return 3 Value 1
    => call 2 starts after an answer was stored
an answer that is lost: FIRST, left nothing, idle near, idle far, gone
    => an answer was given, and what is left is Some(None)
an answer that is unknown in the end: FIRST, left Unknown, idle near, idle far, gone
    => an answer was given, and what is left is Some(Some(Unknown))

too many attempts: CLAIM, TAKEN 3, BOTH
    => call 2 starts as attempt 3 of 2, start 2
a released attempt of one attempt: CLAIM, TAKEN 1, BOTH
    => call 2 starts as attempt 1 of 1, start 2

a body after an unknown outcome: UNKNOWN, grant 2 until 30, start 2 2, ANSWER
    => fence 2 is granted, and the outcome is unknown
a body after an outcome that was not stored: CLAIM, end 1 Unknown, ends 1, return 1 Failed, call 2, \
    grant 2 until 30, start 2 2, ANSWER
    => fence 2 is granted, and the outcome is unknown
a hook that cannot say: UNKNOWN, ask 2, verdict 2 unknown, RUNS
    => fence 3 is granted, and the outcome is unknown
the hook of another owner found nothing: UNKNOWN, ask 1, verdict 1 nothing, ends 1, ask 2, RUNS
    => fence 3 is granted, and the outcome is unknown

a call that is late: FIRST, call 2, at 10, return 2 Running, call 3, return 3 Value 1
    => call 2 took 10s of 9s
an answer that is late: CLAIM, at 20, end 1 Value, store Value, at 28, return 1 Value 1
    => call 1 took 8s of 7s
a call that never ends: FIRST, call 2
    => call 2 never ended
a call that makes no progress: FIRST, stuck
    => it does not settle
an engine that is busy in the end: FIRST, left Value, idle near, busy far, gone
    => an engine (far: true) is not idle
an engine that is held in the end: FIRST, left Value, idle near, idle far
    => something holds an engine
a last call that gets something else: FIRST, call 2, return 2 Exhausted
    => the last call got Exhausted

a stored step that runs again: CLAIM, STEP, FAILS, step-start 2 0 2, step-got 2 0 1, ANSWER
    => call 2 runs step 0, which is stored
two effects of a step that runs once: CLAIM, step-start 1 1 1, step-effect 1 1, FAILS, AGAIN-1, ANSWER
    => step 1 has its effect in call 1 and in call 2
two results of a step: CLAIM, STEP, FAILS, step-got 2 0 2, ANSWER
    => call 2 gets run 2 of step 0, and call 1 run 1
a body that goes on behind a step that is not stored: CLAIM, step-start 1 0 1, step-effect 1 0, step-got 1 0 1, \
    FAILS, ANSWER
    => call 1 goes on, and step 0 is not stored
a step after a lost lease: CLAIM, lease-lost near, STEP, FAILS, ANSWER
    => call 1 starts step 0, and has lost its lease

a grant while an answer is on its way: CLAIM, end 1 Value, at 5, call 2, grant 2 until 35, start 2 2, ANSWER, \
    return 1 Value 2
    => owner 2 is granted the claim of owner 1
a key that is released after its answer: CLAIM, end 1 Value, unsaved near, release 1, return 1 Value 1, call 2, \
    grant 2 until 30, start 2 2, ANSWER
    => owner 1 releases the key after its body
a key that is released after an unknown outcome: CLAIM, end 1 Unknown, release 1, return 1 Failed, call 2, ask 2, \
    verdict 2 nothing, grant 3 until 30 to 2, start 2 3, ANSWER
    => owner 1 releases the key after its body
";

/// The events of a history: from `at` to `at`, at the same second of both clocks.
fn events(words: &str) -> Vec<Event> {
    let mut words = words.to_owned();
    if !words.contains("left ") {
        words.push_str(", END");
    }
    for (part, stands_for) in PARTS {
        words = words.replace(part, stands_for);
    }
    let (mut events, mut at) = (Vec::new(), Duration::ZERO);
    for words in words.split(", ") {
        match *words.split(' ').collect::<Vec<_>>() {
            ["at", second] => at = seconds(second),
            ref words => events.push(Event {
                at,
                store: at,
                what: event(words),
            }),
        }
    }
    events
}

pub(crate) fn trials() -> Vec<Trial> {
    let histories = HISTORIES.replace("\n    => ", " => ");
    let lines = histories.lines().filter(|line| !line.is_empty());
    let trial = |line: &str| {
        let (name, history) = line.split_once(": ").expect("a name, and a history");
        let (words, found) = history.split_once(" => ").unwrap_or((history, ""));
        let rules = Rules {
            max_attempts: if name.ends_with("of one attempt") {
                1
            } else {
                2
            },
            ends: vec!["Value"],
            unknown: &[Ending::Unknown],
            once: &[1],
        };
        let (name, words, found) = (
            name.replace([' ', ','], "_"),
            words.to_owned(),
            found.to_owned(),
        );
        Trial::test(format!("checker::{name}"), move || {
            assert_eq!(
                violations(&events(&words), &rules).join("; "),
                found,
                "{words}"
            );
            Ok(())
        })
    };
    lines.map(trial).collect()
}
