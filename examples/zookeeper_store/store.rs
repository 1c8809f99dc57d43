//! The store on `ZooKeeper`.

use std::sync::Arc;

use bytes::Bytes;
use idem_runtime::store::author::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Current, HEADER, Header,
    Journal, Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply,
    StoreFuture, Unreadable, Watch, append, claim, complete, release_with_journal, released_life,
    renew, resolve,
};
use idem_runtime::store::{RecordKey, Store, StoreError, StoreErrorKind};
use zookeeper_client::Client;

use super::exchange::{self, NEW, Write, look, replace};
use super::link::Link;
use super::news::News;
use super::place::{self, Place};

/// Records in `ZooKeeper`.
///
/// A record is the data of a node. An operation reads the node, decides, and writes it if its
/// version is unchanged; otherwise the operation starts again. That, and the order of
/// requests within a session, makes it atomic on one server and on an ensemble.
///
/// # Time
///
/// `ZooKeeper` has no request for the time, but every write is stamped with it. So each operation
/// writes an empty node, in the same round trip in which it reads the record. It costs a write of
/// the leader, also for a [`read`](Store::read); there is no cheaper clock. In an ensemble the clock
/// is that of the leader: after a failover a lease is longer or shorter by the difference.
///
/// # Room
///
/// A live record is never dropped, and an expired one is stored until
/// [`sweep`](Self::sweep) or until its key is claimed again. A quota must not be enforced: it would
/// refuse finished answers.
///
/// # Waiting calls
///
/// are notified (see [`Store::watch`]) by a watch on the whole tree, held by every process that has ever
/// waited. It receives the changes of all records, which suits some thousand changes a second.
#[derive(Clone, Debug)]
pub struct ZooKeeperStore {
    root: Arc<str>,
    /// For the calls of the application.
    calls: Arc<Link>,
    /// Created and used by the engine's own thread. A busy application would starve it.
    background: Arc<Link>,
    news: Arc<News>,
}

impl ZooKeeperStore {
    /// Connects to `host:port,host:port/chroot`. The records are under `/idem`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no server, or it refuses.
    pub async fn connect(servers: &str) -> Result<Self, StoreError> {
        let root: Arc<str> = "/idem".into();
        let store = Self {
            root: root.clone(),
            calls: Arc::new(Link::new(servers)),
            background: Arc::new(Link::new(servers)),
            news: News::of(root.clone()),
        };
        let made = |client: Client| async move { client.mkdir(&place::records(&root), &NEW).await };
        store.calls.run("connecting", made).await?;
        Ok(store)
    }

    /// A store on the same connections whose records are under another path.
    #[must_use]
    pub fn under(&self, root: &str) -> Self {
        let root: Arc<str> = root.into();
        Self {
            root: root.clone(),
            news: News::of(root),
            ..self.clone()
        }
    }

    /// Deletes expired records, and returns their number. One process should call it from time to time.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; earlier deletions remain.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let records = &place::records(&self.root);
        let list = |client: Client| async move { client.list_children(records).await };
        let mut swept = 0;
        for shard in self.calls.run("a sweep", list).await? {
            let shard = &format!("{records}/{shard}");
            let sweep =
                |client: Client| async move { exchange::sweep(&client, &self.root, shard).await };
            swept += self.calls.run("a sweep", sweep).await?;
        }
        Ok(swept)
    }

    /// One operation: reads, lets `decide` choose the write, writes; starts again if the record has
    /// changed in between.
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
                let current = record.map(|(record, left)| Current::new(record, *left));
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

/// A whole record, if the server accepts one of this size.
fn whole(record: &Bytes) -> Result<Result<Record, Unreadable>, StoreError> {
    check_size(record.len())?;
    Ok(Record::decode(record.clone()))
}

fn check_size(bytes: usize) -> Result<(), StoreError> {
    let most = place::LARGEST;
    if bytes > most {
        return Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!("{bytes} bytes are too many for a node of ZooKeeper, which takes {most}"),
        ));
    }
    Ok(())
}

impl Store for ZooKeeperStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        admission.sent();
        let decide = |current: Option<Current<'_>>, now_us| {
            let (reply, write) = claim(current, request, now_us);
            (reply, write.as_ref().map(Write::record))
        };
        self.operate(&self.calls, "a claim", key, decide, ClaimReply::Unreadable)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        _: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let finished = match whole(record) {
            Ok(Ok(finished)) => finished,
            Ok(Err(why)) => return StoreFuture::ready(Ok(CompleteReply::Unreadable(why))),
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let decide = move |current: Option<Current<'_>>, _| {
            let (reply, write) = complete(current, &finished);
            (reply, write.as_ref().map(Write::record))
        };
        let what = "a completion";
        self.operate(&self.calls, what, key, decide, CompleteReply::Unreadable)
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        let written = journals.map_or(0, |(journal, _)| journal.as_bytes().len());
        if let Err(error) = check_size(HEADER + written) {
            return StoreFuture::ready(Err(error));
        }
        let decide = move |current: Option<Current<'_>>, _| {
            let kept = current.map_or_else(Journal::default, |there| there.record.journal());
            let (journal, seen) = journals.unwrap_or((&kept, None));
            let (reply, write) = release_with_journal(current, *owner, remains, journal, seen);
            let write = current.zip(write).map(|(current, record)| {
                let life = released_life(&current.record.header, remains);
                Write::record(&record).living_for(life.unwrap_or(current.left))
            });
            (reply, write)
        };
        let what = "a release";
        self.operate(&self.calls, what, key, decide, ReleaseReply::Unreadable)
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = renew(current, claim);
            (reply, write.map(|new| Write::header(new, current)))
        };
        let what = "a renewal";
        self.operate(&self.background, what, key, decide, RenewReply::Unreadable)
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        if let Err(error) = check_size(HEADER + journal.as_bytes().len()) {
            return StoreFuture::ready(Err(error));
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = append(current, claim, journal);
            let write = write.map(|(header, steps)| Record::with_journal(header, &steps));
            (reply, write.as_ref().map(Write::record))
        };
        // Nothing new: a renewal.
        let link = if known == journal.as_bytes().len() {
            &self.background
        } else {
            &self.calls
        };
        self.operate(link, "an append", key, decide, AppendReply::Unreadable)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let new = match whole(record) {
            Ok(Ok(new)) => new,
            Ok(Err(why)) => return StoreFuture::ready(Ok(ResolveReply::Unreadable(why))),
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let decide = move |current: Option<Current<'_>>, _| {
            let (reply, write) = resolve(current, seen, journal, &new);
            (reply, write.as_ref().map(Write::record))
        };
        let what = "a resolution";
        self.operate(&self.calls, what, key, decide, ResolveReply::Unreadable)
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(async move { self.news.watch(key, &self.background).await.map(Some) })
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let decide = |current: Option<Current<'_>>, _| match current {
            None => (ReadReply::Absent, None),
            Some(Current { record, left, .. }) => {
                let record = record.clone();
                (ReadReply::Found { record, left }, None)
            }
        };
        self.operate(&self.calls, "a read", key, decide, ReadReply::Unreadable)
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Some(place::LARGEST)
    }

    fn warnings(&self) -> Vec<String> {
        vec!["ZooKeeper keeps expired records until `ZooKeeperStore::sweep` is called".to_owned()]
    }
}
