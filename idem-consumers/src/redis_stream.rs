//! Consumer groups of Redis Streams.

pub(super) mod builder;
mod endpoint;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_runtime::credentials::CredentialsProvider;
use idem_runtime::store::Owner;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use self::endpoint::{Endpoint, NO_ROOM, has_no_room, is_replica_error, is_unknown_user};
use crate::delivery::{BrokerError, Delivery, Source};
use crate::progress::{Begin, ReadProgress};
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::Verdict;

/// The longest wait for a new entry, and the longest time between two take-overs of entries of other consumers.
const LONGEST_BLOCK: Duration = Duration::from_secs(1);

/// The time between two questions for the first unsettled entry of the group.
const BETWEEN_FLOORS: Duration = Duration::from_secs(60);

/// The time that a command may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pauses between two attempts to reach a server that is down.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

const REFUSED: &str = "Redis does not accept the credentials of the provider, or takes no more connections \
                       (`maxclients`); check its source of secrets, and the password of the user";

/// The number of entries of one read.
const BATCH: usize = 16;

type Fields = HashMap<String, Vec<u8>>;
type Entry = (String, Fields);
/// Milliseconds and sequence of the id of an entry.
type EntryId = (u64, u64);

/// A consumer group of a Redis stream, as the [`Source`] of a [`Consumer`](crate::Consumer).
///
/// Needs Redis 6.2 or newer, or Valkey; one server, not a cluster. Behind an address that leads to the primary, a
/// failover costs a new connection. An entry that its consumer neither settled nor
/// extended for [`visibility`](Self::visibility) is taken over (`XAUTOCLAIM`), by the first process that finds it.
///
/// | verdict | commands |
/// | --- | --- |
/// | acknowledge | `XACK` |
/// | retry | `XCLAIM … IDLE`, so that the entry is taken over after the pause, at most after [`visibility`](Self::visibility) |
/// | dead letter | `XADD` of all fields, `idem-id` and `idem-reason` to [`dead_letters`](Self::dead_letters), and `XACK`, in one script (`EVAL`), which does nothing where the entry is not pending, and the verdict is an error |
///
/// A group that is gone while the consumer runs is an error of [`next`](Source::next), unless
/// [`on_lost_subscription`](Self::on_lost_subscription) says where to continue.
///
/// Acknowledged entries stay in the stream: let its producers trim it (`XADD … MAXLEN ~`), or trim it by age.
///
/// Trimming spares no entry that is not settled. One that is trimmed while it waits for its retry, or before it is taken
/// over, cannot be delivered again, and is no dead letter: it is reported as
/// [`MessageSkipped`](idem_runtime::observe::EventKind::MessageSkipped), and counted in
/// [`Summary::skipped`](crate::Summary::skipped). One that is trimmed before it was read is not reported, because Redis
/// does not have its id. So trim well above the longest queue, or remove what every group has acknowledged
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
    reader: Reconnecting,
    read: VecDeque<(Entry, Option<u32>)>,
    taken_over: Option<Instant>,
    floor_asked: Instant,
    /// `XAUTOCLAIM` returned nil for trimmed entries: Redis before 7 gives no ids.
    trimmed: bool,
}

struct Group {
    link: Reconnecting,
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

    async fn connect_by(
        url: String,
        (stream, name): (String, String),
        credentials: Option<CredentialsProvider>,
    ) -> Result<Self, BrokerError> {
        let client = Client::open(url)
            .map_err(|_| BrokerError::new("the URL of the Redis server is none"))?;
        let client = Endpoint::new(client, credentials);
        let group = Group {
            link: Reconnecting::new(client.clone(), Some(PATIENCE)),
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
            reader: Reconnecting::new(client, None),
            read: VecDeque::new(),
            taken_over: None,
            floor_asked: Instant::now(),
            trimmed: false,
        })
    }

    fn group(&mut self) -> &mut Group {
        Arc::get_mut(&mut self.group).expect("no delivery exists before the source is run")
    }

    /// The name of this consumer in the group. Default a random one; a name of its own for each process keeps
    /// `XINFO CONSUMERS` short.
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

    /// Takes over entries that their consumers have neither settled nor extended.
    async fn take_over(&mut self) -> Result<(), RedisError> {
        let group = &self.group;
        // Until they are found: the take-over that met them has made them this consumer's for `visibility`.
        if self.trimmed && group.give_up_trimmed().await? {
            self.trimmed = false;
        }
        let mut cursor = "0-0".to_owned();
        loop {
            let mut command = group.command("XAUTOCLAIM");
            command.arg((&group.consumer, millis(group.visibility)));
            command.arg((&cursor, "COUNT", BATCH));
            let reply: Vec<Value> = group.link.query(&command).await?;
            let mut reply = reply.into_iter();
            let next = reply.next().unwrap_or(Value::Nil);
            let entries = reply.next().unwrap_or(Value::Nil);
            // Redis 7 has given them up.
            if let Some(trimmed) = reply.next() {
                for id in redis::from_redis_value::<Vec<String>>(trimmed)? {
                    group.skipped(&id);
                }
            }
            // Before Redis 7, a trimmed entry is nil, and stays in the group.
            let entries: Vec<Option<Entry>> = redis::from_redis_value(entries)?;
            self.trimmed |= entries.iter().any(Option::is_none);
            let entries: Vec<Entry> = entries.into_iter().flatten().collect();
            group.received(&entries, false);
            self.read
                .extend(entries.into_iter().map(|entry| (entry, None)));
            cursor = redis::from_redis_value(next)?;
            if cursor == "0-0" || self.read.len() >= BATCH {
                return Ok(());
            }
        }
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
            self.take_over().await?;
            if self.floor_asked.elapsed() >= BETWEEN_FLOORS {
                self.group.forget_settled().await?;
                self.floor_asked = Instant::now();
            }
            if self.read.len() >= BATCH {
                // There may be more of them.
                self.taken_over = None;
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
        let mut pause = SHORTEST_PAUSE;
        loop {
            if let Some(((id, fields), attempt)) = self.read.pop_front() {
                return Ok(Some(RedisStreamDelivery {
                    group: Arc::clone(&self.group),
                    id,
                    fields,
                    attempt,
                    removed: AtomicBool::new(false),
                    in_doubt: AtomicBool::new(false),
                }));
            }
            let filled = match self.fill().await {
                Err(error) if error.code() == Some("NOGROUP") => {
                    let (group, reason) = (&self.group, "the group is gone");
                    let begin = group.new_begin().inspect_err(|_| {
                        let fail = OnLostSubscription::Fail;
                        group.events.subscription_lost(reason, fail);
                    })?;
                    let created = group.create(&begin).await;
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
                    pause = SHORTEST_PAUSE;
                }
                Err(error) if lasts(&error) => return Err(BrokerError::new(error)),
                Err(error) => {
                    self.group.events.broker_lost(broker_error(error));
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn give_back(self) {
        for ((id, _), _) in &self.read {
            // After an error it is taken over when `visibility` has passed.
            let given = self
                .group
                .give_back(id, Duration::ZERO, &false.into())
                .await;
            if given.is_err() {
                break;
            }
        }
    }
}

/// Whether the server refuses, and would refuse again.
fn lasts(error: &RedisError) -> bool {
    let refuses = matches!(
        error.code(),
        Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "WRONGTYPE" | "ERR")
    );
    !has_no_room(error) && (refuses || error.kind() == ErrorKind::AuthenticationFailed)
}

/// The error of the first command. The reply by which a server without a place refuses it may be lost, and the client
/// library does not repeat that to `AUTH`.
fn connect_error(error: RedisError) -> BrokerError {
    let what = match error.kind() {
        _ if error.is_connection_dropped() => {
            "Redis closed the connection at once, as it does when"
        }
        ErrorKind::AuthenticationFailed => {
            "Redis does not accept the user or password of the URL, or"
        }
        _ => return broker_error(error),
    };
    BrokerError::new(format!("{what} {NO_ROOM}"))
}

fn broker_error(error: RedisError) -> BrokerError {
    if has_no_room(&error) {
        BrokerError::new(NO_ROOM)
    } else {
        BrokerError::new(error)
    }
}

impl Group {
    /// The entry after which a new group begins, in place of the one that is gone.
    fn new_begin(&self) -> Result<String, BrokerError> {
        let lost = || {
            BrokerError::new(format!(
                "the group `{}` of the stream `{}` is gone: it was destroyed, or the server lost its data; create it \
                 where it is to begin (`XGROUP CREATE`), or set `on_lost_subscription`, and start the consumer again, \
                 which begins a missing group with the first entry",
                self.name, self.stream
            ))
        };
        Ok(match self.progress.begin(self.on_lost).ok_or_else(lost)? {
            Begin::Start => "0".to_owned(),
            Begin::Now => "$".to_owned(),
            Begin::After((millis, sequence)) => format!("{millis}-{sequence}"),
            Begin::With((millis, sequence)) => match sequence.checked_sub(1) {
                Some(before) => format!("{millis}-{before}"),
                None => format!("{}-{}", millis.saturating_sub(1), u64::MAX),
            },
        })
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

    async fn is_trimmed(&self, id: &str) -> Result<bool, RedisError> {
        let mut command = redis::cmd("XRANGE");
        command.arg(&self.stream).arg(id).arg(id);
        let found: Vec<Value> = self.link.query(&command).await?;
        Ok(found.is_empty())
    }

    /// Acknowledges the entries that may be taken over and are trimmed: before Redis 7 nothing else removes them.
    ///
    /// Returns whether there were any.
    async fn give_up_trimmed(&self) -> Result<bool, RedisError> {
        let mut command = self.command("XPENDING");
        command.arg(("IDLE", millis(self.visibility), "-", "+", 10 * BATCH));
        let pending: Vec<(String, String, u64, u64)> = self.link.query(&command).await?;
        let mut any = false;
        for (id, ..) in pending {
            if self.is_trimmed(&id).await? {
                any = true;
                // Before the acknowledgement, whose reply may be lost: rather reported twice than not at all.
                self.skipped(&id);
                let () = self.link.query(&self.acknowledgement(&id)).await?;
            }
        }
        Ok(any)
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

    /// Forgets the entries that are settled, also by other processes, before the first one that is not.
    async fn forget_settled(&self) -> Result<(), RedisError> {
        let pending = self.link.query(&self.command("XPENDING")).await?;
        let (_, first, _, _): (u64, Option<String>, Value, Value) = pending;
        let first = match first {
            Some(first) => entry_id(&first),
            None => Some((u64::MAX, u64::MAX)),
        };
        if let Some(first) = first {
            self.progress.settled_before(first);
        }
        Ok(())
    }

    /// Whether the entry was delivered to this group and is not settled.
    async fn is_pending(&self, id: &str) -> Result<bool, RedisError> {
        let mut command = self.command("XPENDING");
        command.arg((id, id, 1));
        let pending: Vec<Value> = self.link.query(&command).await?;
        Ok(!pending.is_empty())
    }

    /// Keeps a pending entry from being taken over for `time`, or for `visibility` where that is shorter.
    ///
    /// `in_doubt`: an earlier `XCLAIM` has no reply, and may have removed the entry from the group.
    async fn hold(
        &self,
        id: &str,
        time: Duration,
        in_doubt: &AtomicBool,
    ) -> Result<Held, RedisError> {
        // Asked first, because since Redis 7 `XCLAIM` removes a trimmed entry from the group.
        if !self.is_pending(id).await? {
            if in_doubt.load(Ordering::Relaxed) && self.is_trimmed(id).await? {
                in_doubt.store(false, Ordering::Relaxed);
                return Ok(Held::Trimmed);
            }
            return Ok(Held::NotPending);
        }
        in_doubt.store(true, Ordering::Relaxed);
        let idle = millis(self.visibility.saturating_sub(time));
        let mut command = self.command("XCLAIM");
        command.arg((&self.consumer, 0, id, "IDLE", idle, "JUSTID"));
        let held: Vec<Value> = self.link.query(&command).await?;
        let is_trimmed = held.is_empty() && self.is_trimmed(id).await?;
        in_doubt.store(false, Ordering::Relaxed);
        Ok(if is_trimmed {
            Held::Trimmed
        } else {
            Held::Pending
        })
    }

    /// Lets the entry be taken over after `time`, and reports it if it is trimmed.
    async fn give_back(
        &self,
        id: &str,
        time: Duration,
        in_doubt: &AtomicBool,
    ) -> Result<(), BrokerError> {
        let held = self.hold(id, time, in_doubt).await;
        match held.map_err(broker_error)? {
            Held::Pending => {}
            Held::Trimmed => self.skipped(id),
            // Settled by another consumer before it was trimmed, or removed by an extension.
            Held::NotPending if self.is_trimmed(id).await.map_err(broker_error)? => {}
            Held::NotPending => return Err(self.not_pending(id)),
        }
        Ok(())
    }

    fn not_pending(&self, id: &str) -> BrokerError {
        BrokerError::new(format!(
            "the entry {id} is not pending in the group `{}` of the stream `{}`: another consumer settled it, or the \
             group was created anew; it is delivered again only if the new group begins before it",
            self.name, self.stream
        ))
    }

    fn acknowledgement(&self, id: &str) -> Cmd {
        let mut command = self.command("XACK");
        command.arg(id);
        command
    }
}

/// What `XCLAIM` found of an entry.
enum Held {
    Pending,
    /// It was pending.
    Trimmed,
    /// It is settled, or the group was created anew.
    NotPending,
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
    /// An extension has removed the entry from its group, because it was trimmed.
    removed: AtomicBool,
    /// An extension has no reply yet.
    in_doubt: AtomicBool,
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
        self.fields.get(name).map(Vec::as_slice)
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
        let held = self.group.hold(&self.id, time, &self.in_doubt).await;
        if matches!(held.map_err(broker_error)?, Held::Trimmed) {
            self.removed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn settle(mut self, verdict: Verdict) -> Result<(), BrokerError> {
        let group = Arc::clone(&self.group);
        let settled = match verdict {
            Verdict::Acknowledge => group.link.query(&group.acknowledgement(&self.id)).await,
            Verdict::Retry(_) | Verdict::Stop => {
                let pause = match verdict {
                    Verdict::Retry(after) => after.unwrap_or_default(),
                    _ => Duration::ZERO,
                };
                return group.give_back(&self.id, pause, &self.in_doubt).await;
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

/// A connection that is made anew after it was lost.
struct Reconnecting {
    client: Endpoint,
    patience: Option<Duration>,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Reconnecting {
    /// `patience`: the time for the reply to a command; `None` where the command itself waits.
    fn new(client: Endpoint, patience: Option<Duration>) -> Self {
        Self {
            client,
            patience,
            connection: Mutex::new(None),
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        // The take-over, which precedes every read, detects a silent server.
        let patience = self.patience.or(Some(LONGEST_BLOCK + PATIENCE));
        let connect = |client: Client| async move {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(PATIENCE))
                .set_response_timeout(patience);
            (client.get_multiplexed_async_connection_with_config(&config)).await
        };
        let made = self.client.log_in(PATIENCE, connect).await;
        let made = made.map_err(io::Error::other)?;
        Ok(connection.insert(made?).clone())
    }

    /// Drops the connection of a lost server, and of a replica: the address may be that of the new primary by now.
    async fn lost(&self, error: &RedisError) {
        if error.is_unrecoverable_error()
            || error.is_timeout()
            || error.is_io_error()
            || is_replica_error(error)
        {
            *self.connection.lock().await = None;
        }
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let result = async { command.query_async(&mut self.connection().await?).await };
        let result = result.await.map_err(|error| match error {
            // The next credentials may be others.
            error if self.client.changes() && is_unknown_user(&error) => {
                RedisError::from(io::Error::other(REFUSED))
            }
            error => error,
        });
        if let Err(error) = &result {
            self.lost(error).await;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_room_for_another_client_is_asked_again() {
        let says = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            let Value::ServerError(error) = reply else {
                panic!("{line} is an error")
            };
            lasts(&error.into())
        };
        assert!(!says("ERR max number of clients reached"));
        assert!(!says(
            "ERR max number of clients + cluster connections reached"
        ));
        assert!(!says("LOADING Redis is loading the dataset in memory"));
        assert!(says("ERR unknown command 'XREADGROUP'"));
        assert!(says("WRONGPASS invalid username-password pair"));
    }
}
