//! Settings at the limits of a `Duration`: refused or sensible, never a panic.

use idem_runtime::EngineBuilder;
use idem_runtime::clock::SystemClock;

use crate::prelude::*;

const ENDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_secs(u64::MAX / 2),
    Duration::MAX,
];

type Set = fn(EngineBuilder, Duration) -> EngineBuilder;

/// Each setting that takes any duration.
const SETTINGS: [(&str, Set); 4] = [
    ("max_run", EngineBuilder::max_run),
    ("claim_deadline", EngineBuilder::claim_deadline),
    ("complete_deadline", EngineBuilder::complete_deadline),
    ("on_running", |engine, time| {
        engine.on_running(OnRunning::Wait(time))
    }),
];

/// Two calls of an engine, which are answered.
async fn is_answered(fixture: Fixture, what: impl std::fmt::Debug) {
    for _ in 0..2 {
        let answer = fixture.pay().run(|_| async { Ok::<_, PayError>(1) });
        assert_eq!(answer.await, Ok(1), "{what:?}");
    }
}

#[tokio::test]
async fn deadlines_of_any_length_neither_panic_nor_lose_an_answer() {
    for time in ENDS {
        for (name, set) in SETTINGS {
            let of = || Fixture::memory().with(|engine| set(engine, time));
            is_answered(of(), (name, time)).await;
            let of_the_system = of().with(|engine| set(engine, time).clock(SystemClock));
            is_answered(of_the_system, (name, time)).await;
        }
    }
}

#[tokio::test]
async fn a_store_that_answers_later_works_with_the_longest_deadlines() {
    let fixture = Fixture::redis().await.with(|engine| {
        engine
            .clock(SystemClock)
            .max_run(Duration::MAX)
            .claim_deadline(Duration::MAX)
            .complete_deadline(Duration::MAX)
            .on_running(OnRunning::Wait(Duration::MAX))
    });
    is_answered(fixture, "the longest").await;
}

#[tokio::test]
async fn a_call_that_waits_for_ever_waits() {
    let fixture = Fixture::memory();
    fixture.clock.advance(Duration::from_secs(1));
    let held = fixture.pay().begin().await.unwrap();
    let call = fixture.pay_far().on_running(OnRunning::Wait(Duration::MAX));
    let mut waiting = tokio::spawn(call.run(|_| async { Ok::<_, PayError>(1) }));
    let pause = Duration::from_secs(2);
    for _ in 0..100 {
        wakes(&fixture, pause).await;
    }
    assert!(!waiting.is_finished());
    drop(held);
    loop {
        tokio::select! {
            biased;
            answer = &mut waiting => return assert_eq!(answer.unwrap(), Ok(1)),
            () = fixture.clock.sleeper_within(pause) => {
                fixture.clock.advance(pause);
                // A renewal that was under way may start the lease again.
                fixture.pass_in_store(pause);
            }
        }
    }
}
