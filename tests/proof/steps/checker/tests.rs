//! The checker finds each kind of violation, each in a history that is otherwise good.

use super::*;
fn rules(max_attempts: u16) -> Rules {
    Rules {
        max_attempts,
        ends: vec!["Value"],
        unknown: &[Ending::Unknown],
        once: &[1],
    }
}

/// Events at these seconds of both clocks.
fn history(events: &[(u64, What)]) -> Vec<Event> {
    let event = |(at, what): &(u64, What)| Event {
        at: Duration::from_secs(*at),
        store: Duration::from_secs(*at),
        what: what.clone(),
    };
    events.iter().map(event).collect()
}

fn called(call: u32) -> What {
    What::Called { call, far: false }
}

/// A claim that lasts until then; the owner is the fence.
fn granted(fence: u32, until: u64) -> What {
    What::Granted {
        owner: fence,
        fence: fence.into(),
        until: Duration::from_secs(until),
        reconciling: false,
    }
}

fn riddle(fence: u32) -> What {
    What::Granted {
        owner: fence,
        fence: fence.into(),
        until: Duration::from_secs(30),
        reconciling: true,
    }
}

fn start(call: u32, fence: u64) -> What {
    let attempt = u16::try_from(call).unwrap();
    What::Start {
        call,
        fence,
        attempt,
    }
}

fn end(call: u32, how: Ending) -> What {
    What::End { call, how }
}

fn returned(call: u32, said: Said) -> What {
    What::Returned { call, said }
}

fn refused(call: u32, kind: &str) -> What {
    returned(call, Said::Refused(kind.to_owned()))
}

const VALUE: What = What::Stored(OutcomeKind::Value);
const UNKNOWN: What = What::Stored(OutcomeKind::Unknown);
const LEFT: What = What::Left(Some(OutcomeKind::Value));

/// A history that ends as it should.
fn ending(events: Vec<(u64, What)>) -> Vec<Event> {
    let at = events.last().map_or(0, |(at, _)| *at);
    let idle = |far| What::Idle { far, idle: true };
    let rest = [LEFT, idle(false), idle(true), What::Gone].map(|what| (at, what));
    history(&events.into_iter().chain(rest).collect::<Vec<_>>())
}

/// A first call, and the events after it.
fn after_a_first_call(more: Vec<(u64, What)>) -> Vec<Event> {
    let first = vec![
        (0, called(1)),
        (0, granted(1, 30)),
        (0, start(1, 1)),
        (0, end(1, Ending::Value)),
        (0, VALUE),
        (0, returned(1, Said::Value(1))),
    ];
    ending(first.into_iter().chain(more).collect())
}

/// A call with an unknown outcome, and the events after it.
fn after_an_unknown_call(more: Vec<(u64, What)>) -> Vec<Event> {
    let first = vec![
        (0, called(1)),
        (0, granted(1, 30)),
        (0, start(1, 1)),
        (0, end(1, Ending::Unknown)),
        (0, UNKNOWN),
        (0, returned(1, Said::Failed)),
        (0, called(2)),
    ];
    ending(first.into_iter().chain(more).collect())
}

/// A second body that runs and is answered.
fn second(fence: u32) -> Vec<(u64, What)> {
    vec![
        (0, granted(fence, 30)),
        (0, start(2, fence.into())),
        (0, end(2, Ending::Value)),
        (0, VALUE),
        (0, returned(2, Said::Value(2))),
    ]
}

/// Two bodies of which the second takes over at this second, with this fence.
fn taken_over(at: u64, fence: u32) -> Vec<Event> {
    ending(vec![
        (0, called(1)),
        (0, granted(1, 30)),
        (0, start(1, 1)),
        (at, called(2)),
        (at, granted(fence, at + 30)),
        (at, start(2, fence.into())),
        (at, end(2, Ending::Value)),
        (at, VALUE),
        (at, returned(2, Said::Value(2))),
        (at, end(1, Ending::Value)),
        (at, returned(1, Said::Value(2))),
    ])
}

#[track_caller]
fn good(events: &[Event]) {
    assert_eq!(violations(events, &rules(2)), [""; 0]);
}

#[track_caller]
fn bad(events: &[Event], why: &str) {
    assert_eq!(violations(events, &rules(2)), [why]);
}

#[test]
fn histories_that_keep_the_promises_are_good() {
    good(&after_a_first_call(vec![
        (1, called(2)),
        (1, returned(2, Said::Value(1))),
    ]));
    good(&taken_over(30, 2));
}

#[test]
fn two_bodies_within_a_lease_are_seen() {
    bad(
        &taken_over(29, 2),
        "call 2 starts while the lease of call 1 lasts",
    );
}

#[test]
fn a_fence_that_does_not_grow_is_seen() {
    let mut events = taken_over(30, 2);
    for event in &mut events {
        match &mut event.what {
            What::Start { call: 1, fence, .. } | What::Granted { fence, .. } if *fence == 1 => {
                *fence = 2;
            }
            _ => {}
        }
    }
    events[4].what = granted(1, 60);
    events[5].what = start(2, 1);
    bad(&events, "call 2 starts with fence 1 after 2");
}

#[test]
fn a_body_without_a_claim_is_seen() {
    let mut events = taken_over(30, 2);
    events[4].what = riddle(2);
    let found_out = Event {
        what: What::Verdict {
            fence: 2,
            not_landed: true,
        },
        ..events[4].clone()
    };
    events.insert(5, found_out);
    bad(&events, "call 2 starts without a claim");
}

#[test]
fn a_success_reported_for_an_error_is_found() {
    let mut events = taken_over(30, 2);
    events[6].what = end(2, Ending::Business);
    events[8].what = returned(2, Said::Business(2));
    events[10].what = returned(1, Said::Business(2));
    let mut lost = violations(&events, &rules(2));
    lost.retain(|why| !why.starts_with("the last call"));
    assert_eq!(lost, ["call 1 succeeded, and got Business(2)"]);
}

#[test]
fn two_answers_are_seen() {
    let mut events = taken_over(30, 2);
    let own = Event {
        what: returned(1, Said::Value(1)),
        ..events[10].clone()
    };
    events[10] = own;
    bad(&events, "call 1 got Value(1), and call 2 Value(2)");
    // Its caller received a report that this answer is not stored.
    events.insert(
        10,
        Event {
            what: What::Unsaved { far: false },
            ..events[9].clone()
        },
    );
    good(&events);
    // A report of another process is no excuse.
    events[10].what = What::Unsaved { far: true };
    bad(&events, "call 1 got Value(1), and call 2 Value(2)");
}

#[test]
fn a_value_and_an_error_are_two_answers() {
    let replay = vec![(0, called(2)), (0, returned(2, Said::Business(1)))];
    let last = vec![(0, called(3)), (0, returned(3, Said::Value(1)))];
    let events = after_a_first_call(replay.into_iter().chain(last).collect());
    bad(&events, "call 2 got Business(1), and call 1 Value(1)");
}

#[test]
fn an_answer_out_of_nowhere_is_seen() {
    let events = ending(vec![(0, called(1)), (0, returned(1, Said::Value(7)))]);
    bad(&events, "call 1 got Value(7), and no such body ran");
}

#[test]
fn a_body_after_a_stored_answer_is_seen() {
    let mut events = after_a_first_call(vec![
        (40, called(2)),
        (40, granted(2, 70)),
        (40, start(2, 2)),
        (40, end(2, Ending::System)),
        (40, returned(2, Said::Failed)),
        (40, called(3)),
        (40, returned(3, Said::Value(1))),
    ]);
    bad(&events, "call 2 starts after an answer was stored");
    // An operator wanted it so.
    events[6].what = What::Reset;
    events.insert(
        7,
        Event {
            what: called(2),
            ..events[6].clone()
        },
    );
    good(&events);
}

#[test]
fn an_answer_that_is_lost_is_seen() {
    for left in [None, Some(OutcomeKind::Unknown)] {
        let mut events = after_a_first_call(Vec::new());
        events[6].what = What::Left(left);
        bad(
            &events,
            &format!("an answer was given, and what is left is {:?}", Some(left)),
        );
    }
}

#[test]
fn too_many_attempts_are_seen() {
    let mut events = taken_over(30, 2);
    let third = |attempt| What::Start {
        call: 2,
        fence: 2,
        attempt,
    };
    events[5].what = third(3);
    bad(&events, "call 2 starts as attempt 3 of 2, start 2");

    // A released attempt is none, but where there is only one.
    events[5].what = third(1);
    good(&events);
    assert_eq!(
        violations(&events, &rules(1)),
        ["call 2 starts as attempt 1 of 1, start 2"]
    );
}

#[test]
fn a_body_after_an_unknown_outcome_is_seen() {
    let why = "fence 2 is granted, and nobody knows what happened";
    let mut events = after_an_unknown_call(second(2));
    bad(&events, why);
    // Also where it was never stored.
    events.remove(4);
    bad(&events, why);

    let verdict = |fence, not_landed| (0, What::Verdict { fence, not_landed });
    let found_out = |found: Vec<(u64, What)>| {
        let mut grant = second(3);
        // The owner that reconciled is the one that runs.
        grant[0].1 = What::Granted {
            owner: 2,
            fence: 3,
            until: LEASE,
            reconciling: false,
        };
        after_an_unknown_call(found.into_iter().chain(grant).collect())
    };
    good(&found_out(vec![(0, riddle(2)), verdict(2, true)]));
    let why = "fence 3 is granted, and nobody knows what happened";
    bad(&found_out(vec![(0, riddle(2)), verdict(2, false)]), why);
    // Another one reconciled, and is gone.
    bad(
        &found_out(vec![(0, riddle(1)), verdict(1, true), (0, riddle(2))]),
        why,
    );
    good(&found_out(vec![(0, What::Reset)]));
}

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn a_call_that_is_late_is_seen() {
    let wait = |at| {
        let last = [(at, called(3)), (at, returned(3, Said::Value(1)))];
        let slow = [(0, called(2)), (at, refused(2, "Running"))];
        after_a_first_call(slow.into_iter().chain(last).collect())
    };
    good(&wait(9));
    bad(&wait(10), "call 2 took 10s of 9s");

    let settle = |at| {
        ending(vec![
            (0, called(1)),
            (0, granted(1, 30)),
            (0, start(1, 1)),
            // The body itself has all the time that it wants.
            (20, end(1, Ending::Value)),
            (20, VALUE),
            (at, returned(1, Said::Value(1))),
        ])
    };
    good(&settle(27));
    bad(&settle(28), "call 1 took 8s of 7s");
}

#[test]
fn a_call_that_never_ends_is_seen() {
    bad(
        &after_a_first_call(vec![(0, called(2))]),
        "call 2 never ended",
    );
    bad(
        &after_a_first_call(vec![(0, What::Stuck)]),
        "it does not settle",
    );
}

#[test]
fn an_engine_that_is_busy_in_the_end_is_seen() {
    let mut events = after_a_first_call(Vec::new());
    let last = events.len() - 2;
    events[last].what = What::Idle {
        far: true,
        idle: false,
    };
    bad(&events, "an engine (far: true) is not idle");
    events.remove(last);
    bad(&events, "an engine (far: true) is not idle");
}

#[test]
fn an_engine_that_is_held_in_the_end_is_seen() {
    let mut events = after_a_first_call(Vec::new());
    events.pop();
    bad(&events, "something holds an engine");
}

#[test]
fn a_last_call_that_gets_something_else_is_seen() {
    let events = after_a_first_call(vec![(0, called(2)), (0, refused(2, "Exhausted"))]);
    bad(&events, "the last call got Exhausted");
}

fn step_start(call: u32, step: u8, fence: u64) -> What {
    What::StepStart { call, step, fence }
}

fn step_effect(call: u32, step: u8) -> What {
    What::StepEffect { call, step }
}

fn step_got(call: u32, step: u8, run: u32) -> What {
    What::StepGot { call, step, run }
}

/// A step of the first call, and what its store and its body make of it.
fn first_step(step: u8) -> Vec<What> {
    vec![
        step_start(1, step, 1),
        step_effect(1, step),
        What::StepStored { step },
        step_got(1, step, 1),
    ]
}

/// A first body with these events of steps that fails, and a second one with those.
fn continued(first: Vec<What>, second: Vec<What>) -> Vec<Event> {
    let begins = vec![called(1), granted(1, 30), start(1, 1)];
    let fails = vec![
        end(1, Ending::System),
        returned(1, Said::Failed),
        called(2),
        granted(2, 30),
        start(2, 2),
    ];
    let ends = vec![end(2, Ending::Value), VALUE, returned(2, Said::Value(2))];
    let all = [begins, first, fails, second, ends].concat();
    ending(all.into_iter().map(|what| (0, what)).collect())
}

#[test]
fn a_stored_step_that_runs_again_is_seen() {
    let again = vec![step_start(2, 0, 2), step_got(2, 0, 1)];
    good(&continued(first_step(0), vec![step_got(2, 0, 1)]));
    bad(
        &continued(first_step(0), again.clone()),
        "call 2 runs step 0, which is stored",
    );
    // It was not stored when the claim was granted.
    let unstored = vec![step_start(1, 0, 1), step_effect(1, 0)];
    let run = [again, vec![What::StepStored { step: 0 }, step_got(2, 0, 1)]].concat();
    let mut late = continued(unstored, run);
    let got = late
        .iter()
        .position(|event| event.what == step_got(2, 0, 1));
    late.remove(got.unwrap());
    good(&late);
}

#[test]
fn a_stored_step_may_run_again_after_a_reset() {
    let reset = [first_step(0), vec![What::Reset, What::StepsDropped]].concat();
    let again = vec![
        step_start(2, 0, 2),
        What::StepStored { step: 0 },
        step_got(2, 0, 2),
    ];
    good(&continued(reset, again));
}

#[test]
fn a_step_with_two_effects_is_seen() {
    let interrupted = |step| vec![step_start(1, step, 1), step_effect(1, step)];
    let again = |step| {
        vec![
            step_start(2, step, 2),
            step_effect(2, step),
            What::StepStored { step },
            step_got(2, step, 2),
        ]
    };
    good(&continued(interrupted(0), again(0)));
    bad(
        &continued(interrupted(1), again(1)),
        "step 1 has its effect in call 1 and in call 2",
    );
    let dropped = [interrupted(1), vec![What::StepsDropped]].concat();
    good(&continued(dropped, again(1)));
}

#[test]
fn two_results_of_a_step_are_seen() {
    bad(
        &continued(first_step(0), vec![step_got(2, 0, 2)]),
        "call 2 gets run 2 of step 0, and call 1 run 1",
    );
}

#[test]
fn a_body_that_goes_on_behind_an_unstored_step_is_seen() {
    let mut events = first_step(0);
    events.remove(2);
    bad(
        &continued(events, Vec::new()),
        "call 1 goes on, and step 0 is not stored",
    );
}

#[test]
fn a_step_after_a_lost_lease_is_seen() {
    let lost = |far| [vec![What::LeaseLost { far }], first_step(0)].concat();
    good(&continued(lost(true), Vec::new()));
    bad(
        &continued(lost(false), Vec::new()),
        "call 1 starts step 0, and has lost its lease",
    );
}
