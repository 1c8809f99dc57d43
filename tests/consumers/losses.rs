//! Events of lost brokers, lost subscriptions and skipped messages.

use std::sync::Arc;
use std::time::Duration;

use idem_consumers::OnLostSubscription;
use idem_harness::{Edition, RedisServer, TcpProxy};
use idem_runtime::Policy;
use idem_runtime::clock::ManualClock;
use idem_tests::brokers::redis_streams::{GROUP, STREAM};
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams, Subscribed as _, nats};
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

use super::adapter::{Adapter, Fault};
use super::desk::BillError::{BankDown, NoSuchAccount};
use super::desk::{Desk, LEASE, ids, next, source, until_settled};

type Quorum = Rabbit<false>;
type Classic = Rabbit<true>;

/// Finds an adapter whose retries, or their end, are no event. Also a message that is lost or repeated.
pub(crate) async fn a_broker_that_is_away<B: Broker>() {
    let (broker, clock) = (B::start().await, ManualClock::new());
    let mut desk = Desk::at(&clock);
    let may_run = Arc::new(Semaphore::new(20));
    let permits = Arc::clone(&may_run);
    let body = move |_| {
        let permits = Arc::clone(&permits);
        async move {
            permits.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    let away = Duration::from_secs(7);
    let consumer = desk.consumer().policy(Policy::new().lease(4 * away));
    desk.run(consumer, source(&broker).await, body);
    let events = desk.events.clone();
    broker.send(&ids(0..100)).await;
    events.wait_for("completed", 20).await;
    block_in_place(|| broker.kill());
    // A consumer whose handlers are all held does not call its broker, and so does not lose it.
    may_run.add_permits(81);
    events.wait_for("broker lost: ", 1).await;
    clock.advance(away);
    block_in_place(|| broker.revive());
    events.wait_for("broker regained after 7s", 1).await;
    broker.send(&ids([100])).await;
    events.wait_for("completed", 101).await;
    until_settled(&broker).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(101);
    assert_eq!(broker.dead_letters().await, []);
    assert_eq!(events.count("consuming "), 1, "{:?}", events.all());
    let (lost, regained) = (events.count("broker lost"), events.count("broker regained"));
    assert_eq!(lost, regained, "{:?}", events.all());
}

/// Finds a gauge of lost brokers that counts a stopped consumer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_stops_while_its_broker_is_away_leaves_it() {
    let (broker, clock) = (RedisStreams::start().await, ManualClock::new());
    let mut desk = Desk::at(&clock);
    desk.open(&broker, 1, async |_| Ok(())).await;
    desk.events.wait_for("consuming ", 1).await;
    block_in_place(|| broker.0.kill());
    desk.events.wait_for("broker lost: ", 1).await;
    clock.advance(Duration::from_secs(7));
    desk.close().await;
    let events = desk.events.all();
    assert!(
        events.contains(&"broker left after 7s".to_owned()),
        "{events:?}"
    );
}

/// Consumes a message, and then loses the subscription, as the event says.
async fn loses<B: Broker>(
    broker: &B,
    source: B::Source,
    unsubscribed: impl Future<Output = ()>,
    lost: &str,
) -> Desk {
    let mut desk = Desk::new();
    desk.run(desk.consumer(), source, async |_| Ok(()));
    broker.send(&ids([1])).await;
    desk.events.wait_for("completed", 1).await;
    unsubscribed.await;
    desk.events
        .wait_for(&format!("subscription lost: {lost}"), 1)
        .await;
    desk
}

async fn delete_queue<const CLASSIC: bool>(broker: &Rabbit<CLASSIC>) {
    let (link, queue) = (broker.link().await, broker.queue.as_str());
    let (channel, options) = (&link.channel, QueueDeleteOptions::default());
    channel.queue_delete(queue.into(), options).await.unwrap();
}

/// Finds a source that ends, or goes elsewhere, without an event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_gone_is_lost_with_where_the_consumer_continues() {
    let redis = RedisStreams::start().await;
    let lost = "redis:bills/collectors: fail";
    let mut desk = loses(&redis, source(&redis).await, redis.unsubscribe(), lost).await;
    desk.end().await.unwrap_err();
    let nats = Nats::start().await;
    let from_now = source(&nats).await;
    let from_now = from_now.on_lost_subscription(OnLostSubscription::FromNow);
    let lost = "nats:bills/collectors: from-now";
    Box::pin(loses(&nats, from_now, nats.unsubscribe(), lost))
        .await
        .close()
        .await;
    let deleted = async {
        let client = nats.client().await;
        client.delete_stream(nats::STREAM).await.unwrap();
    };
    let lost = "nats:bills/collectors: fail";
    let mut desk = Box::pin(loses(&nats, source(&nats).await, deleted, lost)).await;
    let ended = desk.end().await.unwrap_err();
    let text = std::error::Error::source(&ended).unwrap().to_string();
    let says = text.starts_with("nats:bills/collectors: ") && text.contains("is gone; create it");
    assert!(says, "{text}");
    let rabbit = Quorum::shared().await;
    let lost = format!("rabbitmq:%2F/{}: fail", rabbit.queue);
    let mut desk = loses(&rabbit, source(&rabbit).await, delete_queue(&rabbit), &lost).await;
    desk.end().await.unwrap_err();
}

/// Finds a redeclared queue that is reported as a lost broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_declared_anew_is_a_lost_subscription_and_is_consumed() {
    let broker = Classic::shared().await;
    let addr = broker.server.addr();
    let proxy = TcpProxy::start(addr);
    let url = broker.url();
    let url = url.replace(&addr.to_string(), &proxy.addr().to_string());
    let mut desk = Desk::new();
    let source = Classic::source(&url, LEASE).await.unwrap();
    desk.run(desk.consumer(), source, async |_| Ok(()));
    let events = desk.events.clone();
    broker.send(&ids([1])).await;
    events.wait_for("completed", 1).await;
    // The cancellation arrives when the queue is there again.
    proxy.delay(Duration::from_hours(1));
    delete_queue(&broker).await;
    let (link, queue) = (broker.link().await, broker.queue.as_str());
    let (options, table) = (QueueDeclareOptions::durable(), FieldTable::default());
    let declared = link.channel.queue_declare(queue.into(), options, table);
    declared.await.unwrap();
    proxy.delay(Duration::ZERO);
    let lost = format!("subscription lost: rabbitmq:%2F/{queue}: from-start");
    events.wait_for(&lost, 1).await;
    broker.send(&ids([2])).await;
    events.wait_for("completed", 2).await;
    desk.close().await;
    assert_eq!(events.count("broker lost"), 0, "{:?}", events.all());
}

/// Finds a message that is neither handled nor reported. Redis reports it in another way before version 7.
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
        let mut desk = Desk::new();
        desk.open(&broker, 1, async |_| Ok(())).await;
        let skipped = format!("skipped as trimmed: {}", trimmed.entry_id());
        desk.events.wait_for(&skipped, 1).await;
        desk.events.wait_for("completed", 1).await;
        until_settled(&broker).await;
        let summary = desk.close().await[0];
        assert_eq!((summary.skipped, summary.acknowledged), (1, 1));
    }
}

const TRIM: &[&str] = &["XTRIM", STREAM, "MAXLEN", "0"];
const ACKNOWLEDGE: &[&str] = &["XACK", STREAM, GROUP, "7-0"];

/// Whether an extension removes a trimmed entry from its group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extended {
    No,
    Yes,
    WithoutReply,
}

/// Another client sends these commands while an entry is handled. Finds a failed message that is gone in silence, an
/// alarm about a handled one, and a dead letter that is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_trimmed_while_it_is_handled_is_skipped_unless_it_is_settled() {
    use Extended::{No, WithoutReply, Yes};
    let (down, settled_elsewhere) = (Err(BankDown), &[ACKNOWLEDGE, TRIM][..]);
    // The numbers of messages that are skipped, retried, acknowledged, dead letters.
    for (commands, extended, end, expected) in [
        (&[TRIM][..], No, down, [1, 1, 0, 0]),
        // It looks like an entry that a failover lost: the verdict is an error.
        (settled_elsewhere, No, down, [0, 0, 0, 0]),
        (&[TRIM], Yes, down, [1, 1, 0, 0]),
        (&[TRIM], WithoutReply, down, [1, 1, 0, 0]),
        (&[TRIM], Yes, Ok(()), [0, 0, 1, 0]),
        (&[TRIM], Yes, Err(NoSuchAccount), [0, 0, 0, 1]),
    ] {
        let broker = Arc::new(RedisStreams::start().await);
        let proxy = Arc::new(TcpProxy::start(broker.0.addr()));
        let entry = ["XADD", STREAM, "7-0", "id", "m-1", "payload", "m-1"];
        broker.0.cli(&entry);
        let (other, cuts) = (Arc::clone(&broker), Arc::clone(&proxy));
        let body = move |_| {
            for command in commands {
                other.0.cli(command);
            }
            if extended == WithoutReply {
                cuts.drop_next_reply_to("XACK");
            }
            async move { end }
        };
        let source = RedisStreams::source(&proxy.url(), LEASE).await.unwrap();
        let fault = match extended {
            No => Fault::None,
            Yes | WithoutReply => Fault::Extended,
        };
        let mut desk = Desk::new();
        desk.run(desk.consumer(), Adapter::new(source, fault), body);
        let handled = if end == down { "released" } else { "completed" };
        desk.events.wait_for(handled, 1).await;
        let it = desk.close().await[0];
        let found = [it.skipped, it.retried, it.acknowledged, it.dead_letters];
        let events = desk.events.all();
        assert_eq!(found, expected, "{events:?}");
        let skipped = desk.events.count("skipped as trimmed: 7-0") as u64;
        assert_eq!(skipped, it.skipped, "{events:?}");
        let letters = u64::try_from(broker.letters().await.len()).unwrap();
        assert_eq!(letters, it.dead_letters, "{events:?}");
        let lost = proxy.stats().dropped_replies;
        assert_eq!(lost, usize::from(extended == WithoutReply), "{events:?}");
    }
}
