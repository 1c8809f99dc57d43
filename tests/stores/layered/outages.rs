//! The fast store is unavailable, in each way a store fails.

use std::sync::atomic::{AtomicBool, Ordering};

use idem_harness::TcpProxy;
use idem_runtime::store::author::{
    ClaimReply, ClaimRequest, Copied, Owner, ReadCache, ReadReply, Remains, StoreFuture,
};
use idem_runtime::store::{RecordKey, StoreError, StoreErrorKind};
use idem_runtime::testing::Forward;
use idem_tests::claims::unhurried;
use idem_tests::shop::{connect, happened, patiently};

use crate::prelude::*;

fn hasty(store: LayeredStoreBuilder) -> LayeredStoreBuilder {
    store.patience(Duration::from_millis(500))
}

/// Replays until the fast store has answered: a busy machine may have delayed it, which would count among the
/// consecutive failures.
async fn is_answered(fixture: &Fixture, key: &str) {
    let answers = async {
        let before = fixture.stats().hits;
        while fixture.stats().hits == before {
            fixture.pay(key).await.unwrap();
            fixture.settle().await;
        }
    };
    patiently("the fast store answers", answers).await;
}

type Fault = fn(&RedisServer, &TcpProxy);

/// Five consecutive failures degrade the fast store; it costs time only, and is used again when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_store_that_fails_is_skipped_until_it_is_back() {
    let rows: [(&str, Fault, Fault); 3] = [
        (
            "a black hole",
            |_, proxy| proxy.black_hole(true),
            |_, proxy| proxy.black_hole(false),
        ),
        (
            "killed, and back without its data",
            |server, _| server.kill(),
            |server, _| server.restart(),
        ),
        (
            "paused",
            |server, _| server.pause(),
            |server, _| server.resume(),
        ),
    ];
    for (fault, begin, end) in rows {
        let (server, durable) = (RedisServer::start(), memory());
        let proxy = TcpProxy::start(server.addr());
        let fast = connect(proxy.url()).await.unwrap();
        let fixture = Fixture::with(fast, &durable, hasty);
        let first = fixture.pay("a").await.unwrap();
        is_answered(&fixture, "a").await;
        begin(&server, &proxy);
        for number in 0..5 {
            fixture.pay(&number.to_string()).await.unwrap();
        }
        happened(&fixture.events, "degraded", 1).await;
        assert_eq!(fixture.pay("a").await.unwrap(), first, "{fault}");
        // The degraded store is sent a try of each pause, and not of each call.
        let failures = fixture.stats().failures;
        for number in 5..55 {
            fixture.pay(&number.to_string()).await.unwrap();
        }
        assert!(fixture.stats().failures <= failures + 10, "{fault}");
        end(&server, &proxy);
        is_answered(&fixture, "a").await;
        happened(&fixture.events, "restored", 1).await;
        assert!(!fixture.stats().degraded, "{fault}");
        assert_eq!(fixture.pay("a").await.unwrap(), first, "{fault}");
        assert_eq!(fixture.runs.count(), 56, "{fault}");
    }
}

/// A waiting call then watches the durable store, which notifies watched claims.
#[tokio::test]
async fn a_fast_store_that_is_down_at_the_start_is_found_later() {
    let (server, durable) = (RedisServer::start(), RedisServer::start());
    let url = server.url();
    server.kill();
    let durable = Faulty::new(Arc::new(connect(durable.url()).await.unwrap()));
    let fast = LazyStore::new(move || connect(url.clone()));
    let fixture = Fixture::with(fast, &durable, hasty);
    let fails = async {
        // The durable store is not queried before the epoch is known.
        while !fixture.stats().degraded {
            fixture.pay("b").await.unwrap();
        }
    };
    patiently("the fast store is given up", fails).await;
    let (key, store) = (Fixture::key("a"), &fixture.store);
    let mut watch = store.watch(&key).await.unwrap().expect("it is told of");
    for owner in [1, 2] {
        let mut request = ClaimRequest::new(
            Owner::from_bytes([owner; 16]),
            Duration::from_mins(1),
            Duration::from_hours(1),
        );
        request.dated = false;
        let claim = store.claim(&key, &request, &unhurried()).await.unwrap();
        assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
        store.poll(&key).await.unwrap();
        let released = store
            .release(&key, &request.owner, Remains::Request, None)
            .await;
        released.unwrap();
        patiently("a release is told of", watch.changed()).await;
    }
    server.restart();
    is_answered(&fixture, "b").await;
    happened(&fixture.events, "restored", 1).await;
    assert_eq!(fixture.runs.count(), 1);
}

/// A durable store whose first read, that of the epoch, panics.
#[derive(Debug)]
struct PanicsOnce(MemoryStore, AtomicBool);

impl Forward for PanicsOnce {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        assert!(self.1.swap(true, Ordering::SeqCst), "a bug in a store");
        self.0.read(key)
    }
}

/// A fast store that fails until it `works`, and panics once then.
#[derive(Clone, Debug)]
struct Ailing {
    copies: MemoryStore,
    works: Arc<AtomicBool>,
    has_panicked: Arc<AtomicBool>,
}

impl ReadCache for Ailing {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        if !self.works.load(Ordering::SeqCst) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "an injected fault");
            return StoreFuture::ready(Err(error));
        }
        let has_panicked = self.has_panicked.swap(true, Ordering::SeqCst);
        assert!(has_panicked, "a bug in a fast store");
        self.copies.look(key)
    }

    changes_its_copies!();
}

/// The reading of the epoch, and the probe of the fast store.
#[tokio::test(flavor = "multi_thread")]
async fn a_background_job_that_panics_is_begun_again() {
    let durable = PanicsOnce(MemoryStore::new(), AtomicBool::default());
    let durable = Faulty::new(Arc::new(durable));
    let fast = Ailing {
        copies: MemoryStore::new(),
        works: Arc::default(),
        has_panicked: Arc::default(),
    };
    let fixture = Fixture::with(fast.clone(), &durable, |store| store);
    let fails = async {
        // The fast store is not queried before the epoch is known.
        while !fixture.stats().degraded {
            fixture.pay("a").await.unwrap();
        }
    };
    patiently("the epoch is read, and the fast store given up", fails).await;
    fast.works.store(true, Ordering::SeqCst);
    is_answered(&fixture, "a").await;
    happened(&fixture.events, "restored", 1).await;
    assert!(fast.has_panicked.load(Ordering::SeqCst));
    assert_eq!(fixture.runs.count(), 1);
}
