//! Redirects, and errors after which the map of slots is queried again.

use redis::{RedisError, ServerErrorKind};

use super::slots::NAMELESS;
use crate::store::redis::address::Address;
use crate::store::redis::failure::{breaks_connection, is_replica_error, is_silence};
use crate::store::{StoreError, StoreErrorKind};

/// A redirect to another node.
pub(super) enum Redirect {
    Moved(Address),
    Ask(Address),
    /// To a node that is given by its port alone; the map names it.
    Nameless,
}

pub(super) fn redirect(error: &RedisError, said_by: &Address) -> Option<Redirect> {
    let (to, _) = error.redirect_node()?;
    if to.rsplit_once(':')?.0 == NAMELESS {
        return Some(Redirect::Nameless);
    }
    let to = Address::parse(to, said_by)?;
    Some(match error.kind() {
        redis::ErrorKind::Server(ServerErrorKind::Ask) => Redirect::Ask(to),
        _ => Redirect::Moved(to),
    })
}

pub(super) fn nameless() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "a key has moved to a node of the Redis cluster that has no name; set \
         `cluster-announce-hostname` on every node, or `cluster-preferred-endpoint-type ip`",
    )
}

/// Whether the map of slots may have changed: silence, a broken connection, a replica, a cluster without this slot.
pub(super) fn is_doubtful(error: &RedisError) -> bool {
    is_silence(error)
        || breaks_connection(error)
        || is_replica_error(error)
        || matches!(error.code(), Some("CLUSTERDOWN"))
}
