//! Mapping of `ZooKeeper`'s errors to store errors.

use idem_runtime::store::{StoreError, StoreErrorKind};
use zookeeper_client::Error;

/// The error for the engine. `what` names the operation, as in "a claim".
pub(super) fn store_error(what: &str, error: Error) -> StoreError {
    use StoreErrorKind::{Full, Protocol, Refused, Unavailable};
    let (kind, advice) = match &error {
        Error::NoHosts => (
            Unavailable,
            "no server answers at the address of ZooKeeper; is one up? \
             (`zkServer.sh start-foreground`)",
        ),
        Error::Timeout => (Unavailable, "ZooKeeper did not answer in time"),
        Error::ConnectionLoss | Error::ClientClosed | Error::Custom(_) => {
            (Unavailable, "the connection to ZooKeeper is lost")
        }
        Error::SessionExpired | Error::SessionMoved => {
            (Unavailable, "the session with ZooKeeper is over")
        }
        Error::NotReadOnly => (
            Unavailable,
            "this server has lost its quorum and only reads; wait until there is a leader",
        ),
        Error::Throttled => (Unavailable, "ZooKeeper has too much to do"),
        Error::QuotaExceeded => (
            Full,
            "a quota of ZooKeeper is used up; do not enforce one on the records, since finished \
             answers need room too",
        ),
        Error::NoAuth => (
            Refused,
            "the ACL of a node does not give this client the rights cdrw",
        ),
        Error::AuthFailed => (Refused, "ZooKeeper does not accept who we say we are"),
        Error::InvalidAcl => (Refused, "ZooKeeper does not accept the ACL of a new node"),
        Error::NoNode => (
            Refused,
            "the root under which the records are to stand does not exist; create its parent \
             (a chroot in the address)",
        ),
        Error::BadArguments(_) => (
            Refused,
            "this is no address or no path for ZooKeeper: `host:port,…/chroot`",
        ),
        // Also returned by a client whose runtime has ended.
        Error::UnexpectedError(_) => (Unavailable, "the session with ZooKeeper is broken"),
        _ => (Protocol, "ZooKeeper refused"),
    };
    StoreError::new(kind, format!("{what}: {advice}")).because(error)
}
