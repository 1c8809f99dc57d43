//! How many bodies of an engine run at once (`EngineBuilder::max_running`).

use idem_runtime::Classify as _;

use crate::prelude::*;

on_every_store! {
    nothing_is_claimed_at_the_limit, an_answer_is_replayed_at_the_limit,
    a_replay_does_not_refuse_another_call, a_duplicate_waits_at_the_limit,
    a_key_that_runs_elsewhere_is_running_at_the_limit, each_end_of_a_call_gives_the_place_back,
    a_claim_by_hand_holds_a_place, a_body_may_call_on_at_the_limit,
    a_body_that_calls_on_is_not_refused_with_the_call_that_it_follows,
}

fn limited(fixture: Fixture, max: usize) -> Fixture {
    fixture.with(|engine| engine.max_running(max))
}

fn other(fixture: &Fixture, key: usize) -> Pay {
    fixture.engine.operation("other").key(&key)
}

fn assert_full(answer: Answer) {
    let error = refusal(answer);
    assert_eq!(error.kind(), &ErrorKind::TooManyRunning);
    assert!(error.is_retryable());
    assert_eq!(error.class(), Class::System);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
}

async fn nothing_is_claimed_at_the_limit(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let body = Body::start(other(&fixture, 1), receipt(1)).await;
    assert_full(answered(fixture.pay()).await);
    assert!(fixture.pay().entry().await.unwrap().is_none());
    assert_eq!(fixture.events.count("refused TooManyRunning"), 1);
    // The limit is that of one process.
    let far = Runs::default();
    assert_eq!(paid(fixture.pay_far(), &far).await, receipt(1));
    assert_eq!(body.end().await, receipt(1));
    assert_eq!(answered(fixture.pay()).await, receipt(1));
}

async fn an_answer_is_replayed_at_the_limit(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let runs = Runs::default();
    assert_eq!(paid(fixture.pay().fingerprint(&1), &runs).await, receipt(1));
    let body = Body::start(other(&fixture, 1), receipt(1)).await;
    let before = claims(&fixture);
    assert_eq!(answered(fixture.pay().fingerprint(&1)).await, receipt(1));
    let trips = claims(&fixture) - before;
    assert!(trips <= 1, "one round trip, as for every replay: {trips}");
    let mismatch = refusal(answered(fixture.pay().fingerprint(&2)).await);
    assert_eq!(mismatch.kind(), &ErrorKind::Mismatch);
    assert_full(answered(other(&fixture, 2)).await);
    assert_eq!(body.end().await, receipt(1));
}

/// A replay occupies a place until the store's answer, and runs nothing.
async fn a_replay_does_not_refuse_another_call(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let runs = Runs::default();
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld; 2]);
    let ask = |call: Pay| {
        let runs = runs.clone();
        tokio::spawn(async move { paid(call, &runs).await })
    };
    let claims = claims(&fixture);
    let replay = ask(fixture.pay());
    sent(&fixture, StoreOperation::Claim, claims + 1).await;
    let new = ask(other(&fixture, 1));
    sent(&fixture, StoreOperation::Claim, claims + 2).await;
    fixture.store.deliver();
    assert_eq!(replay.await.unwrap(), receipt(1));
    fixture.store.deliver();
    assert_eq!(new.await.unwrap(), receipt(2));
}

async fn a_duplicate_waits_at_the_limit(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let body = Body::start(fixture.pay(), receipt(7)).await;
    let duplicates: Vec<_> = (0..3)
        .map(|_| tokio::spawn(answered(fixture.pay())))
        .collect();
    assert_full(answered(other(&fixture, 1)).await);
    assert_eq!(body.end().await, receipt(7));
    for duplicate in duplicates {
        assert_eq!(fixture.finished(duplicate).await, receipt(7));
    }
    assert_eq!(paid(other(&fixture, 1), &Runs::default()).await, receipt(1));
}

async fn a_key_that_runs_elsewhere_is_running_at_the_limit(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let (here, far) = (
        Body::start(other(&fixture, 1), receipt(1)).await,
        Body::start(fixture.pay_far(), receipt(7)).await,
    );
    assert_running(&refusal(
        answered(fixture.pay().on_running(OnRunning::Reject)).await,
    ));
    let waits = tokio::spawn(answered(fixture.pay()));
    assert_eq!(far.end().await, receipt(7));
    assert_eq!(fixture.finished(waits).await, receipt(7));
    assert_eq!(here.end().await, receipt(1));
}

async fn each_end_of_a_call_gives_the_place_back(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let free = async |key: usize| {
        let runs = Runs::default();
        assert_eq!(paid(other(&fixture, key), &runs).await, receipt(1), "{key}");
    };
    let failures = [
        PayError::Declined { run: 1 },
        PayError::Down,
        PayError::TimedOut,
    ];
    for (number, failure) in failures.into_iter().enumerate() {
        let failed = failure.clone();
        let answer = other(&fixture, number).run(|_| async { Answer::Err(failed) });
        assert_eq!(answer.await, Err(failure));
        free(10 + number).await;
    }
    let panics = other(&fixture, 4).finish(|_| async { panic!("as it was told to") });
    let panicked: Result<Answer, _> = tokio::spawn(panics).await;
    assert!(panicked.unwrap_err().is_panic());
    free(14).await;
    for (number, on_cancel) in [OnCancel::Hold, OnCancel::Release, OnCancel::Unknown]
        .into_iter()
        .enumerate()
    {
        let call = other(&fixture, 5 + number).on_cancel(on_cancel);
        let body = Body::start(call, receipt(1)).await;
        assert_full(answered(other(&fixture, 99)).await);
        body.drop_caller().await;
        free(15 + number).await;
    }
}

async fn a_claim_by_hand_holds_a_place(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    for complete in [true, false] {
        let key = usize::from(complete);
        let claim = claimed(other(&fixture, key)).await;
        assert_full(answered(other(&fixture, 9)).await);
        let refused = other(&fixture, 9).begin().await.unwrap_err();
        assert_eq!(refused.kind(), &ErrorKind::TooManyRunning);
        if complete {
            fixture.fail(StoreOperation::Complete, [Fault::ReplyHeld]);
            let completion = tokio::spawn(claim.complete(1));
            sent(&fixture, StoreOperation::Complete, 1).await;
            assert_full(answered(other(&fixture, 9)).await);
            fixture.store.deliver();
            completion.await.unwrap().unwrap();
        } else {
            drop(claim);
        }
        let next = other(&fixture, 10 + key).begin().await.unwrap();
        assert!(matches!(next, Acquired::Run(_)));
    }
}

/// Refused, the inner call would fail the body that holds the place.
async fn a_body_may_call_on_at_the_limit(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let inner = other(&fixture, 1);
    let outer = fixture.pay().run(|_| async move {
        let inner = paid(inner, &Runs::default()).await;
        assert_eq!(inner, receipt(1));
        receipt(7)
    });
    assert_eq!(outer.await, receipt(7));
    // What another engine lends is not this one's.
    let (call, far) = (other(&fixture, 2), fixture.pay_far());
    let body = Body::start(other(&fixture, 3), receipt(3)).await;
    let through = far.run(|_| async move {
        assert_full(answered(call).await);
        receipt(8)
    });
    assert_eq!(through.await, receipt(7), "it was done here");
    let (call, far) = (other(&fixture, 2), fixture.far.operation("far").key(&1));
    let through = far.run(|_| async move {
        assert_full(answered(call).await);
        receipt(8)
    });
    assert_eq!(through.await, receipt(8));
    assert_eq!(body.end().await, receipt(3));
}

/// Both make the same call. The one from outside leads and is refused; the one in a body needs no place.
async fn a_body_that_calls_on_is_not_refused_with_the_call_that_it_follows(fixture: Fixture) {
    let fixture = limited(fixture, 1);
    let (begun, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let (inner, runs, start) = (other(&fixture, 1), Runs::default(), begun.clone());
    let (go_on, inner_runs) = (Arc::clone(&gate), runs.clone());
    let body = tokio::spawn(fixture.pay().run(move |_| async move {
        let run = start.start();
        go_on.acquire().await.unwrap().forget();
        assert_eq!(paid(inner, &inner_runs).await, receipt(1));
        receipt(run)
    }));
    while begun.count() == 0 {
        tokio::task::yield_now().await;
    }
    let before = claims(&fixture);
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let outside = tokio::spawn(answered(other(&fixture, 1)));
    while claims(&fixture) == before {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    others().await;
    assert_eq!(claims(&fixture), before + 1, "it follows");
    fixture.store.deliver();
    assert_full(outside.await.unwrap());
    assert_eq!(body.await.unwrap(), receipt(1));
    assert_eq!(runs.count(), 1);
}
