//! Counters of the local cache.

/// Counters of an engine's local cache, for metrics: see
/// [`Engine::local_cache_stats`](crate::Engine::local_cache_stats).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LocalCacheStats {
    /// Cached answers, including some that have expired.
    pub entries: usize,
    /// Size of the cached answers, in bytes, bookkeeping included.
    pub bytes: usize,
    /// Calls that were answered from the cache.
    pub hits: u64,
    /// Lookups that found no answer.
    pub misses: u64,
    /// Answers that were evicted to make room for others.
    pub evictions: u64,
    /// Number of resolutions and resets of keys, by any process.
    pub invalidations: u64,
    /// Whether answers are cached and returned. Not before the store notifies of withdrawals by other engines, or has
    /// said that it never does, and not while the connection for these notifications is down.
    pub is_open: bool,
}
