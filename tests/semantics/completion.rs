//! The last step: a success stays a success, whatever happens to its storing.

use crate::prelude::*;

on_every_store![
    a_completion_whose_reply_is_lost_is_sent_again,
    a_success_is_returned_although_it_cannot_be_stored_yet,
    a_completion_goes_on_when_its_caller_is_dropped,
    a_completion_that_is_refused_is_reported_and_tried_again,
    a_renewal_without_reply_is_tried_again,
    a_release_whose_reply_is_lost_is_sent_again,
];

async fn paid(fixture: &Fixture, runs: &Runs) -> Result<Receipt, PayError> {
    let body = |_| async { receipt(runs.start()) };
    fixture.pay().run(body).await
}

/// Skips the pauses between tries while a call is under way, and no deadline.
async fn with_pauses<T>(fixture: &Fixture, call: impl Future<Output = T>) -> T {
    let pause = Duration::from_millis(250);
    let mut call = pin!(call);
    loop {
        tokio::select! {
            biased;
            output = &mut call => return output,
            () = fixture.clock.sleeper_within(pause) => fixture.clock.advance(pause),
        }
    }
}

/// Waits until the store has received so many commands.
async fn asked(fixture: &Fixture, operation: StoreOperation, times: usize) {
    while fixture.count(operation) < times {
        tokio::task::yield_now().await;
    }
}

async fn a_completion_whose_reply_is_lost_is_sent_again(fixture: Fixture) {
    let runs = Runs::default();
    fixture.fail(StoreOperation::Complete, [Fault::ReplyLost, Fault::Lost]);
    let first = with_pauses(&fixture, paid(&fixture, &runs)).await;
    assert_eq!(first, receipt(1));
    let sent = fixture.store.sent(StoreOperation::Complete);
    assert_eq!(sent.len(), 3);
    assert!(
        sent.iter().all(|owner| *owner == sent[0]),
        "always the same owner"
    );
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
    assert_eq!(fixture.events.count("completed value"), 1);
    assert_eq!(fixture.events.count("unsaved"), 0);
}

async fn a_success_is_returned_although_it_cannot_be_stored_yet(fixture: Fixture) {
    let runs = Runs::default();
    fixture.fail(StoreOperation::Complete, [Fault::Hangs]);
    let mut first = pin!(paid(&fixture, &runs));
    tokio::select! {
        biased;
        _ = &mut first => unreachable!("the completion hangs"),
        () = asked(&fixture, StoreOperation::Complete, 1) => {}
    }
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(first.await, receipt(1));
    assert_eq!(
        fixture
            .events
            .count("unsaved: the store did not answer in time"),
        1
    );
    // The engine's thread sends it again.
    fixture.events.wait_for("completed value", 1).await;
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
}

async fn a_completion_goes_on_when_its_caller_is_dropped(fixture: Fixture) {
    let runs = Runs::default();
    fixture.fail(StoreOperation::Complete, [Fault::Hangs]);
    {
        let mut call = Box::pin(paid(&fixture, &runs));
        while fixture.store.sent(StoreOperation::Complete).is_empty() {
            tokio::select! {
                biased;
                _ = &mut call => unreachable!("the completion hangs"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    fixture.events.wait_for("completed value", 1).await;
    assert_eq!(fixture.events.count("dropped"), 0, "its body had ended");
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
}

async fn a_completion_that_is_refused_is_reported_and_tried_again(fixture: Fixture) {
    let runs = Runs::default();
    let refused = [Fault::Refused, Fault::Refused, Fault::Refused];
    fixture.fail(StoreOperation::Complete, refused);
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
    let reported = "unsaved: an injected fault; storing goes on in the background";
    assert_eq!(fixture.events.count(reported), 1);
    // The missing right is granted: the engine's thread notices.
    with_pauses(&fixture, fixture.events.wait_for("completed value", 1)).await;
    assert_eq!(fixture.count(StoreOperation::Complete), 4);
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
}

async fn a_renewal_without_reply_is_tried_again(fixture: Fixture) {
    fixture.fail(
        StoreOperation::Renew,
        [Fault::Lost, Fault::ReplyLost, Fault::ReplyHangs],
    );
    let claim = fixture.pay().begin().await.unwrap();
    for (failures, pause) in [(1, 10_000), (2, 2_500)] {
        let pause = Duration::from_millis(pause);
        wakes(&fixture, pause).await;
        fixture.events.wait_for("renewal failed", failures).await;
    }
    fixture
        .clock
        .sleeper_within(Duration::from_millis(2_500))
        .await;
    fixture.clock.advance(Duration::from_millis(2_500));
    asked(&fixture, StoreOperation::Renew, 3).await;
    wakes(&fixture, Duration::from_secs(10)).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_eq!(fixture.events.count("renewal failed"), 3);
    drop(claim);
    let call = fixture.pay().on_running(OnRunning::Reject);
    let refused = call.run(|_| async { Ok::<_, PayError>(()) });
    let refused = refused.await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Running { .. }),
        "{refused:?}"
    );
}

async fn a_release_whose_reply_is_lost_is_sent_again(fixture: Fixture) {
    fixture.fail(StoreOperation::Release, [Fault::ReplyLost, Fault::Lost]);
    let call = fixture
        .pay()
        .run(|_| async { Err::<Receipt, _>(PayError::Down) });
    assert_eq!(with_pauses(&fixture, call).await, Err(PayError::Down));
    assert_eq!(fixture.count(StoreOperation::Release), 3);
    let runs = Runs::default();
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
}
