//! Events of lost brokers, lost subscriptions and skipped messages.

use std::sync::Arc;
use std::time::Duration;

use idem_consumers::{Consumer, ConsumerError, OnLostSubscription, Raw, Source, Summary};
use idem_harness::{Edition, RedisServer, TcpProxy};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Context, Engine};
use idem_tests::brokers::redis_streams::{GROUP, STREAM};
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams, nats};
use idem_tests::events::Events;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, block_in_place};

use super::adapter::{Adapter, Fault};
use super::desk::BillError::{self, BankDown, NoSuchAccount};
use super::desk::{LEASE, ids, next, source, until_settled};

type Quorum = Rabbit<false>;
type Classic = Rabbit<true>;

/// A consumer of an observed engine.
struct Observed {
    events: Events,
    clock: ManualClock,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Summary, ConsumerError>>,
}

impl Observed {
    fn run<S: Source>(source: S) -> Self {
        Self::with(source, async |_, _| Ok(()))
    }

    fn with<S: Source, F>(
        source: S,
        handler: impl Fn(Raw, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), BillError>> + Send + 'static,
    {
        let (events, clock) = (Events::default(), ManualClock::new());
        let engine = Engine::builder(MemoryStore::new()).clock(clock.clone());
        let engine = engine.observer(events.clone()).build().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let consumer = Consumer::new(engine, "bills.collect");
        Self {
            events,
            clock,
            stop,
            running: tokio::spawn(consumer.run_until(source, handler, stopped)),
        }
    }

    /// Waits until it ends by itself: a stop at the same moment would hide its error.
    async fn ended(self) -> Result<Summary, ConsumerError> {
        let ended = self.running.await.unwrap();
        drop(self.stop);
        ended
    }

    async fn end(self) -> Result<Summary, ConsumerError> {
        let _ = self.stop.send(());
        self.running.await.unwrap()
    }
}

/// Finds an adapter that retries in silence, or that takes the end of its retries for no event.
pub(crate) async fn a_broker_that_is_away<B: Broker>() {
    let broker = B::start().await;
    let observed = Observed::run(source(&broker).await);
    let events = observed.events.clone();
    broker.send(&ids([1])).await;
    events.wait_for("completed", 1).await;
    block_in_place(|| broker.kill());
    events.wait_for("broker lost: ", 1).await;
    let away = Duration::from_secs(7);
    observed.clock.advance(away);
    block_in_place(|| broker.revive());
    events.wait_for("broker regained after 7s", 1).await;
    broker.send(&ids([2])).await;
    events.wait_for("completed", 2).await;
    observed.end().await.unwrap();
    assert_eq!(events.count("consuming "), 1, "{:?}", events.all());
    let (lost, regained) = (events.count("broker lost"), events.count("broker regained"));
    assert_eq!(lost, regained, "{:?}", events.all());
}

/// Finds a gauge of lost brokers that counts a consumer that has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_stops_while_its_broker_is_away_leaves_it() {
    let broker = RedisStreams::start().await;
    let observed = Observed::run(source(&broker).await);
    let events = observed.events.clone();
    events.wait_for("consuming ", 1).await;
    block_in_place(|| broker.0.kill());
    events.wait_for("broker lost: ", 1).await;
    observed.clock.advance(Duration::from_secs(7));
    observed.end().await.unwrap();
    assert_eq!(
        events.count("broker left after 7s"),
        1,
        "{:?}",
        events.all()
    );
}

/// Finds a source that ends with an error, or goes elsewhere, and leaves the observer out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_gone_is_lost_with_where_the_consumer_continues() {
    let redis = RedisStreams::start().await;
    let nats = Nats::start().await;
    let rabbit = Quorum::shared().await;
    let redis_source = source(&redis).await;
    let nats_source = source(&nats).await;
    let nats_source = nats_source.on_lost_subscription(OnLostSubscription::FromNow);
    let observed = [
        Observed::run(redis_source),
        Observed::run(nats_source),
        Observed::run(source(&rabbit).await),
    ];
    redis.send(&ids([1])).await;
    nats.send(&ids([1])).await;
    rabbit.send(&ids([1])).await;
    for observed in &observed {
        observed.events.wait_for("completed", 1).await;
    }
    redis.0.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    let client = nats.client().await;
    let deleted = client
        .delete_consumer_from_stream(nats::DURABLE, nats::STREAM)
        .await;
    assert!(deleted.unwrap().success);
    let queue = rabbit.queue.as_str();
    let link = rabbit.link().await;
    let deleted = link
        .channel
        .queue_delete(queue.into(), QueueDeleteOptions::default());
    deleted.await.unwrap();
    let [redis, nats, rabbit] = observed;
    redis
        .events
        .wait_for("subscription lost: redis:bills/collectors: fail", 1)
        .await;
    nats.events
        .wait_for("subscription lost: nats:bills/collectors: from-now", 1)
        .await;
    let lost = format!("subscription lost: rabbitmq:%2F/{queue}: fail");
    rabbit.events.wait_for(&lost, 1).await;
    redis.ended().await.unwrap_err();
    nats.end().await.unwrap();
    rabbit.ended().await.unwrap_err();
}

/// Finds a queue with other messages that is reported as a lost broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_declared_anew_is_a_lost_subscription_and_is_consumed() {
    let broker = Classic::shared().await;
    let addr = broker.server.addr();
    let proxy = TcpProxy::start(addr);
    let url = broker.url();
    let url = url.replace(&addr.to_string(), &proxy.addr().to_string());
    let observed = Observed::run(Classic::source(&url, LEASE).await.unwrap());
    let events = observed.events.clone();
    broker.send(&ids([1])).await;
    events.wait_for("completed", 1).await;
    // The cancellation arrives when the queue is there again.
    proxy.delay(Duration::from_millis(300));
    let (link, queue) = (broker.link().await, broker.queue.as_str());
    let options = QueueDeleteOptions::default();
    let deleted = link.channel.queue_delete(queue.into(), options);
    deleted.await.unwrap();
    let (options, table) = (QueueDeclareOptions::durable(), FieldTable::default());
    let declared = link.channel.queue_declare(queue.into(), options, table);
    declared.await.unwrap();
    let lost = format!("subscription lost: rabbitmq:%2F/{queue}: from-start");
    events.wait_for(&lost, 1).await;
    proxy.delay(Duration::ZERO);
    broker.send(&ids([2])).await;
    events.wait_for("completed", 2).await;
    observed.end().await.unwrap();
    assert_eq!(events.count("broker lost"), 0, "{:?}", events.all());
}

/// Finds a message that is neither handled nor reported, before and since Redis 7, which tell it in different ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_trimmed_before_it_is_taken_over_is_skipped() {
    for edition in [None, Some(Edition::Redis62)] {
        let mut server = RedisServer::builder();
        if let Some(edition) = edition {
            server = server.version(edition);
        }
        let broker = RedisStreams(server.start());
        // The consumer died with it.
        let mut dead = source(&broker).await;
        broker.send(&ids([1, 2])).await;
        let trimmed = next(&mut dead).await;
        broker.0.cli(&["XTRIM", STREAM, "MAXLEN", "1"]);
        let observed = Observed::run(source(&broker).await);
        let skipped = format!("skipped as trimmed: {}", trimmed.entry_id());
        observed.events.wait_for(&skipped, 1).await;
        observed.events.wait_for("completed", 1).await;
        until_settled(&broker).await;
        let summary = observed.end().await.unwrap();
        assert_eq!((summary.skipped, summary.acknowledged), (1, 1));
    }
}

/// What happens to the entry `7-0` while it is handled, and what becomes of it.
struct Trim {
    name: &'static str,
    /// Commands of another client.
    commands: &'static [&'static [&'static str]],
    /// The delivery is extended before it is settled: since Redis 7 that removes a trimmed entry from its group.
    is_extended: bool,
    /// The reply to the extension is lost.
    has_no_reply: bool,
    end: fn() -> Result<(), BillError>,
    /// Skipped, retried, acknowledged, dead letters.
    expected: [u64; 4],
}

const TRIM: &[&str] = &["XTRIM", STREAM, "MAXLEN", "0"];
const ACKNOWLEDGE: &[&str] = &["XACK", STREAM, GROUP, "7-0"];

const TRIMMED: Trim = Trim {
    name: "trimmed, and given back",
    commands: &[TRIM],
    is_extended: false,
    has_no_reply: false,
    end: || Err(BankDown),
    expected: [1, 1, 0, 0],
};

/// Finds a failed message that is gone in silence, an alarm about one that was handled, and a dead letter that is left
/// out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_trimmed_while_it_is_handled_is_skipped_unless_it_is_settled() {
    for trim in [
        TRIMMED,
        Trim {
            name: "settled by another process, then trimmed",
            commands: &[ACKNOWLEDGE, TRIM],
            expected: [0, 1, 0, 0],
            ..TRIMMED
        },
        Trim {
            name: "trimmed, extended, and given back",
            is_extended: true,
            ..TRIMMED
        },
        Trim {
            name: "trimmed, extended without a reply, and given back",
            is_extended: true,
            has_no_reply: true,
            ..TRIMMED
        },
        Trim {
            name: "trimmed, extended, and acknowledged",
            is_extended: true,
            end: || Ok(()),
            expected: [0, 0, 1, 0],
            ..TRIMMED
        },
        Trim {
            name: "trimmed, extended, and a dead letter",
            is_extended: true,
            end: || Err(NoSuchAccount),
            expected: [0, 0, 0, 1],
            ..TRIMMED
        },
    ] {
        let broker = Arc::new(RedisStreams::start().await);
        let proxy = Arc::new(TcpProxy::start(broker.0.addr()));
        broker
            .0
            .cli(&["XADD", STREAM, "7-0", "id", "m-1", "payload", "m-1"]);
        let (other, cuts) = (Arc::clone(&broker), Arc::clone(&proxy));
        let handler = move |_, _| {
            for command in trim.commands {
                other.0.cli(command);
            }
            if trim.has_no_reply {
                cuts.drop_next_reply_to("XCLAIM");
            }
            async move { (trim.end)() }
        };
        let source = RedisStreams::source(&proxy.url(), LEASE).await.unwrap();
        let fault = if trim.is_extended {
            Fault::Extended
        } else {
            Fault::None
        };
        let observed = Observed::with(Adapter::new(source, fault), handler);
        let events = observed.events.clone();
        let fails = (trim.end)() == Err(BankDown);
        let ended = if fails { "released" } else { "completed" };
        events.wait_for(ended, 1).await;
        let it = observed.end().await.unwrap();
        let found = [it.skipped, it.retried, it.acknowledged, it.dead_letters];
        assert_eq!(found, trim.expected, "{}", trim.name);
        let skipped = events.count("skipped as trimmed: 7-0") as u64;
        assert_eq!(skipped, it.skipped, "{}", trim.name);
        let letters = u64::try_from(broker.letters().await.len()).unwrap();
        assert_eq!(letters, it.dead_letters, "{}", trim.name);
        let lost = proxy.stats().dropped_replies;
        assert_eq!(lost, usize::from(trim.has_no_reply), "{}", trim.name);
    }
}
