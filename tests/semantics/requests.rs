//! Which request a key takes after its first attempt ended without an answer.

use idem_runtime::{Begun, ErrorKind, OnCancel};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt};
use idem_tests::world::World;

use crate::stage::{Answer, Body, answered, comes_to_rest, receipt, refusal};

on_every_store![
    a_key_that_was_given_back_takes_another_request,
    a_claim_that_was_given_back_takes_another_request,
    a_key_that_another_system_may_know_keeps_its_request,
    a_key_whose_body_ran_another_call_keeps_its_request,
    a_key_whose_body_claimed_another_call_keeps_its_request,
    a_key_of_a_dropped_body_keeps_its_request,
    a_key_with_an_abandoned_attempt_keeps_its_request,
    a_key_whose_errors_count_keeps_its_request,
    a_later_attempt_does_not_free_what_an_earlier_one_bound,
    a_resolved_key_answers_its_request_only,
];

async fn pay(world: &World, asked: &'static str, answer: Answer) -> Answer {
    let call = world.pay().fingerprint(&asked);
    call.run(|_| async { answer }).await
}

/// The key takes no request but "first", and that one.
async fn assert_kept(world: &World) {
    // Of another engine: that of the world may be shut down.
    let call = |asked: &'static str| world.pay_far().fingerprint(&asked);
    let other = refusal(answered(call("other")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_eq!(
        call("first").run(|_| async { receipt(2) }).await,
        receipt(2)
    );
}

async fn a_key_that_was_given_back_takes_another_request(world: World) {
    for asked in ["wrong", "wrong", "wrong again"] {
        assert_eq!(
            pay(&world, asked, Err(PayError::Down)).await,
            Err(PayError::Down)
        );
    }
    assert_eq!(pay(&world, "corrected", receipt(4)).await, receipt(4));
    let wrong = refusal(pay(&world, "wrong", receipt(5)).await);
    assert_eq!(wrong.kind(), &ErrorKind::Mismatch);
}

async fn a_claim_that_was_given_back_takes_another_request(world: World) {
    let call = world.pay().fingerprint(&"wrong");
    let Begun::Claimed(claim) = call.begin().await.unwrap() else {
        panic!("nothing is stored")
    };
    claim.release().await;
    assert_eq!(pay(&world, "corrected", receipt(1)).await, receipt(1));
}

async fn a_key_that_another_system_may_know_keeps_its_request(world: World) {
    let call = world.pay().fingerprint(&"first");
    let body = |context: idem_runtime::Context| async move {
        // Sent to the bank, say, which did not answer.
        assert_eq!(context.derive_key("charge").len(), 43);
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&world).await;
}

async fn a_key_whose_body_ran_another_call_keeps_its_request(world: World) {
    let call = world.pay().fingerprint(&"first");
    let inner = world.engine.operation("charge").key(&7);
    let body = |_| async move {
        let charged = inner.run(|_| async { receipt(1) });
        charged.await?;
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&world).await;
}

async fn a_key_whose_body_claimed_another_call_keeps_its_request(world: World) {
    let call = world.pay().fingerprint(&"first");
    let inner = world.engine.operation("charge").key(&7);
    let body = |_| async move {
        let Begun::Claimed(claim) = inner.begin().await? else {
            panic!("nothing is stored")
        };
        claim.complete(&receipt(1).unwrap()).await?;
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&world).await;
}

async fn a_key_of_a_dropped_body_keeps_its_request(world: World) {
    let call = world.pay().on_cancel(OnCancel::Release);
    let body = Body::start(call.fingerprint(&"first"), receipt(1)).await;
    body.drop_caller().await;
    comes_to_rest(&world).await;
    assert_kept(&world).await;
}

async fn a_key_with_an_abandoned_attempt_keeps_its_request(world: World) {
    let call = world.pay().fingerprint(&"first");
    let panicked = tokio::spawn(call.run(|_| async { panics() }));
    assert!(panicked.await.unwrap_err().is_panic());
    let again = pay(&world, "first", Err(PayError::Down)).await;
    assert_eq!(again, Err(PayError::Down));
    assert_kept(&world).await;
}

fn panics() -> Answer {
    std::panic::panic_any("out of paper")
}

async fn a_key_whose_errors_count_keeps_its_request(world: World) {
    let call = world.pay().count_errors(true).fingerprint(&"first");
    let failed = call.run(|_| async { Err::<Receipt, _>(PayError::Down) });
    assert_eq!(failed.await, Err(PayError::Down));
    assert_kept(&world).await;
}

async fn a_later_attempt_does_not_free_what_an_earlier_one_bound(world: World) {
    let call = world.pay().fingerprint(&"first");
    let body = |context: idem_runtime::Context| async move {
        let _ = context.derive_key("charge");
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    for _ in 0..2 {
        let early = pay(&world, "first", Err(PayError::Down)).await;
        assert_eq!(early, Err(PayError::Down));
    }
    assert_kept(&world).await;
}

async fn a_resolved_key_answers_its_request_only(world: World) {
    assert_eq!(
        pay(&world, "first", Err(PayError::Down)).await,
        Err(PayError::Down)
    );
    let entry = world.pay().fingerprint(&"first").entry().await.unwrap();
    entry.unwrap().resolve(&receipt(1).unwrap()).await.unwrap();
    let other = refusal(answered(world.pay().fingerprint(&"other")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
}
