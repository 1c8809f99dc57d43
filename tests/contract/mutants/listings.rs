//! The listings of a store.

use std::time::Duration;

use idem_runtime::clock::Clock;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::{
    admin::EntryFilter,
    store::{Header, ListReply, ListRequest, Listed, RecordKey, StoreError, StoreErrorKind},
};

use crate::flaw::Flaw;
use crate::store::{Inner, Name};

/// A position is the name behind which a step begins.
fn position(name: &Name) -> String {
    let (_, operation, digest) = name;
    format!("at:{:02x?}:{digest:02x?}", operation.as_bytes())
}

impl Inner {
    /// The names under the requested prefix, in order.
    fn names(&self, request: &ListRequest) -> Vec<Name> {
        let is_asked = |(prefix, operation, _): &&Name| {
            let is_of = match self.flaw {
                Flaw::ListsOtherPrefixes => prefix.starts_with(&*request.prefix),
                _ => *prefix == *request.prefix,
            };
            let asked = request.operation.as_ref().map(Operation::as_str);
            is_of
                && asked.is_none_or(|asked| {
                    let is_alike =
                        self.is(Flaw::ListsOtherOperations) && operation.starts_with(asked);
                    is_alike || operation == asked
                })
        };
        let now = self.clock.now();
        let records = self.lock();
        // A number counts living records only.
        let is_there = |expires| expires > now || !self.is(Flaw::ListsByNumber);
        let alive = records
            .iter()
            .filter(|(_, (_, expires))| is_there(*expires));
        let mut names: Vec<_> = alive
            .map(|(name, _)| name)
            .filter(is_asked)
            .cloned()
            .collect();
        names.sort_by_cached_key(position);
        names
    }

    pub(crate) fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        if self.is(Flaw::CannotListUnlessAsked) && request.filter != EntryFilter::Any {
            return Ok(ListReply::default());
        }
        if self.is(Flaw::CannotListUnlessAsked) {
            return Err(StoreError::new(StoreErrorKind::Unsupported, "not here"));
        }
        let names = self.names(request);
        let mut at = match request.after.as_deref() {
            None => 0,
            Some(after) if self.is(Flaw::ListsByNumber) => {
                after.parse().map_err(|_| no_position())?
            }
            Some(after) => match after.starts_with("at:") {
                true => names.partition_point(|name| position(name).as_str() <= after),
                false if self.is(Flaw::ListsFromTheStartWhereLost) => 0,
                false => return Err(no_position()),
            },
        };
        let mut reply = ListReply::default();
        while let Some(name) = names.get(at) {
            at += 1;
            self.show(request, name, &mut reply);
            if reply.found.len() >= request.limit && !self.is(Flaw::ListsAtOnce) {
                reply.next = Some(match self.flaw {
                    Flaw::ListsByNumber => at.to_string(),
                    _ => position(name),
                });
                break;
            }
        }
        if self.is(Flaw::ListsAllButTheLastOfAStep) && reply.next.is_some() {
            reply.found.pop();
        }
        Ok(reply)
    }

    /// Puts a record into the reply, if it is requested.
    fn show(&self, request: &ListRequest, name: &Name, reply: &mut ListReply) {
        let (_, operation, digest) = name;
        let Ok(digest) = <[u8; 32]>::try_from(digest.as_slice()) else {
            return;
        };
        let digest = KeyDigest::from_bytes(digest);
        let operation = Operation::new(operation.clone());
        let key = RecordKey::new(name.0.as_str().into(), operation, digest);
        let Some((bytes, left)) = self.bytes(&key).or_else(|| {
            let expired = self.lock().get(name).cloned();
            let (bytes, _) = expired.filter(|_| self.is(Flaw::ListsTheExpired))?;
            Some((bytes, Duration::from_millis(1)))
        }) else {
            return;
        };
        let Ok(header) = Header::decode(&bytes) else {
            reply.unreadable += u64::from(!self.is(Flaw::ListsWithoutTheUnreadable));
            return;
        };
        let wanted = match self.flaw {
            Flaw::ListsEveryState => header.attempts >= request.min_attempts,
            Flaw::ListsEveryAttempt => request.filter.matches(&header, left),
            _ => request.wants(&header, left),
        };
        if wanted {
            let left = match self.flaw {
                Flaw::ListsWithTheFullLife => header.retain,
                _ => left,
            };
            reply.found.push(Listed::new(key, header, left));
        }
    }
}

fn no_position() -> StoreError {
    StoreError::new(StoreErrorKind::InvalidCursor, "no position")
}
