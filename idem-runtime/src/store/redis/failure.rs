//! What Redis' errors mean for a store.

use redis::{ErrorKind, RedisError};

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
    let lost = error.is_connection_dropped() || error.is_io_error();
    (lost && !error.is_timeout()) || has_no_room(error)
}

/// The server's last words on a connection beyond `maxclients`. They answer whatever was sent
/// first.
fn has_no_room(error: &RedisError) -> bool {
    says(error, "max number of clients reached")
}

/// The user may run the script, but not a command in it: an error without a code of its own.
fn lacks_a_right_in_a_script(error: &RedisError) -> bool {
    says(error, "executing the script") || says(error, "NOPERM")
}

/// The client library answers a failed `SELECT` in its own words.
fn has_no_such_database(error: &RedisError) -> bool {
    error.to_string().contains("refused to switch database")
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// The error of a connection that cannot be made. `known` says that one was made before.
pub(super) fn connect_error(error: RedisError, known: bool) -> StoreError {
    let refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.kind() == ErrorKind::AuthenticationFailed;
    if known && refused {
        // Somebody is changing the password, or the server refuses for want of room, which the
        // client library reports as the same. A finished answer must not be given up for that.
        return StoreError::new(StoreErrorKind::Unavailable, NO_MORE).because(error);
    }
    store_error("connecting to Redis", error)
}

/// The error for the engine. `what` is what was tried, as in "a claim".
pub(super) fn store_error(what: &str, error: RedisError) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    // A script's error hides its cause's code in its text on Redis 6.
    let oom = says(&error, "OOM ");
    let (kind, advice) = match error.code() {
        _ if has_no_room(&error) => (
            Unavailable,
            "Redis takes no more connections (`maxclients`)",
        ),
        _ if has_no_such_database(&error) => (
            Refused,
            "Redis does not let this user have the database of the URL; there are 16 unless it is \
             told otherwise (`databases`), and choosing one takes the right `+select`",
        ),
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
        Some("NOAUTH" | "WRONGPASS") => (Refused, WHO),
        _ if error.kind() == ErrorKind::AuthenticationFailed => (Refused, WHO),
        Some("NOPERM") => (Refused, RIGHTS),
        _ if lacks_a_right_in_a_script(&error) => (Refused, RIGHTS),
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
const WHO: &str = "Redis does not accept the user or password of the URL";
const NO_MORE: &str = "connecting to Redis: Redis does not accept the user or password of the URL \
                       any more, or takes no more connections (`maxclients`)";
const RIGHTS: &str =
    "the Redis user lacks a right; see the ACL line in the documentation of `RedisStore`";
