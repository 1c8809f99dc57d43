//! Consumer groups of Redis Streams.

mod link;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_runtime::store::author::Owner;
use redis::{Client, Cmd, RedisError, Value};
use tokio::time::Instant;

use self::link::{Link, PATIENCE, broker_error, connect_error, lasts};
use crate::builder::{Connect, SourceBuilder};
use crate::delivery::{BrokerError, Delivery, Source};
use crate::progress::{Begin, ReadProgress};
use crate::reconnect::{ReceiveError, Reconnect, next};
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::Verdict;

/// The longest wait for a new entry, and between two take-overs.
const LONGEST_BLOCK: Duration = Duration::from_secs(1);

/// The number of entries of one read.
const BATCH: usize = 16;

type Fields = HashMap<Vec<u8>, Vec<u8>>;
type Entry = (String, Fields);
/// Milliseconds and sequence of the id of an entry.
type EntryId = (u64, u64);

/// A consumer group of a Redis stream, as a [`Source`].
///
/// Needs Redis 6.2 or newer, or Valkey; one server, not a cluster. Behind an address that leads to the primary, a
/// failover costs a new connection. An entry that its consumer neither settled nor
/// extended for [`visibility`](Self::visibility) is taken over (`XCLAIM`), by the first process that finds it.
///
/// | verdict | commands |
/// | --- | --- |
/// | acknowledge | `XACK` |
/// | retry | `XCLAIM … IDLE`, so that the entry is taken over after the pause, at most after [`visibility`](Self::visibility) |
/// | dead letter | `XADD` of all fields, `idem-id` and `idem-reason` to [`dead_letters`](Self::dead_letters), and `XACK`, in one script (`EVAL`), which does nothing where the entry is not pending, and the verdict is an error |
///
/// **The id** is the field [`id`](Self::id_field), or that of the entry, which has the server's time: a stream that is
/// created anew gives none again, unless its producer chooses them (`XADD bills 1-1`) or the server's clock went back. To
/// send an entry without that field again, give it its `idem-id` as that field, or it is another one, which runs.
///
/// A group that is gone while the consumer runs is an error of [`next`](Source::next), unless
/// [`on_lost_subscription`](Self::on_lost_subscription) says where to continue.
///
/// Acknowledged entries stay in the stream: let its producers trim it (`XADD … MAXLEN ~`), or trim it by age.
///
/// Trimming spares no entry that is not settled. An entry that is trimmed while it waits for its retry, or before it is taken
/// over, cannot be delivered again, and is no dead letter: it is reported as
/// [`MessageSkipped`](idem_runtime::observe::EventKind::MessageSkipped), and counted in
/// [`Summary::skipped`](crate::Summary::skipped). An entry that is trimmed before it was read is not reported, because Redis
/// does not have its id. So trim well above the longest queue, or remove entries that every group has acknowledged
/// (`XTRIM … MINID`).
///
/// ```no_run
/// use std::time::Duration;
/// use idem_consumers::{Consumer, Raw, RedisStream};
/// use idem_runtime::{Context, Engine, Error, store::redis::RedisStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(RedisStore::connect("redis://127.0.0.1").await?);
/// let bills = RedisStream::connect("redis://127.0.0.1", "bills", "collectors").await?;
/// let consumer = Consumer::new(engine, "bills.collect").concurrency(32).dead_letter_after(5);
/// consumer.run(bills, async |bill: Raw, _: Context| Ok::<usize, Error>(bill.0.len())).await?;
/// # Ok(()) }
/// ```
pub struct RedisStream {
    group: Arc<Group>,
    /// Waits in `XREADGROUP`, which holds up every other command of its connection.
    reader: Link,
    read: VecDeque<(Entry, Option<u32>)>,
    taken_over: Option<Instant>,
}

struct Group {
    link: Link,
    stream: String,
    name: String,
    consumer: String,
    dead_letters: String,
    visibility: Duration,
    id: Cow<'static, str>,
    payload: Cow<'static, str>,
    on_lost: OnLostSubscription,
    progress: ReadProgress<EntryId>,
    events: SourceEvents,
}

// Without the connection, whose URL may have a password, and without entries.
debug_fields!(RedisStream it {
    stream: it.group.stream,
    group: it.group.name,
    consumer: it.group.consumer
});

/// Connects a [`RedisStream`] with credentials that change.
pub type RedisStreamBuilder = SourceBuilder<RedisStream>;

impl Connect for RedisStream {
    async fn connect_by(builder: RedisStreamBuilder) -> Result<Self, BrokerError> {
        let [stream, name] = builder.names;
        let client = Client::open(builder.url)
            .map_err(|_| BrokerError::new("the URL of the Redis server is none"))?;
        let credentials = builder.credentials;
        let group = Group {
            link: Link::new(client.clone(), credentials.clone(), PATIENCE),
            dead_letters: format!("{stream}:dead"),
            stream,
            name,
            consumer: format!(
                "idem-{:032x}",
                u128::from_be_bytes(*Owner::random().as_bytes())
            ),
            visibility: Duration::from_secs(60),
            id: "id".into(),
            payload: "payload".into(),
            on_lost: OnLostSubscription::default(),
            progress: ReadProgress::new(),
            events: SourceEvents::default(),
        };
        group.create("0").await.map_err(connect_error)?;
        Ok(Self {
            group: Arc::new(group),
            // The take-over, which precedes every read, detects a silent server.
            reader: Link::new(client, credentials, LONGEST_BLOCK + PATIENCE),
            read: VecDeque::new(),
            taken_over: None,
        })
    }
}

impl RedisStream {
    /// Connects, and creates stream and group where they are not there. A new group begins with the first entry.
    ///
    /// # Errors
    ///
    /// The server cannot be reached within 5 s, takes no more connections, or refuses.
    pub async fn connect(
        url: &str,
        stream: impl Into<String>,
        group: impl Into<String>,
    ) -> Result<Self, BrokerError> {
        Self::builder(url, stream, group).connect().await
    }

    /// Begins a connection with [credentials that change](SourceBuilder::credentials).
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        group: impl Into<String>,
    ) -> RedisStreamBuilder {
        SourceBuilder::new(url, [stream.into(), group.into()])
    }

    fn group(&mut self) -> &mut Group {
        Arc::get_mut(&mut self.group).expect("no delivery exists before the source is run")
    }

    /// The name of this consumer in the group. Default a random one; a name of its own for each process keeps
    /// `XINFO CONSUMERS` short.
    ///
    /// `XGROUP DELCONSUMER` deletes the unsettled entries of a consumer from the group, and no process gets them again:
    /// delete a consumer that has none (`pending`).
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.group().consumer = name.into();
        self
    }

    /// The stream of the dead letters. Default that of the messages with `:dead` behind it.
    #[must_use]
    pub fn dead_letters(mut self, stream: impl Into<String>) -> Self {
        self.group().dead_letters = stream.into();
        self
    }

    /// Where to continue when the group is gone: destroyed, or lost with the data of the server. Default
    /// [`Fail`](OnLostSubscription::Fail).
    ///
    /// The entries that were delivered and not acknowledged are lost with their group.
    /// [`Resume`](OnLostSubscription::Resume) delivers those of this process again. The process that creates the group
    /// anew decides where it begins: another process finds the new group there, and continues with it. An entry that it
    /// holds then is settled where its handler succeeds; its retry or dead letter is an error
    /// ([`Unsettled`](idem_runtime::observe::EventKind::Unsettled)), and the entry is delivered again only if the new group
    /// begins before it.
    #[must_use]
    pub fn on_lost_subscription(mut self, on_lost: OnLostSubscription) -> Self {
        self.group().on_lost = on_lost;
        self
    }

    /// How long an entry belongs to its consumer unless extended; at least the lease. Default 1 min.
    #[must_use]
    pub fn visibility(mut self, time: Duration) -> Self {
        self.group().visibility = time;
        self
    }

    /// The field with the id of the message. Default `id`; an entry without it has its own id.
    #[must_use]
    pub fn id_field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.group().id = name.into();
        self
    }

    /// The field with the payload. Default `payload`; an entry without it has an empty payload.
    #[must_use]
    pub fn payload_field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.group().payload = name.into();
        self
    }

    /// Takes over entries that their consumers have neither settled nor extended. Returns whether there may be more.
    async fn take_over(&mut self) -> Result<bool, RedisError> {
        type Reply = (Vec<Entry>, Vec<String>, Option<String>);
        let group = &self.group;
        let mut command = redis::cmd("EVAL");
        command.arg((include_str!("redis_stream_take_over.lua"), 1, &group.stream));
        command.arg((
            &group.name,
            &group.consumer,
            millis(group.visibility),
            BATCH,
        ));
        let (entries, trimmed, first): Reply = group.link.query(&command).await?;
        // Other processes have settled all before the first pending one.
        if let Some(first) = first.map_or(Some((u64::MAX, u64::MAX)), |id| entry_id(&id)) {
            group.progress.settled_before(first);
        }
        let is_full = entries.len() + trimmed.len() >= BATCH;
        group.received(&entries, false);
        self.read
            .extend(entries.into_iter().map(|entry| (entry, None)));
        for id in trimmed {
            group.give_up(&id).await?;
        }
        Ok(is_full)
    }

    /// Waits for new entries.
    async fn read(&mut self) -> Result<(), RedisError> {
        let group = &self.group;
        let mut command = redis::cmd("XREADGROUP");
        let block = millis(LONGEST_BLOCK.min(group.visibility / 2));
        command.arg(("GROUP", &group.name, &group.consumer));
        command.arg(("COUNT", BATCH, "BLOCK", block));
        command.arg(("STREAMS", &group.stream, ">"));
        let reply: Option<Vec<(String, Vec<Entry>)>> = self.reader.query(&command).await?;
        let entries = reply.into_iter().flatten().flat_map(|(_, entries)| entries);
        let entries: Vec<Entry> = entries.collect();
        group.received(&entries, true);
        self.read
            .extend(entries.into_iter().map(|entry| (entry, Some(1))));
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), RedisError> {
        let between = LONGEST_BLOCK.min(self.group.visibility / 2);
        if self.taken_over.is_none_or(|at| at.elapsed() >= between) {
            self.taken_over = Some(Instant::now());
            if self.take_over().await? {
                // There are more, behind entries that are trimmed if there is none to deliver.
                self.taken_over = None;
                return Ok(());
            }
        }
        if self.read.is_empty() {
            self.read().await?;
        }
        Ok(())
    }
}

impl Source for RedisStream {
    type Delivery = RedisStreamDelivery;

    /// `redis:` with stream and group, such as `redis:bills/collectors`.
    fn subscription(&self) -> Option<String> {
        Some(name("redis", [&self.group.stream, &self.group.name]))
    }

    fn report_to(&mut self, events: SourceEvents) {
        if let Some(group) = Arc::get_mut(&mut self.group) {
            group.events = events;
        }
    }

    async fn next(&mut self) -> Result<Option<RedisStreamDelivery>, BrokerError> {
        next(self).await
    }

    async fn give_back(self) {
        for ((id, _), _) in &self.read {
            // After an error, and where it is trimmed, it is taken over when `visibility` has passed.
            if self.group.hold(id, Duration::ZERO).await.is_err() {
                break;
            }
        }
    }
}

impl Reconnect for RedisStream {
    type Delivery = RedisStreamDelivery;

    fn events(&self) -> &SourceEvents {
        &self.group.events
    }

    fn received(&mut self) -> Option<RedisStreamDelivery> {
        let ((id, fields), attempt) = self.read.pop_front()?;
        Some(RedisStreamDelivery {
            group: Arc::clone(&self.group),
            id,
            fields,
            attempt,
            removed: AtomicBool::new(false),
        })
    }

    async fn receive(&mut self) -> Result<(), ReceiveError> {
        let filled = match self.fill().await {
            Err(error) if error.code() == Some("NOGROUP") => {
                let (group, reason) = (&self.group, "the group is gone");
                let Some(begin) = group.progress.begin(group.on_lost) else {
                    let fail = OnLostSubscription::Fail;
                    group.events.subscription_lost(reason, fail);
                    return Err(ReceiveError::Lasting(group.lost()));
                };
                let created = group.create_anew(begin).await;
                // Otherwise it is missing still, and reported when it is created.
                if created.is_ok() {
                    group.events.subscription_lost(reason, group.on_lost);
                }
                created
            }
            filled => filled,
        };
        match filled {
            Ok(()) => {
                self.group.events.broker_regained();
                Ok(())
            }
            Err(error) => {
                // Both connections lead to one server.
                self.group.link.leave_if_lost(&error).await;
                Err(ReceiveError::new(lasts(&error), broker_error(error)))
            }
        }
    }
}

impl Group {
    fn lost(&self) -> BrokerError {
        BrokerError::new(format!(
            "the group `{}` of the stream `{}` is gone: it was destroyed, or the server lost its data; create it \
             where it is to begin (`XGROUP CREATE`), or set `on_lost_subscription`, and start the consumer again, \
             which begins a missing group with the first entry",
            self.name, self.stream
        ))
    }

    /// Creates the group in place of a lost one.
    async fn create_anew(&self, begin: Begin<EntryId>) -> Result<(), RedisError> {
        let after = match begin {
            Begin::Start => return self.create("0").await,
            Begin::Now => return self.create("$").await,
            Begin::After(id) => id,
            Begin::With((millis, sequence)) => match sequence.checked_sub(1) {
                Some(before) => (millis, before),
                None => (millis.saturating_sub(1), u64::MAX),
            },
        };
        // A stream that was created anew may have earlier ids, as by a clock that is behind: the group would skip them.
        if self.last_generated().await? < Some(after) {
            self.create("0").await?;
            // Otherwise a second loss begins with the first entry once more.
            self.progress.void((0, 0));
            return Ok(());
        }
        let (millis, sequence) = after;
        self.create(&format!("{millis}-{sequence}")).await
    }

    /// The stream's last id, also of a deleted entry; `None` without a stream.
    async fn last_generated(&self) -> Result<Option<EntryId>, RedisError> {
        let mut command = redis::cmd("XINFO");
        command.arg(("STREAM", &self.stream));
        let info: HashMap<String, Value> = match self.link.query(&command).await {
            Err(error) if error.code() == Some("ERR") => return Ok(None),
            info => info?,
        };
        let last = info.get("last-generated-id").cloned();
        let last: Option<String> = redis::from_redis_value(last.unwrap_or(Value::Nil))?;
        Ok(last.and_then(|last| entry_id(&last)))
    }

    /// A command about the group, by its name.
    fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg((&self.stream, &self.name));
        command
    }

    /// Notes entries that this process has received; `first`: no other consumer had them before.
    fn received(&self, entries: &[Entry], first: bool) {
        for id in entries.iter().filter_map(|(id, _)| entry_id(id)) {
            self.progress.received(id);
            if first {
                self.progress.delivered(id);
            }
        }
    }

    /// An unsettled entry is not in the stream any more.
    fn skipped(&self, id: &str) {
        self.settled(id);
        self.events.message_skipped(id, "trimmed");
    }

    /// Removes a trimmed entry from the group. Reports it, unless another consumer does.
    async fn give_up(&self, id: &str) -> Result<(), RedisError> {
        let removed = self.link.query(&self.acknowledgement(id)).await;
        // Without a reply it may be removed: rather reported twice than not at all.
        if !matches!(removed, Ok(0_u8)) {
            self.skipped(id);
        }
        removed.map(drop)
    }

    fn settled(&self, id: &str) {
        if let Some(id) = entry_id(id) {
            self.progress.settled(id);
        }
    }

    /// Creates the group, which begins after this entry, unless it is there.
    async fn create(&self, begin: &str) -> Result<(), RedisError> {
        let mut command = redis::cmd("XGROUP");
        command.arg(("CREATE", &self.stream, &self.name, begin, "MKSTREAM"));
        match self.link.query(&command).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            created => created,
        }
    }

    /// Postpones the take-over of an entry by `time`, at most `visibility`.
    ///
    /// Returns whether it is pending, and whether it is in the stream; otherwise nothing is changed.
    async fn hold(&self, id: &str, time: Duration) -> Result<(bool, bool), RedisError> {
        let mut command = redis::cmd("EVAL");
        command.arg((include_str!("redis_stream_hold.lua"), 1, &self.stream));
        let idle = millis(self.visibility.saturating_sub(time));
        command.arg((&self.name, &self.consumer, id, idle));
        self.link.query(&command).await
    }

    /// Releases the entry to a take-over after `time`. A trimmed entry is reported, unless an extension has `removed`
    /// it.
    async fn give_back(&self, id: &str, time: Duration, removed: bool) -> Result<(), BrokerError> {
        match self.hold(id, time).await.map_err(broker_error)? {
            (true, false) => self.give_up(id).await.map_err(broker_error),
            (true, true) => Ok(()),
            (false, false) if removed => Ok(()),
            (false, false) => Err(BrokerError::new(format!(
                "the entry {id} is neither pending in the group `{}` nor in the stream `{}`: another consumer settled it \
                 before it was trimmed, or the server lost it in a failover; its record says whether it was handled",
                self.name, self.stream
            ))),
            (false, true) => Err(self.not_pending(id)),
        }
    }

    fn not_pending(&self, id: &str) -> BrokerError {
        BrokerError::new(format!(
            "the entry {id} is not pending in the group `{}` of the stream `{}`: another consumer settled it, its \
             consumer was deleted (`XGROUP DELCONSUMER`), or the group was created anew; it is delivered again only if \
             the new group begins before it; its record says whether it was handled",
            self.name, self.stream
        ))
    }

    fn acknowledgement(&self, id: &str) -> Cmd {
        let mut command = self.command("XACK");
        command.arg(id);
        command
    }
}

fn entry_id(text: &str) -> Option<EntryId> {
    let (millis, sequence) = text.split_once('-')?;
    Some((millis.parse().ok()?, sequence.parse().ok()?))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An entry of a Redis stream.
pub struct RedisStreamDelivery {
    group: Arc<Group>,
    id: String,
    fields: Fields,
    attempt: Option<u32>,
    /// An extension found the entry trimmed, and removes it from its group.
    removed: AtomicBool,
}

/// An entry that was removed and is not settled is skipped.
impl Drop for RedisStreamDelivery {
    fn drop(&mut self) {
        if *self.removed.get_mut() {
            self.group.skipped(&self.id);
        }
    }
}

// Without the fields.
debug_fields!(RedisStreamDelivery it {
    stream: it.group.stream,
    entry_id: it.id,
    attempt: it.attempt
});

impl RedisStreamDelivery {
    /// The id that Redis gave the entry: `1526919030474-55`.
    #[must_use]
    pub fn entry_id(&self) -> &str {
        &self.id
    }

    /// A field of the entry.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name.as_bytes()).map(Vec::as_slice)
    }

    fn dead_letter(&self, reason: &str) -> Cmd {
        let mut eval = redis::cmd("EVAL");
        eval.arg((include_str!("redis_stream_dead_letter.lua"), 2));
        eval.arg((&self.group.stream, &self.group.dead_letters));
        eval.arg((&self.group.name, &self.id));
        for field in &self.fields {
            eval.arg(field);
        }
        eval.arg(("idem-id", &self.id, "idem-reason", reason));
        eval
    }
}

impl Delivery for RedisStreamDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        match self.field(&self.group.id) {
            Some(id) => std::str::from_utf8(id).ok().map(Cow::Borrowed),
            None => Some(Cow::Borrowed(&self.id)),
        }
    }

    /// 1 at the first delivery, and not known after a take-over.
    fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    fn payload(&self) -> &[u8] {
        self.field(&self.group.payload).unwrap_or_default()
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        let (group, held) = (&self.group, self.group.hold(&self.id, time).await);
        if held.map_err(broker_error)? == (true, false) {
            // No other consumer is to report it while it is handled. It is reported once it is dropped unsettled.
            self.removed.store(true, Ordering::Relaxed);
            let removed = group.link.query(&group.acknowledgement(&self.id)).await;
            let () = removed.map_err(broker_error)?;
        }
        Ok(())
    }

    async fn settle(mut self, verdict: Verdict) -> Result<(), BrokerError> {
        let group = Arc::clone(&self.group);
        let settled = match verdict {
            Verdict::Acknowledge => group.link.query(&group.acknowledgement(&self.id)).await,
            Verdict::Retry(_) | Verdict::Stop => {
                let removed = *self.removed.get_mut();
                return group.give_back(&self.id, verdict.delay(), removed).await;
            }
            Verdict::DeadLetter(reason) => {
                let letter = self.dead_letter(reason.as_str());
                match group.link.query(&letter).await {
                    Ok(0_u8) => return Err(group.not_pending(&self.id)),
                    written => written.map(drop),
                }
            }
        };
        let () = settled.map_err(broker_error)?;
        *self.removed.get_mut() = false;
        group.settled(&self.id);
        Ok(())
    }
}
