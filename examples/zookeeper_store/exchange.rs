//! Compare-and-set: nodes are read with the time, and written if they are unchanged.

use std::time::Duration;

use idem_runtime::store::author::{Current, Header, Journal, Record, Unreadable};
use tokio::join;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, MultiWriteError};

use super::place::{self, Place};

/// Every client that reaches the server may read and write. A server for several applications needs
/// `Acls::creator_all()` and a client that authenticates.
pub(super) const NEW: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// The stored record, and the versions needed to replace it.
pub(super) struct Found {
    pub(super) record: Result<Option<(Record, Duration)>, Unreadable>,
    pub(super) now_us: u64,
    /// Version of the node, which may exist with an expired record.
    version: Option<i32>,
    /// Generation of its shard.
    generation: i32,
}

/// A record to be stored, and its life.
pub(super) struct Write {
    pub(super) record: Vec<u8>,
    life: Duration,
}

impl Write {
    pub(super) fn record(record: &Record) -> Self {
        Self {
            life: record.header.retain,
            record: record.as_bytes().to_vec(),
        }
    }

    /// Another header, with the steps that the record has.
    pub(super) fn header(header: Header, current: Option<Current<'_>>) -> Self {
        let steps = current.map_or_else(Journal::default, |current| current.record.journal());
        Self::record(&Record::with_journal(header, &steps))
    }

    pub(super) fn living_for(self, life: Duration) -> Self {
        Self { life, ..self }
    }
}

/// Reads the time and the stored record. The requests are sent together and answered in
/// order, after every write of this session and, since the first is a write, of any other session.
pub(super) async fn look(client: &Client, root: &str, place: &Place) -> Result<Found, Error> {
    loop {
        let clock = place::clock(root);
        let now = client.set_data(&clock, &[], None);
        let shard = client.check_stat(&place.shard);
        let node = client.get_data(&place.node);
        let (now, shard, node) = join!(now, shard, node);
        let now = match now {
            Err(Error::NoNode) => {
                client.mkdir(&clock, &NEW).await?;
                continue;
            }
            now => now?.mtime,
        };
        let Some(shard) = shard? else {
            client.mkdir(&place.shard, &NEW).await?;
            continue;
        };
        let (record, version) = match node {
            Ok((data, stat)) => (place::record(data, stat.mtime, now), Some(stat.version)),
            Err(Error::NoNode) => (Ok(None), None),
            Err(error) => return Err(error),
        };
        return Ok(Found {
            record,
            now_us: now.unsigned_abs() * 1_000,
            version,
            generation: shard.version,
        });
    }
}

/// Writes unless the node was written or deleted since; returns whether it did.
pub(super) async fn replace(
    client: &Client,
    place: &Place,
    found: &Found,
    write: &Write,
) -> Result<bool, Error> {
    let data = place::data(&write.record, write.life);
    let mut writer = client.new_multi_writer();
    // A node that was deleted and created again has the version of a new one. The generation of
    // the shard detects the deletion.
    writer.add_check_version(&place.shard, found.generation)?;
    match found.version {
        Some(version) => writer.add_set_data(&place.node, &data, Some(version))?,
        None => writer.add_create(&place.node, &data, &NEW)?,
    }
    done(writer.commit().await)
}

/// Whether a transaction was committed, or overtaken.
fn done<T>(committed: Result<T, MultiWriteError>) -> Result<bool, Error> {
    match committed {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed {
            source: Error::BadVersion | Error::NodeExists | Error::NoNode,
            ..
        }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Number of records that a sweep reads in one round trip.
const PAGE: usize = 100;

/// Deletes the expired records of a shard, and returns their number.
pub(super) async fn sweep(client: &Client, root: &str, shard: &str) -> Result<usize, Error> {
    let clock = place::clock(root);
    let now = client.set_data(&clock, &[], None).await?.mtime;
    let names = client.list_children(shard).await?;
    let nodes: Vec<_> = names.iter().map(|name| format!("{shard}/{name}")).collect();
    let mut swept = 0;
    for nodes in nodes.chunks(PAGE) {
        // All requests are sent before the first reply is awaited.
        let found: Vec<_> = nodes.iter().map(|node| client.get_data(node)).collect();
        for (node, found) in nodes.iter().zip(found) {
            let (data, stat) = match found.await {
                Err(Error::NoNode) => continue,
                found => found?,
            };
            if place::bytes(data, stat.mtime, now) == Ok(None) {
                let mut writer = client.new_multi_writer();
                writer.add_set_data(shard, &[], None)?;
                writer.add_delete(node, Some(stat.version))?;
                swept += usize::from(done(writer.commit().await)?);
            }
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use idem_harness::ZooKeeperServer;
    use idem_runtime::key::{KeyDigest, Operation};
    use idem_runtime::store::author::{Owner, State};
    use idem_runtime::store::{Fence, RecordKey};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn a_node_that_was_deleted_and_created_again_is_another() {
        let server = ZooKeeperServer::start();
        let client = Client::connect(&server.addr().to_string()).await.unwrap();
        let digest = KeyDigest::from_bytes([0x2a; 32]);
        let key = RecordKey::new("shop".into(), Operation::new("pay"), digest);
        let place = Place::of("/idem", &key);
        let look = async || look(&client, "/idem", &place).await.unwrap();
        let replace = async |found: &Found, life| {
            let owner = Owner::from_bytes([7; 16]);
            let header = Header::new(State::Released, owner, Fence::new(1), HOUR);
            let write = Write::header(header, None).living_for(life);
            replace(&client, &place, found, &write).await.unwrap()
        };
        assert!(replace(&look().await, Duration::ZERO).await);
        let slow = look().await;
        assert_eq!(slow.record, Ok(None), "it has expired");
        assert_eq!(sweep(&client, "/idem", &place.shard).await, Ok(1));
        assert!(replace(&look().await, HOUR).await);
        let quick = look().await;
        assert_eq!(slow.version, quick.version, "the version does not tell");
        assert!(!replace(&slow, HOUR).await);
        assert_eq!(look().await.version, quick.version);
    }
}
