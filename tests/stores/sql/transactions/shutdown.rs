//! Shutdowns that wait for calls in transactions.

use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(a_shutdown_waits_for_bodies);

async fn a_shutdown_waits_for_bodies<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let (begun, end) = (Notify::new(), Notify::new());
    let calls = async {
        let mut tx = fixture.begin().await;
        let runs = async |_: &mut D::Conn| {
            begun.notify_one();
            end.notified().await;
        };
        let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", runs, End::Value);
        let answer = call.await;
        D::commit(tx).await.done();
        answer
    };
    let shuts_down = async {
        begun.notified().await;
        let none = fixture.engine.shutdown(Duration::ZERO).await;
        none.expect_err("the body runs");
        let error = refusal(fixture.replayed(fixture.call("other")).await);
        assert_eq!(*error.kind(), ErrorKind::ShuttingDown);
        let ends = async { end.notify_one() };
        let (ended, ()) = tokio::join!(fixture.engine.shutdown(PATIENCE), ends);
        ended.expect("the body has ended");
    };
    let both = async { tokio::join!(calls, shuts_down) };
    assert_eq!(patiently("both end", both).await, (Some(Ok(1)), ()));
    assert_eq!(fixture.orders("mine").await, 1);
}
