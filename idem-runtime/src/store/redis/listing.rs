//! Listing of records: `SCAN`, and the header of each name that it returns.
//!
//! `SCAN` returns each name that exists throughout at least once, and some twice. `COUNT` bounds the cost of a step: it
//! ends with the bucket in which the count is reached. A step that returns more records than requested is repeated
//! with a lower count, which `SCAN` allows at any time.

use std::fmt;
use std::str::FromStr;

use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::failure::Failure;
use super::script::unexpected;
use super::server::RedisServer;
use super::store::RedisCore;
use super::topology::Topology;
use super::wire::text;
use crate::identity::operation::{Operation, RecordKey};
use crate::record::{HEADER, Header};
use crate::store::{
    EXAMINED, ListReply, ListRequest, Listed, StoreError, StoreErrorKind, no_position,
};

const WHAT: &str = "a listing";

/// Number of headers that are read at once.
const BATCH: usize = 64;

/// Position at which a step begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ScanPosition {
    /// The cursor of `SCAN`; 0 at the start.
    cursor: u64,
    /// In a cluster: the number of its map, and the node.
    node: Option<(u64, String)>,
}

impl fmt::Display for ScanPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cursor)?;
        match &self.node {
            Some((map, node)) => write!(f, ".{map:016x}.{node}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ScanPosition {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let read = || {
            let Some((cursor, place)) = text.split_once('.') else {
                let cursor = text.parse().ok()?;
                return Some(Self { cursor, node: None });
            };
            let (map, node) = place.split_once('.')?;
            let map = u64::from_str_radix(map, 16).ok()?;
            Some(Self {
                cursor: cursor.parse().ok()?,
                node: Some((map, node.to_owned())),
            })
        };
        read().ok_or_else(no_position)
    }
}

/// The names of a listing's records, and the key of each.
struct Names<'a> {
    request: &'a ListRequest,
    start: String,
    /// The operation as names contain it: 48 bytes at most.
    operation: Option<String>,
}

impl<'a> Names<'a> {
    fn new(request: &'a ListRequest) -> Self {
        let operation = request.operation.as_ref().map(|operation| {
            let mut plain = String::new();
            operation.plain(&mut plain);
            plain
        });
        Self {
            request,
            start: format!("{}:", request.prefix),
            operation,
        }
    }

    fn pattern(&self) -> String {
        let mut pattern = String::new();
        let operation = self.operation.iter().flat_map(|name| [name, ":"]);
        for character in [&*self.start]
            .into_iter()
            .chain(operation)
            .flat_map(str::chars)
        {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern
    }

    /// The key of the record with this name.
    ///
    /// Its operation is the one in the name, which abbreviates a long one and replaces some characters; the record is
    /// the same.
    fn key(&self, name: &str) -> Option<RecordKey> {
        let (plain, digest) = name.strip_prefix(&self.start)?.rsplit_once(':')?;
        let digest = digest.parse().ok()?;
        let operation = match (&self.operation, &self.request.operation) {
            (Some(of), _) if of != plain => return None,
            (Some(_), Some(asked)) if asked.as_str() == plain => asked.clone(),
            _ => Operation::new(plain.to_owned()),
        };
        let key = RecordKey::new(self.request.prefix.clone(), operation, digest);
        (key.name() == name).then_some(key)
    }
}

/// The cursor and the names of a reply to `SCAN`.
fn scanned(reply: Value) -> Option<(u64, Vec<String>)> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [cursor, Value::Array(names)] = &parts[..] else {
        return None;
    };
    // A name that is not text belongs to no record.
    let names = names.iter().filter_map(text).collect();
    Some((text(cursor)?.parse().ok()?, names))
}

/// Index of the node of a step among the sorted nodes.
fn node_index<N>(
    nodes: &[(String, N)],
    map: u64,
    at: Option<&(u64, String)>,
) -> Result<usize, StoreError> {
    let node = match at {
        None => (!nodes.is_empty()).then_some(0),
        Some((known, _)) if *known != map => None,
        Some((_, node)) => nodes.iter().position(|(name, _)| name == node),
    };
    node.ok_or_else(|| {
        let message = "a slot of the Redis cluster has moved since this listing began, and a record with it that was \
                       not listed; begin the listing again";
        StoreError::new(StoreErrorKind::InvalidCursor, message)
    })
}

impl RedisCore {
    pub(super) async fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let topology = &self.listing;
        let at = request.after.as_deref().map(str::parse).transpose()?;
        let at: ScanPosition = at.unwrap_or_default();
        let cluster = match topology {
            Topology::Single(_) if at.node.is_some() => return Err(no_position()),
            Topology::Single(server) => {
                let (mut reply, cursor) = self.step(topology, server, at.cursor, request).await?;
                let node = None;
                reply.next = (cursor != 0).then(|| ScanPosition { cursor, node }.to_string());
                return Ok(reply);
            }
            Topology::Cluster(cluster) => cluster,
        };
        if at.node.is_none() && at.cursor != 0 {
            return Err(no_position());
        }
        let primaries = cluster.primaries().await?;
        let map = cluster.map_number();
        let mut nodes: Vec<_> = primaries
            .into_iter()
            .map(|(at, node)| (at.to_string(), node))
            .collect();
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let index = node_index(&nodes, map, at.node.as_ref())?;
        let (name, node) = &nodes[index];
        let (mut reply, cursor) = self.step(topology, node, at.cursor, request).await?;
        let next = if cursor == 0 {
            nodes.get(index + 1).map(|(name, _)| name)
        } else {
            Some(name)
        };
        reply.next = next.map(|name| {
            let node = Some((map, name.clone()));
            ScanPosition { cursor, node }.to_string()
        });
        Ok(reply)
    }

    /// The records of a step on one server, and the next cursor; 0: at the end.
    async fn step(
        &self,
        topology: &Topology,
        node: &RedisServer,
        cursor: u64,
        request: &ListRequest,
    ) -> Result<(ListReply, u64), StoreError> {
        let names = Names::new(request);
        let limit = request.limit.clamp(1, EXAMINED);
        let mut count = request.examined.clamp(1, EXAMINED);
        loop {
            let mut scan = Cmd::new();
            scan.arg("SCAN").arg(cursor.to_string());
            scan.arg("MATCH").arg(names.pattern());
            scan.arg("COUNT").arg(count.to_string());
            scan.arg("TYPE").arg("string");
            let reply = node.query(&scan).await.map_err(refused)?;
            let (next, mut found) = scanned(reply).ok_or_else(unexpected)?;
            found.sort_unstable();
            found.dedup();
            let keys: Vec<_> = found.iter().filter_map(|name| names.key(name)).collect();
            let mut met = keys.len();
            // Where all records are requested, their number is known without reading the headers.
            if !request.wants_all() || met <= limit || count == 1 {
                let reply = self.headers(topology, &keys, request).await?;
                met = reply.found.len();
                // With a count of 1 the step has one bucket, and cannot return less.
                if met <= limit || count == 1 {
                    return Ok((reply, next));
                }
            }
            count = (count * limit / met).min(count / 2).max(1);
        }
    }

    /// Reads the headers of these records, and returns the requested ones.
    async fn headers(
        &self,
        topology: &Topology,
        keys: &[RecordKey],
        request: &ListRequest,
    ) -> Result<ListReply, StoreError> {
        let mut reply = ListReply::default();
        let bytes = HEADER.to_string();
        let arguments: [&[u8]; 1] = [bytes.as_bytes()];
        for keys in keys.chunks(BATCH) {
            let names: Vec<_> = keys.iter().map(RecordKey::name).collect();
            let script = &self.scripts.header;
            let asked = names
                .iter()
                .map(|name| topology.run(WHAT, script, name, &arguments));
            for (key, answer) in keys.iter().zip(join_all(asked).await) {
                let answer = answer?;
                // The value is not a record of idem.
                if answer.unreadable().is_some() {
                    reply.unreadable += 1;
                    continue;
                }
                match answer.code {
                    b'N' => {}
                    b'D' => {
                        let left = answer.millis()?;
                        match Header::decode(&answer.record()?) {
                            Ok(header) if request.wants(&header, left) => {
                                reply.found.push(Listed::new(key.clone(), header, left));
                            }
                            Ok(_) => {}
                            Err(_) => reply.unreadable += 1,
                        }
                    }
                    _ => return Err(unexpected()),
                }
            }
        }
        Ok(reply)
    }
}

/// The error of a failed listing, with the right that it lacks.
fn refused(failure: Failure) -> StoreError {
    let denied = matches!(&failure, Failure::Reply(error) if error.code() == Some("NOPERM"));
    let error = failure.store_error(WHAT);
    if denied {
        return error.with_hint("listing records takes the right `+scan`");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::KeyDigest;

    const DIGEST: KeyDigest = KeyDigest::from_bytes([0x2a; 32]);

    fn request(operation: Option<&'static str>) -> ListRequest {
        ListRequest {
            operation: operation.map(Operation::new),
            ..ListRequest::new("shop*".into())
        }
    }

    fn name(prefix: &str, operation: &'static str) -> String {
        RecordKey::new(prefix.into(), Operation::new(operation), DIGEST).name()
    }

    #[test]
    fn a_name_is_parsed_into_its_key() {
        let (all, of_pay) = (request(None), request(Some("pay")));
        let (all, of_pay) = (Names::new(&all), Names::new(&of_pay));
        assert_eq!(all.pattern(), r"shop\*:*");
        assert_eq!(of_pay.pattern(), r"shop\*:pay:*");
        for operation in ["pay", "pay:eu", "", ":"] {
            let key = all.key(&name("shop*", operation)).unwrap();
            assert_eq!(
                (key.operation().as_str(), *key.digest()),
                (operation, DIGEST)
            );
            let is_pay = operation == "pay";
            assert_eq!(of_pay.key(&name("shop*", operation)).is_some(), is_pay);
        }
        let record = name("shop*", "pay");
        for other in [
            name("shop", "pay"),
            name("shop*2", "pay"),
            // Copies of a layered store, and an answer on its way.
            record.replace("pay", "+7:pay"),
            format!("{record}:new"),
            record[..record.len() - 1].to_owned(),
            format!("shop*:{DIGEST}"),
        ] {
            assert_eq!(all.key(&other), None, "{other}");
        }
    }

    #[test]
    fn a_position_is_parsed_back() {
        for position in [
            ScanPosition::default(),
            ScanPosition {
                cursor: u64::MAX,
                node: None,
            },
            ScanPosition {
                cursor: 7,
                node: Some((u64::MAX, "[fd00::7]:7001".to_owned())),
            },
        ] {
            assert_eq!(
                position.to_string().parse::<ScanPosition>().unwrap(),
                position
            );
        }
        for wrong in [
            "",
            "x",
            "-1",
            "7.",
            "7.x.node",
            "7.7",
            "18446744073709551616",
        ] {
            let error = wrong.parse::<ScanPosition>().unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::InvalidCursor, "{wrong}");
        }
    }

    #[test]
    fn an_abbreviated_name_is_that_of_the_record() {
        let long = "of a name that is longer than those of operations should be";
        let request = request(Some(long));
        let names = Names::new(&request);
        let whole = RecordKey::new("shop*".into(), Operation::new(long), DIGEST);
        let key = names.key(&whole.name()).unwrap();
        assert_eq!(key.name(), whole.name());
        assert_eq!(key.operation().as_str().len(), 48);
    }

    #[test]
    fn a_step_is_made_on_the_node_of_its_position() {
        let nodes = ["a", "b", "c"].map(|node| (node.to_owned(), ()));
        assert_eq!(node_index(&nodes, 7, None).unwrap(), 0);
        for (index, (node, ())) in nodes.iter().enumerate() {
            assert_eq!(
                node_index(&nodes, 7, Some(&(7, node.clone()))).unwrap(),
                index
            );
        }
        for gone in [(8, "b".to_owned()), (7, "d".to_owned())] {
            let error = node_index(&nodes, 7, Some(&gone)).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::InvalidCursor, "{gone:?}");
        }
        assert!(node_index::<()>(&[], 7, None).is_err());
    }
}
