//! What a cache has done.

/// Counters of an engine's local cache, for metrics: see
/// [`Engine::local_cache_stats`](crate::Engine::local_cache_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalCacheStats {
    /// Answers that are kept, among them some whose time is over.
    pub entries: usize,
    /// What they take, in bytes, bookkeeping included.
    pub bytes: usize,
    /// Calls that were answered from here.
    pub hits: u64,
    /// Calls that were looked for and not found.
    pub misses: u64,
    /// Answers that went to make room for others.
    pub evictions: u64,
    /// How often somebody, in whatever process, resolved or reset a key.
    pub invalidations: u64,
    /// Whether anything is kept and answered. Not before the store tells of what others take back, and
    /// not while the connection on which it does is down.
    pub is_open: bool,
}
