//! What holds of every broker.

use std::net::SocketAddr;
use std::time::Duration;

use idem_consumers::{DeadLetterReason, Delivery as _, OnLostSubscription, Source as _, Verdict};
use idem_harness::{HANG_LIMIT, TcpProxy};
use idem_runtime::Context;
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams, Subscribed};
use idem_tests::shop::patiently;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::desk::{BillError, Desk, LEASE, ids, next, source, until, until_settled};
use super::losses::a_broker_that_is_away;

/// After this time a silent connection is lost: four times the 15 s of NATS, the slowest adapter.
const MAX_SILENCE: Duration = Duration::from_mins(1);

async fn one_body_for_each_id<B: Broker>() {
    let (broker, mut desk) = (B::shared().await, Desk::new());
    broker
        .send(&ids((0..2_000).map(|number| number % 500)))
        .await;
    desk.open(&broker, 3, async |_| Ok(())).await;
    until_settled(&broker).await;
    let summaries = desk.close().await;
    let acknowledged: u64 = summaries.iter().map(|it| it.acknowledged).sum();
    desk.assert_one_body_for_each_of(500);
    assert!(acknowledged >= 2_000, "{summaries:?}");
    assert_eq!(broker.dead_letters().await, []);
    assert_eq!(
        broker.unsettled().await,
        0,
        "nothing is given back at the end"
    );
}

async fn a_dead_letter_after_n_bodies<B: Broker>() {
    let (broker, mut desk) = (B::shared().await, Desk::new());
    broker.send(&ids(0..20)).await;
    let body = async |text| {
        if text == "m-7" {
            Err(BillError::BankDown)
        } else {
            Ok(())
        }
    };
    desk.open(&broker, 2, body).await;
    until_settled(&broker).await;
    desk.close().await;
    assert_eq!((desk.bodies().len(), desk.bodies()["m-7"]), (20, 3));
    let reason = DeadLetterReason::Exhausted.to_string();
    assert_eq!(broker.dead_letters().await, [("m-7".to_owned(), reason)]);
}

/// A consumer of concurrency 1 stops while it handles a message. The others are not waited for.
async fn a_stop_gives_back<B: Broker>() {
    let (broker, desk) = (B::shared().await, Desk::new());
    broker.send(&ids(0..12)).await;
    let held = 2 * HANG_LIMIT;
    let (begun, mut one) = watch::channel(false);
    let handler = move |_: idem_consumers::Raw, _: Context| {
        begun.send_replace(true);
        async {
            sleep(LEASE / 4).await;
            Ok::<(), BillError>(())
        }
    };
    let shutdown = async move {
        let _ = one.wait_for(|one| *one).await;
    };
    let first = B::source(&broker.url(), held).await.unwrap();
    let consumer = desk.consumer().concurrency(1);
    let summary = consumer.run_until(first, handler, shutdown).await.unwrap();
    assert_eq!((summary.acknowledged, summary.abandoned), (1, 0));
    let mut second = B::source(&broker.url(), held).await.unwrap();
    for _ in 0..11 {
        let delivery = next(&mut second).await;
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
    until_settled(&broker).await;
}

async fn a_dropped_delivery_comes_again<B: Broker>() {
    let broker = B::shared().await;
    broker.send(&ids([1])).await;
    let mut source = source(&broker).await;
    drop(next(&mut source).await);
    let again = next(&mut source).await;
    assert_eq!(
        (again.id().as_deref(), again.payload()),
        (Some("m-1"), &b"m-1"[..])
    );
    again.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&broker).await;
}

async fn a_retry_comes_after_its_pause<B: Broker>() {
    let broker = B::shared().await;
    broker.send(&ids([1])).await;
    // Nothing comes again by itself.
    let mut source = B::source(&broker.url(), 2 * HANG_LIMIT).await.unwrap();
    next(&mut source).await.settle(Verdict::Stop).await.unwrap();
    let second = next(&mut source).await;
    let (start, pause) = (std::time::Instant::now(), Duration::from_millis(300));
    second.settle(Verdict::Retry(Some(pause))).await.unwrap();
    let third = next(&mut source).await;
    assert!(start.elapsed() >= pause, "{:?}", start.elapsed());
    third.settle(Verdict::Acknowledge).await.unwrap();
    assert!(
        timeout(pause, source.next()).await.is_err(),
        "it was acknowledged"
    );
}

async fn a_long_handler_keeps_its_delivery<B: Broker>() {
    let (broker, mut desk) = (B::shared().await, Desk::new());
    broker.send(&ids([1])).await;
    let body = async |_| {
        sleep(3 * LEASE).await;
        Ok(())
    };
    desk.open(&broker, 2, body).await;
    until_settled(&broker).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(1);
    assert_eq!(desk.deliveries(), 1);
}

/// Receives and acknowledges `m-1`, and receives `m-2`; then the subscription is gone, and `m-3` is sent.
async fn source_without_subscription<B: Subscribed>(on_lost: OnLostSubscription) -> (B, B::Source) {
    let broker = B::start().await;
    let mut source = B::on_lost(source(&broker).await, on_lost);
    broker.send(&ids([1, 2])).await;
    let first = next(&mut source).await;
    first.settle(Verdict::Acknowledge).await.unwrap();
    let second = next(&mut source).await;
    assert_eq!(second.id().as_deref(), Some("m-2"));
    broker.unsubscribe().await;
    B::forgotten(second).await;
    broker.send(&ids([3])).await;
    (broker, source)
}

async fn a_lost_subscription_ends_the_source<B: Subscribed>() {
    for (on_lost, expected) in [
        (OnLostSubscription::Resume, 2..5),
        (OnLostSubscription::FromNow, 4..5),
        (OnLostSubscription::FromStart, 1..5),
    ] {
        let (broker, mut source) = source_without_subscription::<B>(on_lost).await;
        let received = tokio::spawn(async move {
            let mut received = Vec::new();
            while received.last().is_none_or(|last| last != "m-4") {
                let delivery = next(&mut source).await;
                received.push(delivery.id().unwrap().into_owned());
            }
            received
        });
        until("it is there again", async || broker.is_subscribed().await).await;
        broker.send(&ids([4])).await;
        assert_eq!(received.await.unwrap(), ids(expected), "{on_lost:?}");
    }
    let (broker, mut source) = source_without_subscription::<B>(OnLostSubscription::Fail).await;
    let ended = patiently("the source fails", source.next()).await;
    let text = ended.err().expect("an error").to_string();
    assert!(B::NAMES.iter().all(|name| text.contains(name)), "{text}");
    assert!(!broker.is_subscribed().await);
}

/// A firewall has forgotten the connections, whose bytes vanish. Finds an adapter without a time-out of its own for that.
async fn a_silent_connection_is_made_anew<B: Broker>() {
    let broker = B::shared().await;
    let (proxies, url) = behind_proxies(&broker.url());
    let mut source = B::source(&url, LEASE).await.unwrap();
    broker.send(&ids([1])).await;
    let first = next(&mut source).await;
    first.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&broker).await;
    proxies.iter().for_each(TcpProxy::forget_live);
    broker.send(&ids([2])).await;
    let start = std::time::Instant::now();
    let second = next(&mut source).await;
    assert!(start.elapsed() < MAX_SILENCE, "{:?}", start.elapsed());
    assert_eq!(second.id().as_deref(), Some("m-2"));
    second.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&broker).await;
}

/// A proxy in front of each server of a URL. The URL and the servers' announcements lead to the proxies.
fn behind_proxies(url: &str) -> (Vec<TcpProxy>, String) {
    const LOOPBACK: &str = "127.0.0.1:";
    let servers = url.split(LOOPBACK).skip(1).map(|server| {
        let port: String = server.chars().take_while(char::is_ascii_digit).collect();
        let server: SocketAddr = format!("{LOOPBACK}{port}").parse().unwrap();
        (server, TcpProxy::start(server))
    });
    let servers: Vec<_> = servers.collect();
    let mut url = url.to_owned();
    for (server, proxy) in &servers {
        for (_, every) in &servers {
            every.announce(*server, proxy.addr());
        }
        url = url.replace(&server.to_string(), &proxy.addr().to_string());
    }
    (servers.into_iter().map(|(_, proxy)| proxy).collect(), url)
}

/// A module for each broker with a test for each rule.
macro_rules! rules {
    (@ $module:ident: $broker:ty: $($test:ident = $rule:ident;)*) => {
        mod $module {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $rule::<$broker>().await;
                }
            )*
        }
    };
    ($module:ident: $broker:ty $(, $test:ident = $rule:ident)*) => {
        rules! {
            @ $module: $broker:
            three_consumers_run_one_body_for_each_id = one_body_for_each_id;
            a_message_that_always_fails_is_a_dead_letter = a_dead_letter_after_n_bodies;
            a_consumer_that_stops_gives_back_what_it_has_not_begun = a_stop_gives_back;
            a_delivery_that_is_dropped_unsettled_comes_again = a_dropped_delivery_comes_again;
            a_delivery_that_is_given_back_comes_again_after_its_pause = a_retry_comes_after_its_pause;
            a_handler_longer_than_the_deadline_keeps_its_delivery = a_long_handler_keeps_its_delivery;
            a_connection_that_falls_silent_is_made_anew = a_silent_connection_is_made_anew;
            $($test = $rule;)*
        }
    };
}

rules!(
    redis_streams: RedisStreams,
    a_server_that_restarts_is_lost_and_regained_and_loses_no_message = a_broker_that_is_away,
    a_subscription_that_is_gone_ends_the_source_unless_on_lost_is_set = a_lost_subscription_ends_the_source
);
rules!(
    nats: Nats,
    a_server_that_restarts_is_lost_and_regained_and_loses_no_message = a_broker_that_is_away,
    a_subscription_that_is_gone_ends_the_source_unless_on_lost_is_set = a_lost_subscription_ends_the_source
);
rules!(
    quorum_queues: Rabbit<false>,
    a_server_that_restarts_is_lost_and_regained_and_loses_no_message = a_broker_that_is_away
);
rules!(classic_queues: Rabbit<true>);
#[cfg(feature = "kafka")]
rules!(
    kafka: idem_tests::brokers::Kafka,
    a_server_that_restarts_is_lost_and_regained_and_loses_no_message = a_broker_that_is_away
);
