//! Lists records by shard, in the order of their digests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Inner, SHARDS, lock};
use crate::identity::key::KeyDigest;
use crate::record::{Header, Unreadable};
use crate::store::{ListReply, ListRequest, Listed, RecordKey, StoreError, no_position};

/// The start of a step.
///
/// It is behind a digest of a shard, or at the start of one. Records of one digest belong to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    shard: usize,
    behind: Option<KeyDigest>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shard)?;
        match self.behind {
            Some(behind) => write!(f, ".{behind}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Position {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (shard, behind) = match text.split_once('.') {
            Some((shard, behind)) => (shard, Some(behind)),
            None => (text, None),
        };
        let shard = shard.parse().ok().filter(|shard| *shard < SHARDS);
        let behind = behind.map(str::parse).transpose();
        match (shard, behind) {
            (Some(shard), Ok(behind)) => Ok(Self { shard, behind }),
            _ => Err(no_position()),
        }
    }
}

/// A record that a step examines.
struct Met {
    key: RecordKey,
    header: Result<Header, Unreadable>,
    left: Duration,
}

impl Inner {
    pub(super) fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let start = Position {
            shard: 0,
            behind: None,
        };
        let at = request.after.as_deref().map(str::parse).transpose()?;
        let at: Position = at.unwrap_or(start);
        let mut met = self.met(request, at);
        met.sort_unstable_by_key(|met| *met.key.digest().as_bytes());
        let mut cut = request.limit.max(1).min(met.len());
        while cut < met.len() && met[cut].key.digest() == met[cut - 1].key.digest() {
            cut += 1;
        }
        let next = if cut < met.len() {
            let behind = Some(*met[cut - 1].key.digest());
            Some(Position { behind, ..at })
        } else {
            let shard = at.shard + 1;
            (shard < SHARDS).then_some(Position { shard, ..start })
        };
        let mut reply = ListReply {
            next: next.map(|next| next.to_string()),
            ..ListReply::default()
        };
        for Met { key, header, left } in met.drain(..cut) {
            match header {
                Ok(header) => reply.found.push(Listed::new(key, header, left)),
                Err(_) => reply.unreadable += 1,
            }
        }
        Ok(reply)
    }

    /// The records of a shard that match the request, or are unreadable.
    fn met(&self, request: &ListRequest, at: Position) -> Vec<Met> {
        let now = self.clock.now();
        let shard = lock(&self.parts[at.shard].shard);
        let mut met = Vec::new();
        for (key, slot) in shard.all_alive(now) {
            let is_of = key.prefix() == &*request.prefix
                && (request.operation.as_ref()).is_none_or(|of| of == key.operation())
                && (at.behind.as_ref())
                    .is_none_or(|behind| key.digest().as_bytes() > behind.as_bytes());
            if !is_of {
                continue;
            }
            let left = slot.expires.saturating_sub(now);
            let header = Header::decode(&slot.bytes);
            if header
                .as_ref()
                .is_ok_and(|header| !request.wants(header, left))
            {
                continue;
            }
            let key = key.clone();
            met.push(Met { key, header, left });
        }
        met
    }
}
