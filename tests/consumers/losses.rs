//! Events of lost brokers, lost subscriptions and skipped messages.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, ConsumerError, DeadLetterReason, Delivery, OnLostSubscription, Raw,
    RedisStream, RedisStreamDelivery, Source, SourceEvents, Summary, Verdict,
};
use idem_harness::{Edition, RedisServer, TcpProxy};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Context, Engine};
#[cfg(feature = "kafka")]
use idem_tests::brokers::Kafka;
use idem_tests::brokers::redis_streams::{GROUP, STREAM};
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams, nats};
use idem_tests::events::Events;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, block_in_place};

use super::desk::{Down, LEASE, ids, next, source, until};

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
        F: Future<Output = Result<(), Down>> + Send + 'static,
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
async fn a_broker_that_is_away<B: Broker>(down: impl FnOnce(&B), up: impl FnOnce(&B)) {
    let broker = B::start().await;
    let observed = Observed::run(source(&broker).await);
    let events = observed.events.clone();
    broker.send(&ids([1])).await;
    events.wait_for("completed", 1).await;
    block_in_place(|| down(&broker));
    events.wait_for("broker lost: ", 1).await;
    let away = Duration::from_secs(7);
    observed.clock.advance(away);
    block_in_place(|| up(&broker));
    events.wait_for("broker regained after 7s", 1).await;
    broker.send(&ids([2])).await;
    events.wait_for("completed", 2).await;
    observed.end().await.unwrap();
    assert_eq!(events.count("consuming "), 1, "{:?}", events.all());
    let (lost, regained) = (events.count("broker lost"), events.count("broker regained"));
    assert_eq!(lost, regained, "{:?}", events.all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_server_that_is_away_is_lost_and_regained() {
    let (down, up) = (RedisServer::kill, RedisServer::restart);
    a_broker_that_is_away::<RedisStreams>(|it| down(&it.0), |it| up(&it.0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nats_server_that_is_away_is_lost_and_regained() {
    a_broker_that_is_away::<Nats>(|it| it.0.kill(), |it| it.0.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rabbitmq_broker_that_is_away_is_lost_and_regained() {
    a_broker_that_is_away::<Quorum>(|it| it.server.kill(), |it| it.server.restart()).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kafka_cluster_that_is_away_is_lost_and_regained() {
    a_broker_that_is_away::<Kafka>(|it| it.cluster.take_down(), |it| it.cluster.bring_up()).await;
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
        let server = RedisServer::builder();
        let server = match edition {
            Some(edition) => server.version(edition),
            None => server,
        };
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
        until("the other one is settled", async || {
            broker.unsettled().await == 0
        })
        .await;
        let summary = observed.end().await.unwrap();
        assert_eq!((summary.skipped, summary.acknowledged), (1, 1));
    }
}

/// Finds a failed message that is given back to a group which has no such entry any more, and is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_trimmed_while_it_is_handled_is_skipped_when_it_is_given_back() {
    let broker = Arc::new(RedisStreams::start().await);
    broker.send(&ids([1])).await;
    let trims = Arc::clone(&broker);
    let handler = move |_, _| {
        trims.0.cli(&["XTRIM", STREAM, "MAXLEN", "0"]);
        async { Err(Down) }
    };
    let observed = Observed::with(source(&*broker).await, handler);
    observed.events.wait_for("skipped as trimmed: ", 1).await;
    let summary = observed.end().await.unwrap();
    assert_eq!((summary.skipped, summary.retried), (1, 1));
}

/// Finds an alarm about an entry that another process settled before it was trimmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_was_settled_before_it_was_trimmed_is_not_skipped() {
    let broker = Arc::new(RedisStreams::start().await);
    let entry = ["XADD", STREAM, "7-0", "id", "m-1", "payload", "m-1"];
    broker.0.cli(&entry);
    let other = Arc::clone(&broker);
    let handler = move |_, _| {
        other.0.cli(&["XACK", STREAM, GROUP, "7-0"]);
        other.0.cli(&["XTRIM", STREAM, "MAXLEN", "0"]);
        async { Err(Down) }
    };
    let observed = Observed::with(source(&*broker).await, handler);
    observed.events.wait_for("released", 1).await;
    let summary = observed.end().await.unwrap();
    assert_eq!((summary.skipped, summary.retried), (0, 1));
}

/// Extends each delivery before it is settled, as a consumer does for handlers that take long.
struct Extending(RedisStream);

struct Extended(RedisStreamDelivery);

impl Source for Extending {
    type Delivery = Extended;

    fn report_to(&mut self, events: SourceEvents) {
        self.0.report_to(events);
    }

    async fn next(&mut self) -> Result<Option<Extended>, BrokerError> {
        Ok(self.0.next().await?.map(Extended))
    }
}

impl Delivery for Extended {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.0.id()
    }

    fn attempt(&self) -> Option<u32> {
        self.0.attempt()
    }

    fn payload(&self) -> &[u8] {
        self.0.payload()
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        self.0.extend(time).await
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        for _ in 0..2 {
            // After an error a consumer goes on.
            let _ = self.extend(LEASE).await;
        }
        self.0.settle(verdict).await
    }
}

/// Finds an alarm about a message that was handled, and a failed one without any: since Redis 7 an extension removes a
/// trimmed entry from its group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_entry_that_is_extended_is_skipped_unless_it_is_settled() {
    for succeeds in [false, true] {
        let broker = Arc::new(RedisStreams::start().await);
        broker.send(&ids([1])).await;
        let trims = Arc::clone(&broker);
        let handler = move |_, _| {
            trims.0.cli(&["XTRIM", STREAM, "MAXLEN", "0"]);
            async move { if succeeds { Ok(()) } else { Err(Down) } }
        };
        let observed = Observed::with(Extending(source(&*broker).await), handler);
        let ended = if succeeds { "completed" } else { "released" };
        observed.events.wait_for(ended, 1).await;
        let summary = observed.end().await.unwrap();
        let counts = (summary.skipped, summary.retried, summary.acknowledged);
        assert_eq!(counts, if succeeds { (0, 0, 1) } else { (1, 1, 0) });
    }
}

/// Finds a message that is lost in silence: its extension removed it from the group, and the reply was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_entry_whose_extension_has_no_reply_is_skipped() {
    let broker = Arc::new(RedisStreams::start().await);
    let proxy = Arc::new(TcpProxy::start(broker.0.addr()));
    broker.send(&ids([1])).await;
    let source = RedisStreams::source(&proxy.url(), LEASE).await.unwrap();
    let (trims, cuts) = (Arc::clone(&broker), Arc::clone(&proxy));
    let handler = move |_, _| {
        trims.0.cli(&["XTRIM", STREAM, "MAXLEN", "0"]);
        cuts.drop_next_reply_to("XCLAIM");
        async { Err(Down) }
    };
    let observed = Observed::with(Extending(source), handler);
    observed.events.wait_for("released", 1).await;
    let summary = observed.end().await.unwrap();
    assert_eq!(proxy.stats().dropped_replies, 1);
    assert_eq!((summary.skipped, summary.retried), (1, 1));
}

/// Finds a dead letter that is left out because its entry was trimmed: since Redis 7 an extension settles such an entry.
#[tokio::test]
async fn an_entry_that_is_trimmed_while_it_is_handled_is_a_dead_letter() {
    let broker = RedisStreams::start().await;
    broker.send(&ids([1])).await;
    let delivery = next(&mut source(&broker).await).await;
    broker.0.cli(&["XTRIM", STREAM, "MAXLEN", "0"]);
    delivery.extend(LEASE).await.unwrap();
    let verdict = Verdict::DeadLetter(DeadLetterReason::Exhausted);
    delivery.settle(verdict).await.unwrap();
    assert_eq!(broker.letters().await.len(), 1);
}
