//! Shutdowns that wait for calls in transactions.

use std::pin::Pin;
use std::sync::{Mutex, OnceLock, Weak};
use std::task::{Context, Wake, Waker};

use idem_runtime::{
    Observer, ShutdownError,
    observe::{Event, EventKind},
};

use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(
    a_call_is_waited_for_at_every_moment,
    a_shutdown_waits_for_bodies,
);

type Shutdown = Pin<Box<dyn Future<Output = Result<(), ShutdownError>> + Send>>;

/// Polls the shutdown within `wake` itself, so that a moment in which no counter has the call is seen.
#[derive(Clone, Default)]
struct Looks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    engine: OnceLock<Engine>,
    shutdown: Mutex<Option<Shutdown>>,
    looks: Mutex<u32>,
}

/// A weak reference, so that the shutdown does not keep itself alive.
struct Told(Weak<Inner>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.0.upgrade() {
            Looks(inner).look();
        }
    }
}

impl std::fmt::Debug for Looks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Looks")
    }
}

impl Looks {
    fn look(&self) {
        let waker = Waker::from(Arc::new(Told(Arc::downgrade(&self.0))));
        let mut shutdown = self.0.shutdown.lock().unwrap();
        *self.0.looks.lock().unwrap() += 1;
        if let Some(waits) = shutdown.as_mut()
            && waits
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        {
            *shutdown = None;
        }
    }

    /// Number of polls, and whether the shutdown still waits.
    fn stand(&self) -> (u32, bool) {
        let looks = *self.0.looks.lock().unwrap();
        (looks, self.0.shutdown.lock().unwrap().is_some())
    }
}

impl Observer for Looks {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::Claimed { .. } = event.kind {
            let engine = self.0.engine.get().unwrap().clone();
            let shutdown = async move { engine.shutdown(Duration::from_hours(1)).await };
            *self.0.shutdown.lock().unwrap() = Some(Box::pin(shutdown));
            self.look();
        }
    }
}

/// Between its claim and its body, at least one counter has the call at every moment.
async fn a_call_is_waited_for_at_every_moment<D: Database>() {
    let looks = Looks::default();
    let fixture = Fixture::<D>::with(|engine| engine.observer(looks.clone())).await;
    looks.0.engine.set(fixture.engine.clone()).unwrap();
    let mut tx = fixture.begin().await;
    let call = fixture.order().in_tx(&mut tx);
    let answer = call
        .run(async |tx: &mut D::Tx, _| {
            let (times, waits) = looks.stand();
            assert!(times >= 2, "it is told that a call waits no more");
            assert!(waits, "the body has yet to run");
            make::<D>(tx, &fixture.runs, "mine").await
        })
        .await;
    assert_eq!(answer, Ok(1));
    assert!(!looks.stand().1, "nothing is left to wait for");
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("mine").await, 1);
}

async fn a_shutdown_waits_for_bodies<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let (begun, end) = (Notify::new(), Notify::new());
    let calls = async {
        let mut tx = fixture.begin().await;
        let call = fixture.order().in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| {
            begun.notify_one();
            end.notified().await;
            make::<D>(tx, &fixture.runs, "mine").await
        });
        let answer = answer.await;
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
    assert_eq!(patiently("both end", both).await, (Ok(1), ()));
    assert_eq!(fixture.orders("mine").await, 1);
}
