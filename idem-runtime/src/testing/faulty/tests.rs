use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::memory::MemoryStore;
use crate::{Engine, Error};

/// A store that counts `complete_claim` and `poll`.
#[derive(Clone, Debug)]
struct CountingStore {
    store: MemoryStore,
    claim_completions: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
}

impl CountingStore {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            claim_completions: Arc::default(),
            polls: Arc::default(),
        }
    }
}

impl Forward for CountingStore {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn complete<'a>(&'a self, _: &'a RecordKey, _: &'a Bytes) -> StoreFuture<'a, CompleteReply> {
        panic!("the engine knows the claim, and passes it to `complete_claim`")
    }

    fn complete_claim<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        self.claim_completions.fetch_add(1, Ordering::SeqCst);
        self.store.complete_claim(key, claim, record)
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.store.poll(key)
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build();
    runtime.expect("a runtime starts").block_on(test);
}

#[test]
fn faults_of_a_completion_apply_to_complete_claim() {
    run(async {
        for (fault, sent, executed) in [
            // The fault, the completions that the engine sends, and those that the store executes.
            (Fault::None, 1, 1),
            (Fault::Lost, 2, 1),
            (Fault::ReplyLost, 2, 2),
            (Fault::Twice, 1, 2),
        ] {
            let inner = CountingStore::new();
            let store = Faulty::new(inner.clone());
            let engine = Engine::new(store.clone());
            store.fail(StoreOperation::Complete, [fault]);
            for _ in 0..2 {
                let call = engine.operation("pay").key(&7);
                let paid = call.run(|_| async { Ok::<_, Error>(1) }).await;
                assert_eq!(paid, Ok(1), "{fault:?}");
            }
            assert_eq!(store.count(StoreOperation::Complete), sent, "{fault:?}");
            let owners = store.sent(StoreOperation::Complete);
            assert!(owners.iter().all(Option::is_some), "{fault:?}: {owners:?}");
            assert_eq!(
                inner.claim_completions.load(Ordering::SeqCst),
                executed,
                "{fault:?}"
            );
        }
    });
}

#[test]
fn faults_of_a_read_apply_to_poll() {
    run(async {
        let inner = CountingStore::new();
        let store = Faulty::new(inner.clone());
        let key = RecordKey::new(
            "idem".into(),
            crate::key::Operation::new("pay"),
            crate::key::KeyDigest::from_bytes([7; 32]),
        );
        store.fail(StoreOperation::Read, [Fault::Lost]);
        assert!(Store::poll(&store, &key).await.is_err());
        assert_eq!(
            Store::poll(&store, &key).await.ok(),
            Some(ReadReply::Absent)
        );
        assert_eq!(store.count(StoreOperation::Read), 2);
        assert_eq!(inner.polls.load(Ordering::SeqCst), 1);
    });
}
