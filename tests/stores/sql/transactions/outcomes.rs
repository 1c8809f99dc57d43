//! Policies of a call in a transaction, and its callers' answers.

use idem_runtime::{FOREVER, OnDuplicate, step_in_tx};
use serde::{Deserialize, Serialize};

use super::prelude::*;

on_each_database!(the_lives_of_a_record, the_first_caller_gets_what_is_stored,);

/// The lives of value and kept error, and a cool-down's end.
async fn the_lives_of_a_record<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let forever = || fixture.call("forever").ttl(FOREVER).fingerprint("a book");
    assert_eq!(fixture.committed(forever()).await, Ok(1));

    let short = || fixture.order().error_ttl(Duration::from_mins(10));
    let sold_out = OrderError::SoldOut { run: 1 };
    let mut tx = fixture.begin().await;
    let answer = failed(&fixture, short(), &mut tx, sold_out.clone()).await;
    assert_eq!(answer, Err(sold_out.clone()));
    D::commit(tx).await.done();
    fixture.age(Duration::from_mins(9)).await;
    assert_eq!(fixture.replayed(short()).await, Err(sold_out));
    fixture.age(Duration::from_mins(1)).await;
    assert_eq!(fixture.committed(short()).await, Ok(3));
    fixture.age(Duration::from_hours(23)).await;
    let cool_down = short().on_duplicate(OnDuplicate::Reject);
    let duplicate = refusal(fixture.replayed(cool_down).await);
    let left = duplicate.retry_after().expect("the life of its answer");
    assert!(matches!(duplicate.kind(), ErrorKind::Duplicate { .. }));
    fixture.age(left).await;
    assert_eq!(fixture.committed(short()).await, Ok(4));

    let quote = || fixture.call("quote");
    let chosen = |_: &u32| Duration::from_mins(10);
    for run in [5, 6] {
        assert_eq!(fixture.committed(quote().ttl_of(chosen)).await, Ok(run));
        fixture.age(Duration::from_mins(9)).await;
        assert_eq!(fixture.replayed(quote()).await, Ok(run));
        fixture.age(Duration::from_mins(1)).await;
    }

    fixture.age(Duration::from_hours(24 * 365 * 50)).await;
    assert_eq!(fixture.replayed(forever()).await, Ok(1));
    let other = refusal(fixture.replayed(forever().fingerprint("a pen")).await);
    assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
}

/// Its trace is not stored; without its number it is not read back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Traced {
    #[serde(skip_serializing_if = "is_zero")]
    number: u32,
    #[serde(skip)]
    trace: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A call and a step that are committed with the caller's rows. They settle unlike others.
async fn the_first_caller_gets_what_is_stored<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for number in [0, 1] {
        let traced = Traced { number, trace: 7 };
        // The second one has no body.
        let stored = if number == 0 {
            [Ok(traced), Err(ErrorKind::NotStored)]
        } else {
            [0; 2].map(|trace| Ok(Traced { trace, ..traced }))
        };
        for answer in stored {
            let mut tx = fixture.begin().await;
            let call = fixture.call(&format!("call-{number}")).in_tx(&mut tx);
            let called = call.run(async |_: &mut D::Tx, _| Ok::<_, OrderError>(traced));
            let called = called.await;
            D::commit(tx).await.done();
            assert_eq!(called.map_err(kind), answer, "of a call");

            // The body fails after its step, which the next attempt does not repeat.
            let mut stepped = None;
            let call = fixture.call(&format!("steps-{number}")).run(|_| async {
                let mut tx = fixture.begin().await;
                let part = async |_: &mut D::Tx, _| Ok::<_, OrderError>(traced);
                stepped = Some(step_in_tx("part", &mut tx, part).await.map_err(kind));
                D::commit(tx).await.done();
                Err::<(), _>(OrderError::Down)
            });
            assert_eq!(call.await, Err(OrderError::Down));
            assert_eq!(stepped, Some(answer), "of a step");
        }
    }
}

fn kind(error: OrderError) -> ErrorKind {
    refusal::<()>(Err(error)).kind().clone()
}
