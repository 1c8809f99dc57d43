//! The stored part of a result, and a later call's outcome.

use idem_runtime::on_error::By;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use idem_runtime::claim::Completion;

use crate::prelude::*;

on_every_store! {
    the_end_of_a_body_decides_what_later_calls_get, an_answer_lives_for_its_ttl,
    a_value_that_is_not_serialized_leaves_a_tombstone,
    a_classification_that_panics_leaves_the_outcome_unknown,
}

/// Two calls of each body: which runs they get, and the events.
async fn the_end_of_a_body_decides_what_later_calls_get(mut fixture: Fixture) {
    type Ends = fn(u32) -> Answer;
    let declined: Ends = |run| Err(PayError::Declined { run });
    let cases: [(&str, Ends, [u32; 2], &[&str]); 3] = [
        (
            "a success",
            receipt,
            [1; 2],
            &["claimed 1", "completed value", "replayed value"],
        ),
        (
            "an error",
            declined,
            [1; 2],
            &["claimed 1", "completed error", "replayed error"],
        ),
        (
            "a system error, whose attempt does not count",
            |_| Err(PayError::Down),
            [1, 2],
            &["claimed 1", "released", "claimed 1", "released"],
        ),
    ];
    for (name, ends, gets, told) in cases {
        let events = idem_tests::events::Events::default();
        fixture = fixture.with(|engine| engine.observer(events.clone()));
        let runs = Runs::default();
        for run in gets {
            let call = fixture.engine.operation("pay").key(name);
            let answer = call.run(|_| async { ends(runs.start()) }).await;
            assert_eq!(answer, ends(run), "{name}");
        }
        assert_eq!(events.all(), told, "{name}");
    }
    // A panic goes on to its caller.
    panicked(fixture.pay()).await;
    let answer = fixture.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 2, "the attempt that panicked counts");
        receipt(2)
    });
    assert_eq!(answer.await, receipt(2));
}

async fn an_answer_lives_for_its_ttl(fixture: Fixture) {
    let (hour, minutes) = (Duration::from_hours(1), Duration::from_mins(10));
    for (name, is_error, life) in [("a value", false, hour), ("an error", true, minutes)] {
        let runs = Runs::default();
        let pay = async |expected: u32| {
            let call = fixture.engine.operation("pay").key(name);
            let answer = |run| {
                if is_error {
                    Err(PayError::Declined { run })
                } else {
                    receipt(run)
                }
            };
            let call = call.ttl(hour).error_ttl(minutes);
            let paid = call.run(|_| async { answer(runs.start()) }).await;
            assert_eq!(paid, answer(expected), "{name}");
        };
        let minute = Duration::from_mins(1);
        pay(1).await;
        fixture.pass_in_store(life.saturating_sub(minute));
        pay(1).await;
        fixture.pass_in_store(minute);
        // After its `ttl` the key is new.
        pay(2).await;
    }
}

/// Its own caller gets the value. Every other one learns that the call was made.
async fn leaves_a_tombstone<T>(fixture: &Fixture, value: T, why: &str)
where
    T: Clone + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let pay = || fixture.engine.operation("pay").key(why);
    let first = pay().run(|_| async { Ok::<_, PayError>(value.clone()) });
    assert_eq!(first.await.as_ref(), Ok(&value));
    assert_eq!(fixture.events.count(&format!("unsaved: {why}")), 1);
    let again = pay().run(|_| async { unreachable!("it happened") as Result<T, PayError> });
    assert_eq!(again.await.unwrap_err().kind(), &ErrorKind::NotStored);

    let by_hand = || fixture.engine.operation("by hand").key(why);
    let completed = claimed(by_hand()).await.complete(value.clone()).await;
    assert!(matches!(completed, Ok(Completion::Own(own)) if own == value));
    let again = by_hand().begin().await.unwrap_err();
    assert_eq!(again.kind(), &ErrorKind::NotStored);
}

/// Serializes by panicking.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Booby;

impl Serialize for Booby {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("a bug in a `Serialize`")
    }
}

async fn a_value_that_is_not_serialized_leaves_a_tombstone(fixture: Fixture) {
    type Odd = std::collections::BTreeMap<(u8, u8), u8>;
    let odd = Odd::from([((1, 2), 3)]);
    leaves_a_tombstone(&fixture, odd, "its `Serialize` refused").await;
    let panicked = "its `Serialize` or `Deserialize` panicked";
    leaves_a_tombstone(&fixture, Booby, panicked).await;
}

async fn a_classification_that_panics_leaves_the_outcome_unknown(fixture: Fixture) {
    let call = || {
        let panics = |_: &PayError| -> Class { panic!("a bug in an `on_error`") };
        fixture.pay().on_error(By(panics))
    };
    let first = call().run(|_| async { Answer::Err(PayError::Down) });
    assert_eq!(first.await, Err(PayError::Down));
    assert_unknown(&refusal(call().run(|_| async { never() }).await));
}
