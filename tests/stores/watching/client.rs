//! A client of a store: claims keys, completes them, and watches the keys of other clients.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use idem_harness::{RedisServer, RespConn};
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{ClaimRequest, Header, Owner, ReleaseReply, Remains, Watch};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{OutcomeKind, RecordKey, Store, StoreError};
use idem_tests::claims::{complete, finished, take};
use idem_tests::shop::{HASTE, connect, connected, patiently};

pub(crate) struct Client(pub(crate) Arc<dyn Store>);

pub(crate) fn key(number: u64) -> RecordKey {
    let mut digest = [7; 32];
    digest[24..].copy_from_slice(&number.to_be_bytes());
    let digest = KeyDigest::from_bytes(digest);
    RecordKey::new("idem".into(), Operation::new("watched"), digest)
}

/// A store with long time-outs.
pub(crate) async fn store(url: &str) -> RedisStore {
    connect(url).await.unwrap()
}

impl Client {
    pub(crate) async fn of(url: &str) -> Self {
        Self(Arc::new(store(url).await))
    }

    pub(crate) async fn alone() -> (RedisServer, Self) {
        let server = RedisServer::start();
        let client = Self::of(&server.url()).await;
        (server, client)
    }

    /// A client with a short response time-out.
    pub(crate) async fn hasty(url: &str) -> Self {
        let store = RedisStore::builder(url).response_timeout(HASTE);
        Self(Arc::new(connected(store).await))
    }

    pub(crate) async fn take(&self, key: &RecordKey) -> Header {
        let request = ClaimRequest::new(
            Owner::random(),
            Duration::from_hours(1),
            Duration::from_hours(24),
        );
        take(&*self.0, key, &request).await
    }

    #[allow(dead_code, reason = "a test of the cluster completes")]
    pub(crate) async fn complete(&self, key: &RecordKey, claim: &Header) {
        let record = finished(claim, OutcomeKind::Value, b"");
        complete(&*self.0, key, &record).await;
    }

    pub(crate) async fn release(&self, key: &RecordKey, claim: &Header) {
        let released = self
            .0
            .release(key, &claim.owner, Remains::Request, None)
            .await
            .unwrap();
        assert_eq!(released, ReleaseReply::Released);
    }

    /// Claims a key, marks it as watched, and releases it: one notification for each watcher.
    pub(crate) async fn pass(&self, key: &RecordKey) {
        let claim = self.take(key).await;
        self.look_in_the_end(key).await;
        self.release(key, &claim).await;
    }

    /// Reads as soon as the store can: it may have failed to connect a moment ago.
    async fn look_in_the_end(&self, key: &RecordKey) {
        let trying = async {
            while let Err(error) = self.0.poll(key).await {
                assert!(error.is_transient(), "{error}");
                tokio::task::yield_now().await;
            }
        };
        patiently("a look", trying).await;
    }

    pub(crate) async fn try_watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        self.0.watch(key).await
    }

    pub(crate) async fn watch(&self, key: &RecordKey) -> Watch {
        let watch = self.try_watch(key).await.unwrap();
        watch.expect("the store tells")
    }

    /// Watches a key as soon as the store can.
    pub(crate) async fn watch_in_the_end(&self, key: &RecordKey) -> Watch {
        let trying = async {
            loop {
                match self.try_watch(key).await {
                    Ok(watch) => return watch.expect("the store tells"),
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                tokio::task::yield_now().await;
            }
        };
        patiently("a watch", trying).await
    }
}

pub(crate) async fn told(watch: &mut Watch) {
    patiently("a message", watch.changed()).await;
}

/// Whether the watch has not been notified yet.
pub(crate) fn untold(watch: &mut Watch) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    pin!(watch.changed()).poll(&mut cx).is_pending()
}

/// Number of connections that subscribe.
pub(crate) fn subscribers(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    list.lines().filter(|line| !line.is_empty()).count()
}

/// Number of connections subscribed to the key's channel. `NUMSUB`, or `SHARDNUMSUB` in a cluster.
pub(crate) fn hearers(admin: &mut RespConn, how: &str, key: &RecordKey) -> i64 {
    let reply = admin.command(&["PUBSUB", how, &key.name()]).unwrap();
    let text = reply.to_string();
    let count = text.lines().last().and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("no count: {text}"))
}
