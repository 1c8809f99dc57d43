//! What Redis' errors mean for a store.

use redis::RedisError;

use super::super::{StoreError, StoreErrorKind};

/// A server that does not know the script: asked again with its source.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// The key holds a list, a hash, …. Redis 7 keeps the code; Redis 6 wraps it into its message.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
        || error
            .detail()
            .is_some_and(|detail| detail.contains("WRONGTYPE"))
}

/// Whether the connection is of no more use.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    !error.is_timeout() && (error.is_connection_dropped() || error.is_io_error())
}

/// The error for the engine. `what` is what was tried, as in "a claim".
pub(super) fn store_error(what: &str, error: RedisError) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    // A script's error hides its cause's code in its text on Redis 6.
    let oom = error.detail().is_some_and(|detail| detail.contains("OOM "));
    let (kind, advice) = match error.code() {
        Some("OOM") => (Full, OUT_OF_MEMORY),
        Some("READONLY") => (
            Unavailable,
            "this server is a replica; connect to the primary, or wait for the failover to finish",
        ),
        Some("LOADING") => (
            Unavailable,
            "Redis is loading its data; it will be ready soon",
        ),
        Some("MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN") => (
            Unavailable,
            "Redis has no primary for this key right now; wait for the failover to finish",
        ),
        Some("NOREPLICAS") => (
            Unavailable,
            "Redis has too few replicas to accept writes (`min-replicas-to-write`)",
        ),
        Some("MISCONF") => (
            Unavailable,
            "Redis cannot write its snapshot and refuses writes; look at its disk and its log",
        ),
        Some("BUSY") => (Unavailable, "Redis is busy with somebody's long script"),
        Some("NOAUTH" | "WRONGPASS") => (
            Refused,
            "Redis does not accept the user or password of the URL",
        ),
        Some("NOPERM") => (
            Refused,
            "the Redis user lacks a right; see the ACL line in the documentation of `RedisStore`",
        ),
        _ if oom => (Full, OUT_OF_MEMORY),
        _ if error.is_timeout() => (Unavailable, "Redis did not answer in time"),
        _ if error.is_connection_refusal() => (
            Unavailable,
            "nothing listens at the address of Redis; is the server up?",
        ),
        _ if error.is_connection_dropped() || error.is_io_error() => {
            (Unavailable, "the connection to Redis is lost")
        }
        Some(_) | None => (Protocol, "Redis refused"),
    };
    let code = error
        .code()
        .map_or(String::new(), |code| format!(" [{code}]"));
    StoreError::new(kind, format!("{what}: {advice}{code}")).because(error)
}

const OUT_OF_MEMORY: &str =
    "Redis is out of memory (`maxmemory`); finished answers are still replayed";
