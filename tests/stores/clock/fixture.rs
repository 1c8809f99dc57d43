//! An engine of a process, whose clock moves only by a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_harness::FakeClock;
use idem_runtime::clock::{Clock, ManualClock, SystemClock};
use idem_runtime::store::Store;
use idem_runtime::{Engine, Error, ErrorKind, OnDuplicate, OnRunning, admin::EntryState};
use idem_tests::events::Events;
use idem_tests::shop::{happened, patiently, persistent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::servers::ClockedServer;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Fixture {
    engine: Engine,
    pub(crate) events: Events,
    /// The clock of the lease renewals, unlike that of the server.
    pub(crate) clock: ManualClock,
}

/// Number of unused keys handed out so far.
static NEW: AtomicUsize = AtomicUsize::new(0);

/// A call whose body runs.
pub(crate) struct Running {
    ends: oneshot::Sender<()>,
    call: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Lets the body end, and returns the caller's result.
    pub(crate) async fn end(self) -> Result<(), Error> {
        self.ends.send(()).unwrap();
        patiently("the call ends", self.call).await.unwrap()
    }
}

pub(crate) async fn started<P: ClockedServer>() -> (FakeClock, P, Fixture) {
    let clock = FakeClock::new();
    let server = P::start_by(&clock);
    let fixture = Fixture::of(&server).await;
    (clock, server, fixture)
}

impl Fixture {
    /// A process with its own connections to this server.
    pub(crate) async fn of<P: ClockedServer>(server: &P) -> Self {
        Self::on(&server.store().await)
    }

    pub(crate) fn on(store: &Arc<dyn Store>) -> Self {
        let clock = ManualClock::new();
        Self::by(clock.clone(), clock, store)
    }

    /// A fixture whose engine's clock runs and which retries an unavailable store.
    pub(crate) fn going_on(store: &Arc<dyn Store>) -> Self {
        Self::by(ManualClock::new(), SystemClock, store)
    }

    fn by(clock: ManualClock, by: impl Clock, store: &Arc<dyn Store>) -> Self {
        let events = Events::default();
        let builder = persistent(Engine::builder(Arc::clone(store)))
            .lease(LEASE)
            .on_running(OnRunning::Reject)
            // An engine that refuses duplicates requests ages, so that every claim's reply has the server's time.
            .on_duplicate(OnDuplicate::Reject)
            .clock(by)
            .observer(events.clone());
        Self {
            engine: builder.build().unwrap(),
            events,
            clock,
        }
    }

    /// Calls with a body that succeeds at once.
    pub(crate) async fn pay(&self, key: &str) -> Result<(), Error> {
        let call = self.engine.operation("clock.pay").key(key);
        let paid = call.run(async |_| Ok(()));
        patiently("the call ends", paid).await
    }

    /// Calls a key with a running body. Returns its lease's remaining time.
    pub(crate) async fn finds_running(&self, key: &str) -> Duration {
        let error = self.pay(key).await.unwrap_err();
        match error.kind() {
            ErrorKind::Running { retry_after } => *retry_after,
            other => panic!("no call runs: {other:?}"),
        }
    }

    /// Reads the record until its lease is renewed by the server's clock; other leases may be renewed first.
    pub(crate) async fn until_renewed(&self, key: &str) {
        let runs = async {
            loop {
                let entry = self.engine.operation("clock.pay").key(key).entry().await;
                let entry = entry.unwrap().expect("there is a record");
                if matches!(entry.state(), EntryState::Running { lease_left } if lease_left > LEASE / 3)
                {
                    break;
                }
            }
        };
        patiently("its lease is renewed", runs).await;
    }

    /// Calls an unused key.
    pub(crate) async fn pay_anew(&self) {
        let number = NEW.fetch_add(1, Ordering::Relaxed);
        self.pay(&format!("new {number}")).await.unwrap();
    }

    /// Calls unused keys until the event has happened so many times.
    pub(crate) async fn pay_until(&self, event: &str, times: usize) {
        let calls = async {
            while self.events.count(event) < times {
                self.pay_anew().await;
            }
        };
        patiently(event, calls).await;
    }

    /// A call whose body runs until the test ends it.
    pub(crate) async fn begin(&self, key: &str) -> Running {
        let before = self.events.count("claimed");
        let (ends, ended) = oneshot::channel();
        let call = self.engine.operation("clock.pay").key(key);
        let call = tokio::spawn(call.run(async move |_| {
            ended.await.expect("the test lets it end");
            Ok(())
        }));
        happened(&self.events, "claimed", before + 1).await;
        Running { ends, call }
    }
}
