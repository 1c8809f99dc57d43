//! NATS `JetStream`.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::{self, stream};
use async_nats::{ConnectOptions, ServerAddr};
use idem_consumers::{
    BrokerError, Delivery as _, JetStream, JetStreamDelivery, OnLostSubscription, Verdict,
};
use idem_harness::NatsServer;

use super::{Broker, Subscribed};

/// The stream of the messages, whose subjects begin with its name.
pub const STREAM: &str = "bills";
pub const DURABLE: &str = "collectors";

/// The shortest time against duplicates that a stream can have. Later ones are stored.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

/// The number of publications before their confirmations are waited for.
const BATCH: usize = 1_000;

/// A durable of a stream, and a stream of dead letters.
#[derive(Debug)]
pub struct Nats(pub NatsServer);

impl Nats {
    pub async fn client(&self) -> jetstream::Context {
        let server: ServerAddr = self.0.url().parse().expect("a URL of a server");
        // The client leaves out the login of a URL, and logs it.
        let options = match (server.username(), server.password()) {
            (Some(user), Some(password)) => {
                ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
            }
            _ => ConnectOptions::new(),
        };
        let client = options.connect(self.0.addr().to_string()).await;
        jetstream::new(client.expect("the server is up"))
    }

    pub async fn create_streams(client: &jetstream::Context) {
        let window = Duration::from_mins(2);
        for (name, duplicate_window) in [(STREAM, SHORTEST_WINDOW), ("dead", window)] {
            let config = stream::Config {
                name: name.to_owned(),
                subjects: vec![format!("{name}.>")],
                duplicate_window,
                ..stream::Config::default()
            };
            let created = client.create_stream(config).await;
            created.expect("a stream");
        }
    }

    pub async fn letters(&self) -> Vec<StreamMessage> {
        let dead = self.client().await.get_stream("dead").await;
        let mut dead = dead.expect("a stream of dead letters");
        let info = dead.info().await.expect("its state");
        let (last, mut letters) = (info.state.last_sequence, Vec::new());
        for sequence in 1..=last {
            let letter = dead.get_raw_message(sequence).await;
            letters.push(letter.expect("no dead letter is deleted"));
        }
        letters
    }
}

/// The server's counts of unsettled and of undelivered messages; nothing while there is no durable.
pub async fn unsettled(client: &jetstream::Context) -> Option<usize> {
    let consumer = client.get_consumer_from_stream(DURABLE, STREAM).await;
    let consumer: PullConsumer = consumer.ok()?;
    let info = consumer.cached_info();
    let pending = usize::try_from(info.num_pending).expect("a few thousand");
    Some(pending + info.num_ack_pending)
}

impl Broker for Nats {
    type Source = JetStream;

    const NAME: &'static str = "nats";
    const ONE_LETTER: bool = true;

    async fn start() -> Self {
        let this = Self(NatsServer::start());
        Self::create_streams(&this.client().await).await;
        this
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn send(&self, ids: &[String]) {
        let client = self.client().await;
        for batch in ids.chunks(BATCH) {
            let mut left: Vec<_> = batch.iter().collect();
            while !left.is_empty() {
                let mut sent = Vec::new();
                for id in left.drain(..) {
                    let message = PublishMessage::build().payload(id.clone().into());
                    let publication = client.send_publish("bills.eu", message.message_id(id));
                    sent.push((id, publication.await.expect("the server is up")));
                }
                for (id, confirmation) in sent {
                    if confirmation.await.expect("it is stored").duplicate {
                        left.push(id);
                    }
                }
            }
        }
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn revive(&self) {
        self.0.restart();
    }

    async fn unsettled(&self) -> usize {
        unsettled(&self.client().await).await.unwrap_or(1)
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let letters = self.letters().await.into_iter();
        letters
            .map(|letter| {
                let header = |name| letter.headers.get(name).map(ToString::to_string);
                let id = header("idem-id").expect("an id");
                (id, header("idem-reason").expect("a reason"))
            })
            .collect()
    }

    async fn source(url: &str, held: Duration) -> Result<JetStream, BrokerError> {
        let source = JetStream::connect(url, STREAM, DURABLE).await?;
        Ok(source.ack_wait(held))
    }
}

impl Subscribed for Nats {
    const NAMES: [&'static str; 2] = [STREAM, DURABLE];

    fn on_lost(source: JetStream, on_lost: OnLostSubscription) -> JetStream {
        source.on_lost_subscription(on_lost)
    }

    async fn unsubscribe(&self) {
        let client = self.client().await;
        let deleted = client.delete_consumer_from_stream(DURABLE, STREAM).await;
        // It is gone, and a write of its state has left a file: https://github.com/nats-io/nats-server/pull/7886
        let error = deleted.as_ref().err().map(ToString::to_string);
        let has_file = error.is_some_and(|it| it.contains("directory not empty"));
        assert!(has_file || deleted.expect("it is there").success);
    }

    async fn is_subscribed(&self) -> bool {
        unsettled(&self.client().await).await.is_some()
    }

    async fn forgotten(delivery: JetStreamDelivery) {
        let settled = delivery.settle(Verdict::Acknowledge).await;
        let text = settled.expect_err("no durable confirms it").to_string();
        assert!(text.contains("no responders"), "{text}");
    }
}
