//! Which request a key takes after its first attempt ended without an answer.

use crate::prelude::*;

on_every_store![
    a_key_that_was_given_back_takes_another_request,
    a_claim_that_was_given_back_takes_another_request,
    a_key_that_another_system_may_know_keeps_its_request,
    a_key_whose_body_ran_another_call_keeps_its_request,
    a_key_whose_body_claimed_another_call_keeps_its_request,
    a_key_of_a_dropped_body_keeps_its_request,
    a_key_with_an_abandoned_attempt_keeps_its_request,
    a_key_whose_errors_count_keeps_its_request,
    a_later_attempt_keeps_the_request_of_an_earlier_one,
    a_resolved_key_answers_its_request_only,
];

async fn pay(fixture: &Fixture, asked: &'static str, answer: Answer) -> Answer {
    let call = fixture.pay().fingerprint(&asked);
    call.run(|_| async { answer }).await
}

/// The key takes no request but "first", and that one.
async fn assert_kept(fixture: &Fixture) {
    // Of another engine: that of the fixture may be shut down.
    let call = |asked: &'static str| fixture.pay_far().fingerprint(&asked);
    let other = refusal(answered(call("other")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_eq!(
        call("first").run(|_| async { receipt(2) }).await,
        receipt(2)
    );
}

async fn a_key_that_was_given_back_takes_another_request(fixture: Fixture) {
    for asked in ["wrong", "wrong", "wrong again"] {
        assert_eq!(
            pay(&fixture, asked, Err(PayError::Down)).await,
            Err(PayError::Down)
        );
    }
    assert_eq!(pay(&fixture, "corrected", receipt(4)).await, receipt(4));
    let wrong = refusal(pay(&fixture, "wrong", receipt(5)).await);
    assert_eq!(wrong.kind(), &ErrorKind::Mismatch);
}

async fn a_claim_that_was_given_back_takes_another_request(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"wrong");
    let claim = claimed(call).await;
    claim.release().await;
    assert_eq!(pay(&fixture, "corrected", receipt(1)).await, receipt(1));
}

async fn a_key_that_another_system_may_know_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"first");
    let body = |context: Context| async move {
        // Sent to the bank, say, which did not answer.
        assert_eq!(context.derive_key("charge").len(), 43);
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&fixture).await;
}

async fn a_key_whose_body_ran_another_call_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"first");
    let inner = fixture.engine.operation("charge").key(&7);
    let body = |_| async move {
        let charged = inner.run(|_| async { receipt(1) });
        charged.await?;
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&fixture).await;
}

async fn a_key_whose_body_claimed_another_call_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"first");
    let inner = fixture.engine.operation("charge").key(&7);
    let body = |_| async move {
        let Acquired::Run(claim) = inner.begin().await? else {
            panic!("nothing is stored")
        };
        claim.complete(receipt(1).unwrap()).await?;
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    assert_kept(&fixture).await;
}

async fn a_key_of_a_dropped_body_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Release);
    let body = Body::start(call.fingerprint(&"first"), receipt(1)).await;
    body.drop_caller().await;
    comes_to_rest(&fixture).await;
    assert_kept(&fixture).await;
}

async fn a_key_with_an_abandoned_attempt_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"first");
    let panicked = tokio::spawn(call.run(|_| async { panics() }));
    assert!(panicked.await.unwrap_err().is_panic());
    let again = pay(&fixture, "first", Err(PayError::Down)).await;
    assert_eq!(again, Err(PayError::Down));
    assert_kept(&fixture).await;
}

fn panics() -> Answer {
    std::panic::panic_any("out of paper")
}

async fn a_key_whose_errors_count_keeps_its_request(fixture: Fixture) {
    let call = fixture.pay().count_errors(true).fingerprint(&"first");
    let failed = call.run(|_| async { Err::<Receipt, _>(PayError::Down) });
    assert_eq!(failed.await, Err(PayError::Down));
    assert_kept(&fixture).await;
}

async fn a_later_attempt_keeps_the_request_of_an_earlier_one(fixture: Fixture) {
    let call = fixture.pay().fingerprint(&"first");
    let body = |context: Context| async move {
        let _ = context.derive_key("charge");
        Err::<Receipt, _>(PayError::Down)
    };
    assert_eq!(call.run(body).await, Err(PayError::Down));
    for _ in 0..2 {
        let early = pay(&fixture, "first", Err(PayError::Down)).await;
        assert_eq!(early, Err(PayError::Down));
    }
    assert_kept(&fixture).await;
}

async fn a_resolved_key_answers_its_request_only(fixture: Fixture) {
    assert_eq!(
        pay(&fixture, "first", Err(PayError::Down)).await,
        Err(PayError::Down)
    );
    let entry = fixture.pay().fingerprint(&"first").entry().await.unwrap();
    entry.unwrap().resolve(&receipt(1).unwrap()).await.unwrap();
    let other = refusal(answered(fixture.pay().fingerprint(&"other")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
}
