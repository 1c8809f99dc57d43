//! A store that does not answer before the body runs: nothing runs.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::store::{ReadReply, Store};
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt};
use idem_tests::world::World;

on_every_store![
    a_silent_store_fails_the_call_at_its_deadline,
    a_failing_store_is_asked_again_until_the_deadline,
    a_store_that_refuses_is_not_asked_again,
    a_claim_whose_reply_is_lost_does_not_block_itself,
    a_claim_that_was_given_up_is_given_back,
    a_caller_that_vanishes_while_claiming_gives_the_key_back,
];

fn never() -> Result<Receipt, PayError> {
    unreachable!("the store did not grant the claim")
}

async fn a_silent_store_fails_the_call_at_its_deadline(world: World) {
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    let call = tokio::spawn(world.pay().run(|_| async { never() }));
    world.clock.sleeper_within(Duration::from_secs(2)).await;
    world.clock.advance(Duration::from_millis(1_999));
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    world.clock.advance(Duration::from_millis(1));
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    let PayError::Idem(error) = error else {
        unreachable!()
    };
    assert!(error.is_retryable());
    assert!(
        error.to_string().contains("no reply to a claim within 2s"),
        "{error}"
    );
}

async fn a_failing_store_is_asked_again_until_the_deadline(world: World) {
    world.store.fail(Operation::Claim, [Fault::Lost; 1_000]);
    let call = tokio::spawn(world.pay().run(|_| async { never() }));
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(2) {
        world.clock.sleeper_within(Duration::from_secs(1)).await;
        let step = world.clock.next_wake().expect("it sleeps");
        waited += step;
        world.clock.advance(step);
    }
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    let PayError::Idem(error) = error else {
        unreachable!()
    };
    assert!(
        error.to_string().contains("an injected fault"),
        "the reason: {error}"
    );
    let tries = world.store.sent(Operation::Claim);
    assert!((8..=40).contains(&tries.len()), "{} tries", tries.len());
    assert!(
        tries.iter().all(|owner| *owner == tries[0]),
        "always the same owner"
    );
}

async fn a_store_that_refuses_is_not_asked_again(world: World) {
    world.store.fail(Operation::Claim, [Fault::Refused]);
    let error = world.pay().run(|_| async { never() }).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(world.store.sent(Operation::Claim).len(), 1);
    let PayError::Idem(error) = error else {
        unreachable!()
    };
    assert!(!error.is_retryable(), "{error}");
    let message = error.to_string();
    assert!(message.contains("mend its access"), "{message}");
}

async fn a_claim_whose_reply_is_lost_does_not_block_itself(world: World) {
    world
        .store
        .fail(Operation::Claim, [Fault::ReplyLost, Fault::ReplyLost]);
    let call = tokio::spawn(world.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 1, "one claim, sent three times");
        Ok::<_, PayError>(Receipt { run: 1 })
    }));
    for _ in 0..2 {
        world.clock.sleeper_within(Duration::from_millis(100)).await;
        world.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(call.await.unwrap(), Ok(Receipt { run: 1 }));
    assert_eq!(world.store.sent(Operation::Claim).len(), 3);
}

async fn a_claim_that_was_given_up_is_given_back(world: World) {
    world.store.fail(Operation::Claim, [Fault::ReplyHangs]);
    let call = tokio::spawn(world.pay().run(|_| async { never() }));
    claimed_in_store(&world).await;
    world.clock.advance(Duration::from_secs(2));
    call.await.unwrap().unwrap_err();
    freed(&world).await;
}

async fn a_caller_that_vanishes_while_claiming_gives_the_key_back(world: World) {
    world.store.fail(Operation::Claim, [Fault::ReplyHangs]);
    let call = tokio::spawn(world.pay().run(|_| async { never() }));
    claimed_in_store(&world).await;
    call.abort();
    freed(&world).await;
}

/// Waits until the claim whose reply hangs has been granted.
async fn claimed_in_store(world: &World) {
    while world.store.read(&world.key()).await.unwrap() == ReadReply::Absent {
        tokio::task::yield_now().await;
    }
}

/// The engine's thread gives the key back; the next call runs as the first attempt.
async fn freed(world: &World) {
    world.events.wait_for("released", 1).await;
    let call = world.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 1, "the claim that nobody saw does not count");
        Ok::<_, PayError>(Receipt { run: 1 })
    });
    assert_eq!(call.await, Ok(Receipt { run: 1 }));
    assert_eq!(world.store.sent(Operation::Release).len(), 1);
}
