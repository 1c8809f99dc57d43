//! The bounds of the local cache.

use std::time::Duration;

/// Upper bound of shards: enough that two threads seldom contend.
const SHARDS: usize = 32;
/// A shard with fewer entries or bytes would be full too soon.
const ENTRIES_PER_SHARD: usize = 64;
const BYTES_PER_SHARD: usize = 1 << 20;

/// The bounds of a cache of finished answers in this process: see
/// [`EngineBuilder::local_cache`](crate::EngineBuilder::local_cache).
///
/// With it, a duplicate of a call whose answer this engine has seen is answered in about a microsecond, without a
/// request to the store. It is off by default, and works in front of any store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use idem_runtime::{Engine, Error, cache::LocalCache, store::memory::MemoryStore};
///
/// let cache = LocalCache::new()
///     .max_entries(50_000)
///     .max_bytes(64 << 20)
///     .max_age(Duration::from_secs(10));
/// let engine = Engine::builder(MemoryStore::new()).local_cache(cache).build()?;
/// for _ in 0..3 {
///     let call = engine.operation("payments.pay").key("order-7").fingerprint(&1_250);
///     let receipt = call.run(|_| async { Ok::<_, Error>(1_250) }).await?;
///     assert_eq!(receipt, 1_250);
/// }
/// println!("{:?}", engine.local_cache_stats());
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Cached answers
///
/// Finished answers, values and kept business errors, as the store has them (encrypted and compressed if they are): of
/// calls that ran, were replayed or were followed in this process. Not [unknown](crate::ErrorKind::Unknown)
/// outcomes and answers that were [not stored](crate::ErrorKind::NotStored). A call with other arguments is a
/// [mismatch](crate::ErrorKind::Mismatch) as before, and operations with `on_duplicate = reject` always query the
/// store. An answer is not used for longer than its record lives.
///
/// [`Replayed`](crate::observe::EventKind::Replayed) has `local: true` for a call that was answered from the cache.
///
/// # Resets
///
/// [`Entry::reset`](crate::admin::Entry::reset) withdraws a finished answer, and another
/// [`Entry::resolve`](crate::admin::Entry::resolve) an operator's.
///
/// - By this engine: at once. From before the request to the store until `reset` has returned, and after it, the old
///   answer is not replayed by this engine.
/// - By another engine or process: the others are notified, which takes the time of a message. On Redis that is one
///   more connection per process and engine with a cache, which subscribes to the channel `{prefix}:resolved` and is
///   checked once a second. While it is down, the cache is empty and every call queries the store: during an outage of
///   Redis it does not answer either. The memory store notifies all engines on it.
/// - **In any case the old answer is replayed for no longer than `max_age` after the reset.** That is the promise, and
///   the only bound where the store sends no notifications: in SQL and layers on it, for a Redis user without the
///   rights (then there is a warning), and for records that are deleted or changed past idem. Time in which the machine
///   is suspended counts as far as [the clock](crate::clock::SystemClock) counts it: not on macOS.
///
/// So set `max_age` to the time that an operator can wait after a reset before the call is made again. A hot
/// key costs one request to the store in each `max_age`.
///
/// # Calls in a transaction
///
/// They are answered from the cache, and their committed answers are cached once they are replayed outside of a
/// transaction.
#[derive(Clone, Debug)]
#[must_use]
#[allow(
    clippy::struct_field_names,
    reason = "they are named as the settings are"
)]
pub struct LocalCache {
    max_entries: usize,
    max_bytes: usize,
    pub(super) max_age: Duration,
}

impl Default for LocalCache {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalCache {
    /// The default bounds.
    pub fn new() -> Self {
        Self {
            max_entries: 10_000,
            max_bytes: 32 << 20,
            max_age: Duration::from_secs(60),
        }
    }

    /// The most answers to keep; default 10,000, at least 1.
    ///
    /// Beyond that, an answer is evicted that has not been used recently.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// The most bytes of cached answers; default 32 MiB, at least 1 KiB.
    ///
    /// Each answer counts as it is stored, with 200 bytes for its bookkeeping. An answer of more than a thirty-second of
    /// this, or of 1 MiB where that is more, may find no room.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// How long an answer is used before the store is queried again.
    ///
    /// So also how long an answer that was withdrawn elsewhere may still be replayed; default 60 s, 1 ms to 24 h.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let day = Duration::from_secs(24 * 60 * 60);
        if self.max_entries == 0 {
            return Err("`max_entries` of the local cache must be at least 1".to_owned());
        }
        if self.max_bytes < 1 << 10 {
            return Err("`max_bytes` of the local cache must be at least 1 KiB".to_owned());
        }
        if !(Duration::from_millis(1)..=day).contains(&self.max_age) {
            return Err("`max_age` of the local cache must be 1 ms to 24 h".to_owned());
        }
        Ok(())
    }

    /// The number of shards, and the entries and bytes of each.
    pub(super) fn shards(&self) -> (usize, usize, usize) {
        let shards = (self.max_entries / ENTRIES_PER_SHARD)
            .min(self.max_bytes / BYTES_PER_SHARD)
            .clamp(1, SHARDS);
        (shards, self.max_entries / shards, self.max_bytes / shards)
    }
}
