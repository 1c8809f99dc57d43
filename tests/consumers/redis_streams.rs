//! Redis Streams, on a real server.

use std::time::Duration;

use idem_consumers::{DeadLetterReason, Delivery as _, OnLostSubscription, RedisStream, Verdict};
use idem_harness::{RedisServer, ReplicaPair, TcpProxy};
use idem_tests::brokers::redis_streams::{GROUP, STREAM};
use idem_tests::brokers::{Broker as _, RedisStreams};

use super::desk::{Desk, LEASE, error, ids, next, source, until, until_settled};

const EXHAUSTED: Verdict = Verdict::DeadLetter(DeadLetterReason::Exhausted);

#[tokio::test]
async fn an_entry_that_two_consumers_refuse_is_one_dead_letter_with_all_its_fields() {
    let broker = RedisStreams::start().await;
    broker.send(&ids([1])).await;
    let visibility = Duration::from_millis(1);
    let mut stalled = source(&broker).await.visibility(visibility);
    let mut other = source(&broker).await.visibility(visibility);
    let (late, delivery) = (next(&mut stalled).await, next(&mut other).await);
    delivery.settle(EXHAUSTED).await.unwrap();
    let error = late.settle(EXHAUSTED).await.unwrap_err();
    assert!(error.to_string().contains("not pending"), "{error}");
    let letters = broker.letters().await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let fields = ["id", "payload", "idem-reason"].map(|name| &*letters[0][name]);
    assert_eq!(fields, ["m-1", "m-1", "exhausted"]);
    assert_eq!(broker.unsettled().await, 0);
}

/// The stream of the dead letters is of another type.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_written_stays_in_the_queue() {
    let broker = RedisStreams::start().await;
    broker.send(&ids([1])).await;
    broker
        .0
        .cli(&["SET", &format!("{STREAM}:dead"), "no stream"]);
    let delivery = next(&mut source(&broker).await).await;
    assert!(delivery.settle(EXHAUSTED).await.is_err());
    assert_eq!(broker.unsettled().await, 1, "it would be lost");
}

#[tokio::test]
async fn a_server_that_lost_its_data_ends_the_source() {
    let broker = RedisStreams(RedisServer::start());
    let mut source = source(&broker).await;
    broker.kill();
    broker.revive();
    broker.send(&ids([1])).await;
    let text = error(&mut source).await.to_string();
    assert!(text.contains("the server lost its data"), "{text}");
}

/// Two services with one store and one operation.
#[tokio::test]
async fn each_group_runs_each_message_once() {
    let (broker, mut desk) = (RedisStreams::start().await, Desk::new());
    let mut services = vec![];
    broker.send(&ids(0..5)).await;
    // After each group: none may run what another one left out.
    let mut bodies = vec![];
    for group in [GROUP, GROUP, "auditors", "archive"] {
        let mut service = desk.another();
        let source = RedisStream::connect(&broker.url(), STREAM, group).await;
        let consumer = service.consumer();
        // The archive was renamed.
        let consumer = match group {
            "archive" => consumer.subscription(format!("redis:{STREAM}/auditors")),
            _ => consumer,
        };
        service.run(consumer, source.unwrap(), async |_| Ok(()));
        until("the group has settled all", async || {
            broker.unsettled_of(group).await == 0
        })
        .await;
        bodies.push(desk.bodies().values().sum::<u32>());
        services.push(service);
    }
    for service in &mut services {
        service.close().await;
    }
    desk.close().await;
    assert_eq!((desk.bodies().len(), &*bodies), (5, &[5, 5, 10, 10][..]));
}

#[tokio::test]
async fn a_consumer_is_told_that_the_server_has_no_place_and_connects_when_a_client_leaves() {
    for builder in [
        RedisServer::builder(),
        RedisServer::builder().password("open"),
    ] {
        let server = builder.start();
        let (mut operator, other) = (server.connect(), server.connect());
        let limited = operator.command(&["CONFIG", "SET", "maxclients", "2"]);
        assert_eq!(limited.unwrap().as_error(), None);
        let refused = RedisStream::connect(&server.url(), STREAM, GROUP).await;
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("takes no more connections (`maxclients`); raise the limit"),
            "{text}"
        );
        drop(other);
        until("the client has left", async || {
            RedisStream::connect(&server.url(), STREAM, GROUP)
                .await
                .is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_delivery_and_its_source_show_neither_payload_nor_password() {
    let broker = RedisStreams::start().await;
    // Long, so that no random name of a consumer contains it.
    broker.send(&ids([4_242_424_242])).await;
    let mut source = source(&broker).await;
    let delivery = next(&mut source).await;
    let shown = format!("{source:?} {delivery:?}");
    assert!(shown.contains(STREAM), "{shown}");
    let secret = shown.contains("4242424242") || shown.contains("redis://");
    assert!(!secret, "{shown}");
}

/// Finds a retry or a dead letter that is lost in silence: another process has created the group anew, behind the entry,
/// or an operator has deleted the consumer that holds it.
#[tokio::test]
async fn a_retry_or_dead_letter_of_an_entry_that_the_group_does_not_have_is_an_error() {
    let destroyed: &[&[&str]] = &[
        &["XGROUP", "DESTROY", STREAM, GROUP],
        &["XGROUP", "CREATE", STREAM, GROUP, "$"],
    ];
    let without_consumer: &[&[&str]] = &[&["XGROUP", "DELCONSUMER", STREAM, GROUP, "desk"]];
    for commands in [destroyed, without_consumer] {
        for verdict in [Verdict::Retry(None), EXHAUSTED] {
            let broker = RedisStreams::start().await;
            broker.send(&ids([1])).await;
            let mut source = source(&broker).await.consumer("desk");
            let delivery = next(&mut source).await;
            for command in commands {
                broker.0.cli(command);
            }
            let text = delivery.settle(verdict).await.unwrap_err().to_string();
            let remedy = text.contains("not pending") && text.contains("its record says");
            assert!(remedy, "{text}");
            assert_eq!(broker.letters().await.len(), 0);
        }
    }
}

/// Finds a retry that is lost in silence. The new primary has neither the entry nor a trace of it.
#[tokio::test]
async fn a_retry_of_an_entry_that_a_failover_lost_is_an_error() {
    let pair = ReplicaPair::start();
    let proxy = TcpProxy::start(pair.primary.addr());
    let source = RedisStream::connect(&proxy.url(), STREAM, GROUP).await;
    pair.await_in_sync();
    pair.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    pair.primary.cli(&["XADD", STREAM, "*", "payload", "m-1"]);
    let delivery = next(&mut source.unwrap()).await;
    proxy.lead_to(pair.replica.addr());
    proxy.cut();
    // The first command finds that the connection is lost.
    until("the new primary answers", async || {
        delivery.extend(LEASE).await.is_ok()
    })
    .await;
    let text = delivery.settle(Verdict::Retry(None)).await.unwrap_err();
    assert!(text.to_string().contains("failover"), "{text}");
}

/// Finds a group that begins behind the new stream's earlier ids, and one that begins with the first entry once more.
#[tokio::test]
async fn resume_begins_with_the_first_entry_of_a_stream_whose_ids_are_earlier() {
    for settled in [true, false] {
        let broker = RedisStreams::start().await;
        broker.send(&ids([1])).await;
        let resume = OnLostSubscription::Resume;
        let mut source = source(&broker).await.on_lost_subscription(resume);
        let first = next(&mut source).await;
        if settled {
            first.settle(Verdict::Acknowledge).await.unwrap();
        }
        broker.0.cli(&["DEL", STREAM]);
        broker.0.cli(&["XADD", STREAM, "7-0", "payload", "m-2"]);
        let second = next(&mut source).await;
        assert_eq!(second.payload(), b"m-2");
        second.settle(Verdict::Acknowledge).await.unwrap();
        broker.0.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
        broker.0.cli(&["XADD", STREAM, "8-0", "payload", "m-4"]);
        assert_eq!(next(&mut source).await.payload(), b"m-4");
        // Without a stream, the group is there before its first entry.
        broker.0.cli(&["DEL", STREAM]);
        let received = tokio::spawn(async move { next(&mut source).await.payload().to_vec() });
        until("the group is there", async || {
            broker.0.cli(&["EXISTS", STREAM]) == "1"
        })
        .await;
        broker.0.cli(&["XADD", STREAM, "6-0", "payload", "m-3"]);
        assert_eq!(received.await.unwrap(), b"m-3");
    }
}

/// Finds a consumer that keeps its connections to a demoted primary.
#[tokio::test]
async fn a_primary_that_became_a_replica_is_left_for_the_new_primary() {
    let (pair, mut desk) = (ReplicaPair::start(), Desk::new());
    let proxy = TcpProxy::start(pair.primary.addr());
    let source = RedisStream::connect(&proxy.url(), STREAM, GROUP).await;
    pair.await_in_sync();
    let source = source.unwrap().visibility(LEASE);
    desk.run(desk.consumer(), source, async |_| Ok(()));
    let entry = ["XADD", STREAM, "*", "id", "m-1", "payload", "m-1"];
    pair.primary.cli(&entry);
    until("it is handled", async || desk.bodies().len() == 1).await;
    pair.await_in_sync();
    proxy.lead_to(pair.replica.addr());
    pair.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let port = pair.replica.port().to_string();
    pair.primary.cli(&["REPLICAOF", "127.0.0.1", &port]);
    let promoted = RedisStreams(pair.replica);
    promoted.send(&ids([2])).await;
    until_settled(&promoted).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(2);
}

/// Otherwise its batch is a lost broker again and again.
#[tokio::test]
async fn a_field_whose_name_is_no_text_harms_no_message() {
    let broker = RedisStreams::start().await;
    let add =
        r"return redis.call('XADD', KEYS[1], '*', 'id', 'm-1', 'payload', 'm-1', '\255', 'x')";
    broker.0.cli(&["EVAL", add, "1", STREAM]);
    let delivery = next(&mut source(&broker).await).await;
    delivery.settle(EXHAUSTED).await.unwrap();
    assert_eq!(broker.unsettled().await, 0);
}
