//! Changing passwords of running consumers, and their providers, on real brokers.

use std::fmt::Debug;

use idem_consumers::{BrokerError, JetStream, RabbitQueue, RedisStream, Source};
use idem_harness::NatsServer;
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams, nats, redis_streams};
use idem_tests::secret::{ChangingSecret, change_acl_user};
use idem_tests::shop::assert_no_marker;
use tokio::task::block_in_place;

use super::desk::{Desk, LEASE, error, ids, until_settled};

const CHANGES: u32 = 3;

/// Messages before, and after, a change.
const MESSAGES: u32 = 20;

/// Without a provider, a refused reconnection ends the source.
async fn every_message_has_one_body<B: Broker>(
    broker: &B,
    secret: &ChangingSecret,
    source: B::Source,
    on_server: impl Fn(&str),
) {
    let mut desk = Desk::new();
    desk.run(desk.consumer(), source, async |_| Ok(()));
    // A NATS server that is killed while it creates a durable loses the durable at each of its starts.
    until_settled(broker).await;
    for change in 0..CHANGES {
        let first = change * 2 * MESSAGES;
        broker.send(&ids(first..first + MESSAGES)).await;
        block_in_place(|| secret.change(&on_server));
        broker
            .send(&ids(first + MESSAGES..first + 2 * MESSAGES))
            .await;
        until_settled(broker).await;
    }
    desk.close().await;
    desk.assert_one_body_for_each_of((CHANGES * 2 * MESSAGES) as usize);
    let provided = secret.provided();
    assert!(provided > CHANGES as usize, "{provided}");
}

/// The server does not accept the secret any more.
fn assert_refused<S: Debug>(connected: Result<S, BrokerError>, says: &str) {
    let text = format!("{:?}", connected.unwrap_err());
    assert!(text.contains(says), "{text}");
    assert_no_marker(&text);
}

/// A source without a provider ends with the refusal of its password.
async fn assert_ends<S: Source<Delivery: Debug>>(mut source: S, says: &str) {
    let text = format!("{:?}", error(&mut source).await);
    assert!(text.contains(says) && !text.contains("former"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_of_rabbitmq_ends_no_source() {
    let (broker, secret) = (Rabbit::<false>::shared().await, ChangingSecret::default());
    let eval = |expressions: &str| drop(block_in_place(|| broker.server.eval(expressions)));
    let password = secret.password();
    eval(&format!(
        r#"rabbit_auth_backend_internal:add_user(<<"app">>, <<"{password}">>, <<"test">>),
        All = <<".*">>,
        rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"/">>, All, All, All, <<"test">>)."#
    ));
    let change = |password: &str| {
        eval(&format!(
            r#"rabbit_auth_backend_internal:change_password(<<"app">>, <<"{password}">>, <<"test">>)."#
        ));
    };
    let connect = || {
        let builder = RabbitQueue::builder(&broker.server.url(), &broker.queue);
        builder.credentials(secret.provider("app")).connect()
    };
    let source = connect().await.unwrap();
    assert_no_marker(&format!("{source:?}"));
    every_message_has_one_body(&broker, &secret, source, |password| {
        change(password);
        broker.close_connections();
    })
    .await;
    change("former");
    let url = format!("amqp://app:former@{}/%2f", broker.server.addr());
    let without_provider = RabbitQueue::connect(&url, &*broker.queue).await.unwrap();
    change("of the broker alone");
    assert_refused(connect().await, "credentials of the provider");
    assert_ends(without_provider, "ACCESS_REFUSED").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_of_nats_ends_no_source() {
    let secret = ChangingSecret::default();
    let server = block_in_place(|| NatsServer::start_with_login("app", &secret.password()));
    let broker = Nats(server);
    Nats::create_streams(&broker.client().await).await;
    let url = format!("nats://{}", broker.0.addr());
    let connect = || {
        let builder = JetStream::builder(&url, nats::STREAM, nats::DURABLE);
        builder.credentials(secret.provider("app")).connect()
    };
    let source = connect().await.unwrap().ack_wait(LEASE);
    let on_server = |password: &str| broker.0.restart_with_login("app", password);
    every_message_has_one_body(&broker, &secret, source, on_server).await;
    block_in_place(|| broker.0.restart_with_login("app", "former"));
    let url = format!("nats://app:former@{}", broker.0.addr());
    let without_provider = JetStream::connect(&url, nats::STREAM, nats::DURABLE).await;
    block_in_place(|| broker.0.restart_with_login("app", "of the server alone"));
    assert_ends(without_provider.unwrap(), "authorization violation").await;
    let before = secret.provided();
    assert_refused(connect().await, "");
    assert_eq!(secret.provided(), before + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_of_redis_ends_no_source() {
    let (broker, secret) = (RedisStreams::start().await, ChangingSecret::default());
    block_in_place(|| change_acl_user(&broker.0, &secret.password()));
    let url = format!("redis://{}", broker.0.addr());
    let connect = || {
        let builder = RedisStream::builder(&url, redis_streams::STREAM, redis_streams::GROUP);
        builder.credentials(secret.provider("app")).connect()
    };
    let source = connect().await.unwrap().visibility(LEASE);
    let on_server = |password: &str| change_acl_user(&broker.0, password);
    every_message_has_one_body(&broker, &secret, source, on_server).await;
    block_in_place(|| change_acl_user(&broker.0, "former"));
    let url = format!("redis://app:former@{}", broker.0.addr());
    let without_provider = RedisStream::connect(&url, redis_streams::STREAM, redis_streams::GROUP);
    let without_provider = without_provider.await.unwrap();
    block_in_place(|| change_acl_user(&broker.0, "of the server alone"));
    assert_refused(connect().await, "credentials of the provider");
    assert_ends(without_provider, "Password authentication failed").await;
}
