//! The store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Current, HEADER, Header, Owner, ReadReply, Record,
    RecordKey, ReleaseReply, RenewReply, ResolveReply, Store, StoreError, StoreErrorKind,
    StoreFuture, Unreadable, Watch, Watchers, claim, complete, release, renew, resolve,
};
use tokio::join;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType, MultiWriteError,
    PersistentWatcher,
};

use super::link::Link;
use super::place::{self, Place};

/// Whoever reaches the server may read and write. A server for several applications takes
/// `Acls::creator_all()` and a client that says who it is.
const NEW: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Records in `ZooKeeper`.
///
/// A record is the data of a node. An operation reads the node, decides, and writes it if its
/// version is still the one that was read; whoever was slower begins again. That, and the order of
/// requests within a session, makes it atomic on one server and on an ensemble.
///
/// # Time
///
/// `ZooKeeper` has no question for the time, but every write is stamped with it. So each operation
/// writes an empty node, in the same round trip in which it reads the record. It costs a write of
/// the leader, also for a [`read`](Store::read); there is no cheaper clock. In an ensemble the clock
/// is that of the leader: after a failover a lease is longer or shorter by the difference.
///
/// # Room
///
/// Nothing is dropped while it is alive, and what has expired stands there until
/// [`sweep`](Self::sweep) or until its key is claimed again. A quota must not be enforced: it would
/// refuse finished answers.
///
/// # Waiting calls
///
/// are told (see [`Store::watch`]) by a watch on the whole tree, which every process has that ever
/// waited. It is told about all records, which suits some thousand changes a second.
#[derive(Clone, Debug)]
pub struct ZooKeeperStore {
    root: Arc<str>,
    /// For the calls of the application.
    calls: Arc<Link>,
    /// For what the engine does on its own thread, made there: no busy application starves it.
    background: Arc<Link>,
    watchers: Watchers,
    /// Hears what changes and tells the watchers.
    news: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What stands under a key, and what is needed to replace it.
struct Found {
    record: Result<Option<(Record, Duration)>, Unreadable>,
    now_us: u64,
    /// Of the node, which may be there with an expired record.
    version: Option<i32>,
    /// Of its shard.
    generation: i32,
}

/// What is to stand under a key, and for how long.
struct Write {
    record: Vec<u8>,
    life: Duration,
}

impl Write {
    fn header(header: &Header, life: Duration) -> Self {
        Self {
            record: header.encode().to_vec(),
            life,
        }
    }

    /// `record` with the header that was decided on.
    fn answer(header: &Header, record: &[u8]) -> Self {
        Self {
            record: [&header.encode(), &record[HEADER..]].concat(),
            life: header.retain,
        }
    }
}

impl ZooKeeperStore {
    /// Connects to `host:port,host:port/chroot`. The records stand under `/idem`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no server, or one that refuses.
    pub async fn connect(servers: &str) -> Result<Self, StoreError> {
        let store = Self {
            root: "/idem".into(),
            calls: Arc::new(Link::new(servers)),
            background: Arc::new(Link::new(servers)),
            watchers: Watchers::default(),
            news: Arc::default(),
        };
        let root = store.root.clone();
        let made = |client: Client| async move { client.mkdir(&place::records(&root), &NEW).await };
        store.calls.run("connecting", made).await?;
        Ok(store)
    }

    /// A store with the same connections whose records stand under another path.
    #[must_use]
    pub fn under(&self, root: &str) -> Self {
        Self {
            root: root.into(),
            watchers: Watchers::default(),
            news: Arc::default(),
            ..self.clone()
        }
    }

    /// Deletes what has expired, and says how many records that were. To be called now and then, by
    /// one process.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; what is deleted by then is deleted.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let root = &self.root;
        let swept = |client: Client| async move { sweep(&client, root).await };
        self.calls.run("a sweep", swept).await
    }

    /// One operation: reads, lets `decide` say what to write, writes; again if somebody has
    /// written in between.
    fn operate<'a, T: Send + 'a>(
        &'a self,
        link: &'a Link,
        what: &'static str,
        key: &'a RecordKey,
        decide: impl Fn(Option<Current<'_>>, u64) -> (T, Option<Write>) + Send + Sync + 'a,
        unreadable: fn(Unreadable) -> T,
    ) -> StoreFuture<'a, T> {
        let attempt = move |client: Client| async move {
            let place = Place::of(&self.root, key);
            loop {
                let found = look(&client, &self.root, &place).await?;
                let record = match &found.record {
                    Ok(record) => record.as_ref(),
                    Err(why) => return Ok(unreadable(*why)),
                };
                let current = record.map(|(record, left)| Current {
                    record,
                    left: *left,
                });
                let (reply, write) = decide(current, found.now_us);
                let Some(write) = write else {
                    return Ok(reply);
                };
                if replace(&client, &place, &found, &write).await? {
                    return Ok(reply);
                }
            }
        };
        StoreFuture::pending(link.run(what, attempt))
    }
}

/// Reads the time and what stands under a key. The requests leave together and are answered in
/// order, after whatever this session or, since the first is a write, any other has written.
async fn look(client: &Client, root: &str, place: &Place) -> Result<Found, Error> {
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
            Ok((data, stat)) => (place::record(data, &stat, now), Some(stat.version)),
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
async fn replace(
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

async fn sweep(client: &Client, root: &str) -> Result<usize, Error> {
    let now = match client.set_data(&place::clock(root), &[], None).await {
        // Nobody has been here yet.
        Err(Error::NoNode) => return Ok(0),
        now => now?.mtime,
    };
    let records = place::records(root);
    let mut swept = 0;
    for shard in client.list_children(&records).await? {
        let shard = format!("{records}/{shard}");
        for name in client.list_children(&shard).await? {
            let node = format!("{shard}/{name}");
            let (data, stat) = match client.get_data(&node).await {
                Err(Error::NoNode) => continue,
                found => found?,
            };
            if place::bytes(data, &stat, now) == Ok(None) {
                let mut writer = client.new_multi_writer();
                writer.add_set_data(&shard, &[], None)?;
                writer.add_delete(&node, Some(stat.version))?;
                swept += usize::from(done(writer.commit().await)?);
            }
        }
    }
    Ok(swept)
}

/// Tells the watchers what has changed, as long as the session lives.
async fn tell(mut news: PersistentWatcher, watchers: Watchers) {
    loop {
        let event = news.changed().await;
        if event.event_type == EventType::Session {
            if event.session_state.is_terminated() {
                return;
            }
        } else if let Some(digest) = place::digest(&event.path) {
            watchers.wake(&digest);
        }
    }
}

/// The header of a whole record, if the server takes a record of this size.
fn header(record: &Bytes) -> Result<Result<Header, Unreadable>, StoreError> {
    if record.len() > place::LARGEST {
        let (bytes, most) = (record.len(), place::LARGEST);
        return Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!("{bytes} bytes are too many for a node of ZooKeeper, which takes {most}"),
        ));
    }
    Ok(Header::decode(record))
}

impl Store for ZooKeeperStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        let decide = |current: Option<Current<'_>>, now_us| {
            let (reply, write) = claim(current, request, now_us);
            (reply, write.map(|new| Write::header(&new, new.retain)))
        };
        self.operate(&self.calls, "a claim", key, decide, ClaimReply::Unreadable)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let finished = match header(record) {
            Ok(Ok(header)) => header,
            Ok(Err(why)) => return StoreFuture::ready(Ok(CompleteReply::Unreadable(why))),
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let decide = move |current: Option<Current<'_>>, _| {
            let (reply, write) = complete(current, &finished);
            (reply, write.map(|new| Write::answer(&new, record)))
        };
        let what = "a completion";
        self.operate(&self.calls, what, key, decide, CompleteReply::Unreadable)
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        count: bool,
    ) -> StoreFuture<'a, ReleaseReply> {
        let decide = move |current: Option<Current<'_>>, _| {
            let left = current.map_or(Duration::ZERO, |current| current.left);
            let (reply, write) = release(current, *owner, count);
            (reply, write.map(|new| Write::header(&new, left)))
        };
        let what = "a release";
        self.operate(&self.calls, what, key, decide, ReleaseReply::Unreadable)
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = renew(current, claim);
            (reply, write.map(|new| Write::header(&new, claim.retain)))
        };
        let what = "a renewal";
        self.operate(&self.background, what, key, decide, RenewReply::Unreadable)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let known = match header(record) {
            Ok(Ok(header)) => header,
            Ok(Err(why)) => return StoreFuture::ready(Ok(ResolveReply::Unreadable(why))),
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let decide = move |current: Option<Current<'_>>, _| {
            let (reply, write) = resolve(current, seen, &known);
            (reply, write.map(|new| Write::answer(&new, record)))
        };
        let what = "a resolution";
        self.operate(&self.calls, what, key, decide, ResolveReply::Unreadable)
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(async move {
            let watch = self.watchers.watch(key.digest());
            let mut news = self.news.lock().await;
            if news.as_ref().is_none_or(JoinHandle::is_finished) {
                let records = place::records(&self.root);
                let everything = |client: Client| async move {
                    let mode = AddWatchMode::PersistentRecursive;
                    client.watch(&records, mode).await
                };
                let heard = self.background.run("a watch", everything).await?;
                *news = Some(tokio::spawn(tell(heard, self.watchers.clone())));
            }
            Ok(Some(watch))
        })
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let decide = |current: Option<Current<'_>>, _| match current {
            None => (ReadReply::Absent, None),
            Some(Current { record, left }) => {
                let record = record.clone();
                (ReadReply::Found { record, left }, None)
            }
        };
        self.operate(&self.calls, "a read", key, decide, ReadReply::Unreadable)
    }

    fn warnings(&self) -> Vec<String> {
        vec!["ZooKeeper keeps expired records until `ZooKeeperStore::sweep` is called".to_owned()]
    }
}
