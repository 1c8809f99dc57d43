//! Query of a sentinel for the primary.

use redis::{RedisError, Value};

use crate::store::redis::address::{Address, place};
use crate::store::redis::connect::connect;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::failure::{is_unknown_user, store_error};
use crate::store::redis::limits::Limits;
use crate::store::redis::value::{pairs, text};
use crate::store::redis::wire::Words;
use crate::store::{StoreError, StoreErrorKind};

/// A primary, as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    /// Grows with every failover.
    pub(super) epoch: u64,
    pub(super) address: Address,
}

/// Queries a sentinel for the primary.
pub(super) async fn query(
    sentinel: Endpoint,
    service: String,
    limits: Limits,
) -> Result<Primary, StoreError> {
    let connected = connect(&sentinel, limits, None).await?;
    let wire = connected.map_err(|error| refused(&sentinel, error))?;
    // In this order: a sentinel that learns of a failover in between replies with the new address and the old epoch,
    // and does not take precedence.
    let state =
        |words: &mut Words<'_>| words.command(&[&[b"SENTINEL", b"MASTER", service.as_bytes()]]);
    let address = |words: &mut Words<'_>| {
        words.command(&[&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()]]);
    };
    let replies = wire.send(&state, Some(&address), false).await;
    let replies = replies.map_err(|error| refused(&sentinel, error))?;
    match (replies.first, replies.second.unwrap_or(Value::Nil)) {
        (Value::ServerError(error), _) | (_, Value::ServerError(error)) => {
            let error = RedisError::from(error);
            if error
                .detail()
                .is_some_and(|said| said.contains("No such master"))
            {
                return Err(StoreError::new(
                    StoreErrorKind::Refused,
                    format!(
                        "asking the sentinels for the primary: they do not watch a service \
                         `{service}`; compare the URL with `sentinel monitor` in their \
                         configuration"
                    ),
                ));
            }
            Err(refused(&sentinel, error))
        }
        (state, address) => primary(state, &address).ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Protocol,
                "asking the sentinels for the primary: one answered with something else",
            )
        }),
    }
}

/// Parses a sentinel's two replies.
///
/// They are those of `SENTINEL MASTER` (names and values) and of `SENTINEL GET-MASTER-ADDR-BY-NAME`. Only the second
/// names the new primary from its promotion on; the first names the old one until the sentinel that leads the failover
/// has reconfigured all replicas.
fn primary(state: Value, address: &Value) -> Option<Primary> {
    let mut epoch = 0;
    for (name, value) in pairs(state)? {
        if text(&name)? == "config-epoch" {
            epoch = text(&value).and_then(|epoch| epoch.parse().ok())?;
        }
    }
    let Value::Array(address) = address else {
        return None;
    };
    let [host, port] = &address[..] else {
        return None;
    };
    let (host, port) = (text(host)?, text(port)?.parse().ok()?);
    Some(Primary {
        epoch,
        address: Address { host, port },
    })
}

fn refused(sentinel: &Endpoint, error: RedisError) -> StoreError {
    let what = format!("asking the sentinel at {} for the primary", place(sentinel));
    let says = |words| error.detail().is_some_and(|said| said.contains(words));
    if is_unknown_user(&error) && sentinel.was_accepted() {
        let message = format!("{what}: it does not accept the credentials of the provider");
        return StoreError::new(StoreErrorKind::Unavailable, message).answered();
    }
    if is_unknown_user(&error) {
        return StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "{what}: it does not accept the user or password, or asks for one; those of the URL \
                 are the server's, and `RedisStoreBuilder::sentinel_credentials` sets the sentinels'"
            ),
        );
    }
    if error.code() == Some("ERR") && says("unknown command") {
        return StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "{what}: this is no sentinel; the hosts of `redis+sentinel://` are those of the \
                 sentinels, port 26379 unless it is written"
            ),
        );
    }
    store_error(&what, error)
}

pub(super) fn unavailable(why: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("asking the sentinels for the primary: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Value {
        let words = words.iter();
        Value::Array(
            words
                .map(|word| Value::BulkString(word.as_bytes().to_vec()))
                .collect(),
        )
    }

    #[test]
    fn a_sentinel_that_leads_a_failover_names_the_new_primary() {
        let state = words(&[
            "name",
            "payments",
            "ip",
            "10.0.0.1",
            "port",
            "6379",
            "flags",
            "master,failover_in_progress",
            "config-epoch",
            "7",
        ]);
        let found = primary(state.clone(), &words(&["10.0.0.2", "6380"])).unwrap();
        assert_eq!(found.epoch, 7);
        assert_eq!(found.address.to_string(), "10.0.0.2:6380");
        for address in [Value::Nil, words(&["10.0.0.2"]), words(&["10.0.0.2", "x"])] {
            assert_eq!(primary(state.clone(), &address), None);
        }
        assert_eq!(primary(Value::Nil, &words(&["10.0.0.2", "6380"])), None);
    }
}
