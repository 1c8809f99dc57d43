//! Queues of `RabbitMQ` over TLS, on a real broker.

use idem_consumers::{DeadLetterReason, Delivery as _, RabbitQueue, Verdict};
use idem_harness::Certificates;
use idem_tests::brokers::{Broker as _, Rabbit};
use tokio::task::block_in_place;

use super::desk::{ids, next, until_settled};

type Quorum = Rabbit<false>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_consumed_over_tls_and_after_a_lost_connection_again() {
    let broker = Quorum::shared().await;
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
    let lost = next(&mut source).await;
    let is_tls = "rabbit_networking:connection_info_all([ssl]).";
    let is_tls = block_in_place(|| broker.server.eval(is_tls));
    assert!(is_tls.contains("{ssl,true}"), "{is_tls}");
    broker.close_connections();
    // The prefetched delivery of the lost connection cannot be settled either.
    let mut again = next(&mut source).await;
    while again.attempt() == Some(1) {
        again = next(&mut source).await;
    }
    lost.settle(Verdict::Acknowledge).await.unwrap_err();
    let reason = DeadLetterReason::Business;
    again.settle(Verdict::DeadLetter(reason)).await.unwrap();
    let second = next(&mut source).await;
    second.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&broker).await;
    assert_eq!(broker.letters().await.len(), 1);
}

/// Finds a connection to another broker, or a refusal without its remedy. No text has the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_names_its_cause_and_no_password() {
    let broker = Quorum::shared().await;
    let (server, other) = (&broker.server, Certificates::new());
    let (tls, no_tls, own) = (server.tls_url(), server.url(), Some(server.certificates()));
    let (wrong, no_listener) = (
        server.tls_url_with("secret"),
        no_tls.replace("amqp:", "amqps:"),
    );
    let untrusted = "authority that is not trusted; give its certificate to `RabbitQueueBuilder::root_certificate`";
    for (url, trusted, cause) in [
        (&tls, Some(&other), untrusted),
        // The authorities of the system, of which this is none.
        (&tls, None, "`RabbitQueueBuilder::root_certificate`"),
        (&wrong, own, "ACCESS_REFUSED"),
        (&no_listener, own, "does not speak TLS"),
        (&no_tls, own, "does not begin with `amqps://`"),
    ] {
        let mut builder = RabbitQueue::builder(url, broker.queue.as_str());
        if let Some(trusted) = trusted {
            builder = builder.root_certificate(trusted.ca_pem());
        }
        let error = builder.connect().await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(cause), "{cause}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
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
