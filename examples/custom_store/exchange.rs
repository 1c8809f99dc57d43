//! Compare and exchange: nodes are read with the time, and written if nobody has since.

use std::time::Duration;

use idem_runtime::store::{HEADER, Header, Record, Unreadable};
use tokio::join;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, MultiWriteError};

use super::place::{self, Place};

/// Whoever reaches the server may read and write. A server for several applications takes
/// `Acls::creator_all()` and a client that says who it is.
pub(super) const NEW: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// What stands under a key, and what is needed to replace it.
pub(super) struct Found {
    pub(super) record: Result<Option<(Record, Duration)>, Unreadable>,
    pub(super) now_us: u64,
    /// Of the node, which may be there with an expired record.
    version: Option<i32>,
    /// Of its shard.
    generation: i32,
}

/// What is to stand under a key, and for how long.
pub(super) struct Write {
    pub(super) record: Vec<u8>,
    life: Duration,
}

impl Write {
    pub(super) fn header(header: &Header, life: Duration) -> Self {
        Self {
            record: header.encode().to_vec(),
            life,
        }
    }

    /// `record` with the header that was decided on.
    pub(super) fn answer(header: &Header, record: &[u8]) -> Self {
        Self {
            record: [&header.encode(), &record[HEADER..]].concat(),
            life: header.retain,
        }
    }
}

/// Reads the time and what stands under a key. The requests leave together and are answered in
/// order, after whatever this session or, since the first is a write, any other has written.
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

/// Writes, unless somebody has written or deleted since; says whether it did.
pub(super) async fn replace(
    client: &Client,
    place: &Place,
    found: &Found,
    write: &Write,
) -> Result<bool, Error> {
    let data = place::data(&write.record, write.life);
    let mut writer = client.new_multi_writer();
    // A node that was deleted and created again has the version of a new one. The generation of
    // the shard says that something was deleted.
    writer.add_check_version(&place.shard, found.generation)?;
    match found.version {
        Some(version) => writer.add_set_data(&place.node, &data, Some(version))?,
        None => writer.add_create(&place.node, &data, &NEW)?,
    }
    done(writer.commit().await)
}

/// Whether a transaction happened, or was overtaken.
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

/// How many records a sweep reads in one round trip.
const PAGE: usize = 100;

/// Deletes the records of a shard that have expired, and says how many.
pub(super) async fn sweep(client: &Client, root: &str, shard: &str) -> Result<usize, Error> {
    let clock = place::clock(root);
    let now = client.set_data(&clock, &[], None).await?.mtime;
    let names = client.list_children(shard).await?;
    let nodes: Vec<_> = names.iter().map(|name| format!("{shard}/{name}")).collect();
    let mut swept = 0;
    for nodes in nodes.chunks(PAGE) {
        // All of them are on their way before the first is waited for.
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
mod tests;
