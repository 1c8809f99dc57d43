//! Lists records, a block of the primary key at a time.
//!
//! A block is a bounded range of the key, in its order, so that no index but the primary key is needed and no statement
//! examines more than a block, however few of its records match. The last row of a block is returned in any case,
//! because the next block begins behind it. MariaDB reads a block twice for that.

use std::fmt::Write as _;

use super::argument::SqlArgument;
use super::primary_key::{PRIMARY_KEY_LEN, PrimaryKey, digest_at, from_hex, primary_key_bounds};
use super::queue::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::{Operation, RecordKey};
use crate::store::listing::EntryFilter;
use crate::store::{
    EXAMINED, ListReply, ListRequest, Listed, StoreError, StoreErrorKind, no_position,
};

const WHAT: &str = "a listing";

/// The states of records that may pass the filter, as in headers.
fn states(filter: EntryFilter) -> &'static str {
    match filter {
        EntryFilter::Any => "",
        EntryFilter::Running => "PWQ",
        EntryFilter::Abandoned => "PW",
        EntryFilter::Released => "R",
        EntryFilter::Answered => "DE",
        EntryFilter::NotStored => "T",
        EntryFilter::Unknown => "UQ",
        EntryFilter::Exhausted => "PWR",
    }
}

/// The primary keys of a step.
struct KeyRange {
    first: PrimaryKey,
    last: PrimaryKey,
}

impl KeyRange {
    fn of(request: &ListRequest) -> Result<Self, StoreError> {
        let [first, last] = match &request.operation {
            Some(operation) => primary_key_bounds(&request.prefix, operation.as_str()),
            None => [[0; PRIMARY_KEY_LEN], [0xff; PRIMARY_KEY_LEN]],
        };
        let first = match request.after.as_deref() {
            None => first,
            Some(text) => {
                let at = from_hex(text).ok_or_else(no_position)?;
                if at < first || at > last {
                    return Err(no_position());
                }
                at
            }
        };
        Ok(Self { first, last })
    }

    /// The start of the step after this record.
    fn behind(&self, primary_key: &PrimaryKey) -> Option<String> {
        let next = successor(*primary_key).filter(|next| *next <= self.last)?;
        Some(next.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

/// The primary key directly behind this one.
fn successor(mut primary_key: PrimaryKey) -> Option<PrimaryKey> {
    for byte in primary_key.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(primary_key);
        }
    }
    None
}

/// The key of a row of the requested prefix and operation.
fn key(request: &ListRequest, primary_key: &PrimaryKey, shown: &str) -> Option<RecordKey> {
    let operation = match &request.operation {
        Some(operation) => operation.clone(),
        None => Operation::new(shown.to_owned()),
    };
    let digest = digest_at(primary_key, &request.prefix, operation.as_str())?;
    Some(RecordKey::new(request.prefix.clone(), operation, digest))
}

/// Whether the table may have only a part of this name.
///
/// Then the operation of the record is unknown: see [`displayed_operation`](super::columns::displayed_operation).
fn is_cut(request: &ListRequest, shown: &str) -> bool {
    request.operation.is_none() && (shown.len() >= 252 || shown.contains('\u{fffd}'))
}

impl SqlStoreState {
    pub(super) async fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let range = KeyRange::of(request)?;
        let limit = request.limit.clamp(1, EXAMINED);
        // Every row of the block is listed, unless it has expired or has another prefix.
        let examined = request.examined.clamp(1, EXAMINED);
        let rows = if request.wants_all() {
            limit.min(examined)
        } else {
            examined
        };
        let arguments = [
            SqlArgument::Bytes(&range.first),
            SqlArgument::Bytes(&range.last),
            SqlArgument::Int(i64::try_from(rows).unwrap_or(i64::MAX)),
            SqlArgument::Text(states(request.filter)),
            SqlArgument::Int(request.min_attempts.into()),
        ];
        let statement = &self.statements.list;
        let answer = (self.listing_pool)
            .run((WHAT, Priority::Other), statement, &arguments)
            .await?;
        let mut reply = ListReply::default();
        for (primary_key, shown, row) in answer.block {
            if primary_key < range.first || primary_key > range.last {
                let message = format!(
                    "{WHAT}: {} gave a record that was not asked for",
                    self.dialect.name
                );
                return Err(StoreError::new(StoreErrorKind::Protocol, message));
            }
            reply.next = range.behind(&primary_key);
            let Some(key) = key(request, &primary_key, &shown) else {
                reply.unreadable += u64::from(is_cut(request, &shown) && row.is_alive());
                continue;
            };
            match row.record() {
                Ok(None) => {}
                Ok(Some((record, left))) => {
                    if request.wants(&record.header, left) {
                        reply.found.push(Listed::new(key, record.header, left));
                    }
                }
                Err(_) => reply.unreadable += 1,
            }
            if reply.found.len() == limit {
                break;
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::KeyDigest;
    use crate::store::sql::primary_key::primary_key;

    fn request(operation: Option<&'static str>) -> ListRequest {
        ListRequest {
            operation: operation.map(Operation::new),
            ..ListRequest::new("shop".into())
        }
    }

    #[test]
    fn a_position_is_the_primary_key_behind_the_last_record() {
        let of_pay = KeyRange::of(&request(Some("pay"))).unwrap();
        let digest = KeyDigest::from_bytes([0x2a; 32]);
        let at = primary_key(&RecordKey::new(
            "shop".into(),
            Operation::new("pay"),
            digest,
        ));
        assert!(of_pay.first < at && at < of_pay.last);
        let next = of_pay.behind(&at);
        let after = |after| ListRequest {
            after,
            ..request(Some("pay"))
        };
        let rest = KeyRange::of(&after(next.clone())).unwrap();
        assert!(at < rest.first && rest.last == of_pay.last);
        assert_eq!(successor(at), Some(rest.first));
        assert_eq!(of_pay.behind(&of_pay.last), None);
        for wrong in [
            Some(String::new()),
            Some("7".to_owned()),
            next.as_ref().map(|next| next[1..].to_owned()),
            next.as_ref().map(|next| next.replacen(|_| true, "x", 1)),
            // Of another operation.
            KeyRange::of(&request(Some("refund")))
                .unwrap()
                .behind(&[0; PRIMARY_KEY_LEN]),
        ] {
            assert!(KeyRange::of(&after(wrong.clone())).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn no_primary_key_follows_the_last() {
        assert_eq!(successor([0xff; PRIMARY_KEY_LEN]), None);
        let mut primary_key = [0; PRIMARY_KEY_LEN];
        primary_key[PRIMARY_KEY_LEN - 2..].copy_from_slice(&[1, 0xff]);
        let next = successor(primary_key).unwrap();
        assert_eq!(next[PRIMARY_KEY_LEN - 2..], [2, 0]);
    }

    #[test]
    fn a_primary_key_contains_the_digest_of_its_operation_only() {
        let digest = KeyDigest::from_bytes(std::array::from_fn(|byte| u8::try_from(byte).unwrap()));
        let key_of = |operation: &'static str| {
            RecordKey::new("shop".into(), Operation::new(operation), digest)
        };
        let at = primary_key(&key_of("pay"));
        assert_eq!(digest_at(&at, "shop", "pay"), Some(digest));
        assert_eq!(digest_at(&at, "shop", "refund"), None);
        assert_eq!(digest_at(&at, "shopp", "ay"), None);
        let of = |request, shown| key(&request, &at, shown);
        assert_eq!(of(request(None), "pay"), Some(key_of("pay")));
        assert_eq!(of(request(None), "pa"), None, "a name that was cut");
        assert_eq!(of(request(Some("pay")), "pa"), Some(key_of("pay")));
    }
}
