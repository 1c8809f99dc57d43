//! Several observers of one engine, and an engine whose observers ignore calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::observe::{CallOutcome, CallResult, Event, EventKind};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, Error, Observer};
use idem_tests::events::Events;

/// Counts the ends of calls, where it wants to know of them.
#[derive(Debug, Default)]
struct Ends {
    wanted: bool,
    ends: AtomicU32,
}

impl Observer for Ends {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::Ended { end } = &event.kind {
            assert_eq!(end.outcome, CallOutcome::Executed(CallResult::Value));
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wants_calls(&self) -> bool {
        self.wanted
    }
}

async fn call(observer: impl Observer) {
    let engine = Engine::builder(MemoryStore::new()).observer(observer);
    let call = engine
        .build()
        .unwrap()
        .operation("pay")
        .key(&7)
        .run(|_| async { Ok::<_, Error>(1) });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn each_of_several_observers_gets_each_event() {
    let (first, second) = (Events::default(), Events::default());
    call((first.clone(), second.clone())).await;
    assert_eq!(first.all(), second.all());
    assert_eq!(first.count("claimed"), 1);
    let list: Vec<Arc<dyn Observer>> = vec![Arc::new(first.clone()), Arc::new(second.clone())];
    call(list).await;
    assert_eq!(first.count("claimed"), 2);
    assert_eq!(first.all(), second.all());
}

#[tokio::test]
async fn only_an_engine_whose_observer_wants_calls_reports_their_end() {
    let unwanted = Arc::new(Ends::default());
    call((Arc::clone(&unwanted), Events::default())).await;
    assert_eq!(unwanted.ends.load(Ordering::Relaxed), 0);
    let ends = Ends {
        wanted: true,
        ..Ends::default()
    };
    let wanted = Arc::new(ends);
    call((Events::default(), Arc::clone(&wanted))).await;
    assert_eq!(wanted.ends.load(Ordering::Relaxed), 1);
}
