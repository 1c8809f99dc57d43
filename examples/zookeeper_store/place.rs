//! Path and bytes of a record.
//!
//! ```text
//! /idem/clock                        written by every operation, for its time
//! /idem/records/2a/shop:pay:2a…      a record; 2a is the first byte of its digest
//! ```
//!
//! `ZooKeeper` answers a list of children in one packet of at most 1 MiB, so records are not in
//! one folder: 256 shards hold some two million names that can still be listed.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::{MAX_RETAIN, Record, Unreadable};

/// The largest record, in bytes. A server reads packets of 1 MiB less one unless it is configured
/// otherwise (`jute.maxbuffer`), and closes the connection of a client that sends more; the rest is for
/// the path and the other parts of the packet.
pub const LARGEST: usize = (1 << 20) - (8 << 10);

/// Length of the prefix of a record's data: a mark of three bytes, and its life.
const FRAME: usize = 8;
const MARK: &[u8; 3] = b"idm";

/// The nodes of one key.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder. The version of its data is the generation of its records: it is incremented before a record is
    /// deleted.
    pub shard: String,
    /// The record.
    pub node: String,
}

impl Place {
    /// The nodes of `key` under `root`.
    pub fn of(root: &str, key: &RecordKey) -> Self {
        let digest = hex(key.digest().as_bytes());
        let shard = format!("{}/{}", records(root), &digest[..2]);
        let mut node = format!("{shard}/");
        escape(&mut node, key.prefix());
        node.push(':');
        escape(&mut node, key.operation().as_str());
        node.push(':');
        node.push_str(&digest);
        Self { shard, node }
    }
}

/// The node that is written to read the server's time.
pub fn clock(root: &str) -> String {
    format!("{root}/clock")
}

/// The folder of the shards.
pub fn records(root: &str) -> String {
    format!("{root}/records")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Appends arbitrary text as a part of a node's name. Different texts stay different.
fn escape(name: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                name.push(char::from(byte));
            }
            _ => {
                let _ = write!(name, "%{byte:02X}");
            }
        }
    }
}

/// The data of a node: a record with its life, counted from the time of the write. That
/// time is the server's own, `mtime`, so that no client clock is involved.
pub fn data(record: &[u8], life: Duration) -> Vec<u8> {
    let millis = u64::try_from(life.min(MAX_RETAIN).as_millis()).unwrap_or(u64::MAX);
    // Bounded to 40 bits, as every life of a record is.
    [MARK, &millis.to_be_bytes()[3..], record].concat()
}

/// Decodes data by the server's times of the write and this read: the bytes of a record and its remaining life, or
/// `None` if it has expired.
///
/// # Errors
///
/// [`Unreadable::Type`] if the data is foreign.
pub fn bytes(
    data: Vec<u8>,
    written_ms: i64,
    now_ms: i64,
) -> Result<Option<(Bytes, Duration)>, Unreadable> {
    let life = match data.first_chunk::<FRAME>() {
        Some([b'i', b'd', b'm', life @ ..]) => life.iter().fold(0, |n, b| n << 8 | i64::from(*b)),
        _ => return Err(Unreadable::Type),
    };
    let left = written_ms.saturating_add(life).saturating_sub(now_ms);
    Ok(match u64::try_from(left) {
        Ok(0) | Err(_) => None,
        // Never more than the original life: after a failover the clock is that of another server.
        Ok(left) => {
            let left = left.min(life.unsigned_abs());
            Some((
                Bytes::from(data).slice(FRAME..),
                Duration::from_millis(left),
            ))
        }
    })
}

/// As [`bytes()`], and decoded.
///
/// # Errors
///
/// [`Unreadable`] if the data has not expired and is not a record of this version.
pub fn record(
    data: Vec<u8>,
    written_ms: i64,
    now_ms: i64,
) -> Result<Option<(Record, Duration)>, Unreadable> {
    let Some((bytes, left)) = bytes(data, written_ms, now_ms)? else {
        return Ok(None);
    };
    Ok(Some((Record::decode(bytes)?, left)))
}

#[cfg(test)]
mod tests {
    use idem_runtime::key::{KeyDigest, Operation};

    use super::*;

    fn place(prefix: &str, operation: &'static str) -> Place {
        let digest = KeyDigest::from_bytes([0x2a; 32]);
        Place::of(
            "/idem",
            &RecordKey::new(prefix.into(), Operation::new(operation), digest),
        )
    }

    #[test]
    fn a_name_needs_no_quoting() {
        let place = place("a/b", "pay: «x»");
        let name = place.node.strip_prefix("/idem/records/2a/").unwrap();
        assert!(name.starts_with("a%2Fb:pay%3A%20%C2%ABx%C2%BB:2a2a"));
        assert!(!name.contains('/'));
    }

    #[test]
    fn a_record_lives_from_the_moment_at_which_the_server_wrote_it() {
        let life = Duration::from_millis(500);
        let left = |now_ms| {
            let found = bytes(data(b"a record", life), 1_000, now_ms).unwrap();
            found.map(|(_, left)| left.as_millis())
        };
        assert_eq!(left(1_000), Some(500));
        assert_eq!(left(1_499), Some(1));
        assert_eq!(left(1_500), None);
        // Another server's clock is behind.
        assert_eq!(left(700), Some(500));

        let stranger = bytes(b"somebody else's".to_vec(), 1_000, 9_000);
        assert_eq!(stranger, Err(Unreadable::Type));
        assert_eq!(
            record(data(b"9", life), 1_000, 1_000),
            Err(Unreadable::Layout { byte: b'9' })
        );
        assert_eq!(record(data(b"9", life), 1_000, 1_500), Ok(None));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(place("a:b", "c").node, place("a", "b:c").node);
        assert_ne!(place("a%3A", "c").node, place("a:", "c").node);
    }
}
