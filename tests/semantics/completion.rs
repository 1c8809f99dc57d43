//! The last step: a success stays a success, whatever happens to its storing.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt, Runs};
use idem_tests::world::World;

on_every_store![
    a_completion_whose_reply_is_lost_is_sent_again,
    a_success_is_returned_although_it_cannot_be_stored_yet,
    a_completion_goes_on_when_its_caller_is_dropped,
    a_completion_that_is_refused_is_reported,
    a_renewal_without_reply_is_tried_again,
    a_release_whose_reply_is_lost_is_sent_again,
];

async fn paid(world: &World, runs: &Runs) -> Result<Receipt, PayError> {
    let body = |_| async { Ok(Receipt { run: runs.start() }) };
    world.pay().run(body).await
}

/// Lets the clock run while a call is under way.
async fn with_time<T>(world: &World, call: impl Future<Output = T>) -> T {
    let mut call = Box::pin(call);
    loop {
        tokio::select! {
            biased;
            output = &mut call => return output,
            () = world.clock.sleeper_within(Duration::from_secs(5)) => {
                let step = world.clock.next_wake().unwrap_or_default();
                if step <= Duration::from_secs(5) {
                    world.clock.advance(step);
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn a_completion_whose_reply_is_lost_is_sent_again(world: World) {
    let runs = Runs::default();
    world
        .store
        .fail(Operation::Complete, [Fault::ReplyLost, Fault::Lost]);
    let first = with_time(&world, paid(&world, &runs)).await;
    assert_eq!(first, Ok(Receipt { run: 1 }));
    let sent = world.store.sent(Operation::Complete);
    assert_eq!(sent.len(), 3);
    assert!(
        sent.iter().all(|owner| *owner == sent[0]),
        "always the same owner"
    );
    assert_eq!(paid(&world, &runs).await, Ok(Receipt { run: 1 }));
    assert_eq!(world.events.count("completed value"), 1);
    assert_eq!(world.events.count("unsaved"), 0);
}

async fn a_success_is_returned_although_it_cannot_be_stored_yet(world: World) {
    let runs = Runs::default();
    world.store.fail(Operation::Complete, [Fault::Hangs]);
    let first = with_time(&world, paid(&world, &runs)).await;
    assert_eq!(first, Ok(Receipt { run: 1 }));
    assert_eq!(
        world
            .events
            .count("unsaved: the store did not answer in time"),
        1
    );
    // The engine's thread sends it again.
    world.events.wait_for("completed value", 1).await;
    assert_eq!(paid(&world, &runs).await, Ok(Receipt { run: 1 }));
}

async fn a_completion_goes_on_when_its_caller_is_dropped(world: World) {
    let runs = Runs::default();
    world.store.fail(Operation::Complete, [Fault::Hangs]);
    {
        let mut call = Box::pin(paid(&world, &runs));
        while world.store.sent(Operation::Complete).is_empty() {
            tokio::select! {
                biased;
                _ = &mut call => unreachable!("the completion hangs"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    world.events.wait_for("completed value", 1).await;
    assert_eq!(world.events.count("dropped"), 0, "its body had ended");
    assert_eq!(paid(&world, &runs).await, Ok(Receipt { run: 1 }));
}

async fn a_completion_that_is_refused_is_reported(world: World) {
    let runs = Runs::default();
    world.store.fail(Operation::Complete, [Fault::Refused]);
    assert_eq!(paid(&world, &runs).await, Ok(Receipt { run: 1 }));
    assert_eq!(world.events.count("unsaved: an injected fault"), 1);
    assert_eq!(world.store.sent(Operation::Complete).len(), 1);
}

async fn a_renewal_without_reply_is_tried_again(world: World) {
    world.store.fail(
        Operation::Renew,
        [Fault::Lost, Fault::ReplyLost, Fault::ReplyHangs],
    );
    let claim = world.pay().begin().await.unwrap();
    with_time(&world, world.events.wait_for("renewed", 1)).await;
    assert_eq!(world.events.count("renewal failed"), 3);
    assert!(world.clock.next_wake().is_some(), "and renewing goes on");
    drop(claim);
    let refused = world.pay().run(|_| async { Ok::<_, PayError>(()) });
    let refused = with_time(&world, refused).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Running { .. }),
        "{refused:?}"
    );
}

async fn a_release_whose_reply_is_lost_is_sent_again(world: World) {
    world
        .store
        .fail(Operation::Release, [Fault::ReplyLost, Fault::Lost]);
    let call = world
        .pay()
        .run(|_| async { Err::<Receipt, _>(PayError::Down) });
    assert_eq!(with_time(&world, call).await, Err(PayError::Down));
    assert_eq!(world.store.sent(Operation::Release).len(), 3);
    let runs = Runs::default();
    assert_eq!(paid(&world, &runs).await, Ok(Receipt { run: 1 }));
}
