//! Queues of `RabbitMQ` over TLS, on a real broker whose certificates the harness makes.

use idem_consumers::{DeadLetterReason, Delivery as _, RabbitQueue, Verdict};
use idem_harness::Certificates;
use idem_tests::brokers::{Broker as _, Rabbit};
use tokio::task::block_in_place;

use super::desk::{ids, next, until_settled};

type Quorum = Rabbit<false>;

/// The error, which has no password.
async fn refusal(broker: &Quorum, url: &str, trusted: &Certificates) -> String {
    let builder = RabbitQueue::builder(url, broker.queue.as_str());
    let error = builder.root_certificate(trusted.ca_pem()).connect().await;
    let error = error.unwrap_err();
    assert!(
        !format!("{error} {error:?}").contains("secret"),
        "{error:?}"
    );
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_consumed_over_tls_and_after_a_lost_connection_again() {
    let broker = Quorum::start().await;
    let own = broker.server.certificates();
    broker.send(&ids([1, 2])).await;
    let builder = RabbitQueue::builder(&broker.server.tls_url(), broker.queue.as_str())
        .root_certificate(own.ca_pem())
        .client_certificate(own.client_cert_pem(), own.client_key_pem());
    let shown = format!("{builder:?}");
    assert!(
        shown.contains("bills") && !shown.contains("secret"),
        "{shown}"
    );
    let mut source = builder.connect().await.unwrap();
    let first = next(&mut source).await;
    first.settle(Verdict::Acknowledge).await.unwrap();
    let is_tls = || block_in_place(|| broker.server.ctl(&["list_connections", "ssl", "name"]));
    assert!(is_tls().contains("true"), "{}", is_tls());
    let _ = block_in_place(|| broker.server.ctl(&["close_all_connections", "by the test"]));
    // The prefetched delivery of the lost connection cannot be settled.
    let mut second = next(&mut source).await;
    while second.attempt() == Some(1) {
        second = next(&mut source).await;
    }
    let reason = DeadLetterReason::Business;
    second.settle(Verdict::DeadLetter(reason)).await.unwrap();
    until_settled(&broker).await;
    assert_eq!(broker.letters().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_of_another_authority_is_refused() {
    let broker = Quorum::shared().await;
    let url = broker.server.tls_url();
    let text = refusal(&broker, &url, &Certificates::new()).await;
    assert!(text.contains("authority that is not trusted"), "{text}");
    assert!(
        text.contains("`RabbitQueueBuilder::root_certificate`"),
        "{text}"
    );
    // The authorities of the system, of which this is none.
    let error = RabbitQueue::connect(&url, broker.queue.as_str()).await;
    let error = error.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("`RabbitQueueBuilder::root_certificate`"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_over_tls_is_an_error_that_names_no_password() {
    let broker = Quorum::shared().await;
    let (url, own) = (
        broker.server.tls_url_with("secret"),
        broker.server.certificates(),
    );
    let text = refusal(&broker, &url, own).await;
    assert!(text.contains("ACCESS_REFUSED"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_without_tls_is_named() {
    let broker = Quorum::shared().await;
    let own = broker.server.certificates();
    let url = broker.server.url().replace("amqp://", "amqps://");
    let text = refusal(&broker, &url, own).await;
    assert!(text.contains("does not speak TLS"), "{text}");
    let text = refusal(&broker, &broker.server.url(), own).await;
    assert!(text.contains("does not begin with `amqps://`"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_of_another_authority_is_refused() {
    let broker = Quorum::shared().await;
    let (own, other) = (broker.server.certificates(), Certificates::new());
    let builder = || {
        let url = broker.server.tls_url();
        let builder = RabbitQueue::builder(&url, broker.queue.as_str());
        builder.root_certificate(own.ca_pem())
    };
    let stranger = builder().client_certificate(other.client_cert_pem(), other.client_key_pem());
    // By an alert of TLS 1.3, which comes after the handshake, or by the end of the connection behind it.
    stranger.connect().await.unwrap_err();
    let mixed = builder().client_certificate(own.client_cert_pem(), other.client_key_pem());
    let text = mixed.connect().await.unwrap_err().to_string();
    assert!(
        text.contains("does not belong to the client certificate"),
        "{text}"
    );
}
