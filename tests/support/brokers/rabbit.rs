//! Queues of `RabbitMQ`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::panicking;
use std::time::Duration;

use idem_consumers::{BrokerError, RabbitQueue};
use idem_harness::RabbitServer;
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, PublisherConfirm};
use tokio::task::block_in_place;

use super::Broker;

/// Shared by tests that do not disturb it, each with its queues.
static SHARED: LazyLock<Arc<RabbitServer>> = LazyLock::new(|| Arc::new(RabbitServer::start()));

/// Brokers that earlier tests had for themselves: a start takes seven seconds of the processor.
static IDLE: Mutex<Vec<Arc<RabbitServer>>> = Mutex::new(Vec::new());

/// The number of messages of a queue: that of a quorum queue from its state, because its statistics are of its last tick.
const COUNT: &str = r#"
    {ok, Queue} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"QUEUE">>)),
    case amqqueue:get_type(Queue) of
        rabbit_quorum_queue ->
            Total = fun rabbit_fifo:query_messages_total/1,
            case ra:leader_query(amqqueue:get_pid(Queue), Total) of
                {ok, {_, Messages}, _} -> Messages;
                Starts -> Starts
            end;
        _ ->
            [{messages, Messages}] = rabbit_amqqueue:info(Queue, [messages]),
            Messages
    end."#;

/// Closes the connections of a queue's consumers.
const CLOSE: &str = r#"
    {ok, Queue} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"QUEUE">>)),
    Close = fun(Channel) ->
        [{connection, Connection}] = rabbit_channel:info(Channel, [connection]),
        rabbit_networking:close_connection(Connection, "by the test")
    end,
    [Close(element(1, Consumer)) || Consumer <- rabbit_amqqueue:consumers(Queue)]."#;

/// A quorum queue or a classic one, and its dead letters' queue.
#[derive(Debug)]
pub struct Rabbit<const CLASSIC: bool> {
    pub server: Arc<RabbitServer>,
    pub queue: String,
    /// Whether another test gets the broker after this one.
    pub is_reusable: bool,
}

/// A broker that was killed and restarted serves the next test.
impl<const CLASSIC: bool> Drop for Rabbit<CLASSIC> {
    fn drop(&mut self) {
        if self.is_reusable && !panicking() && self.server.is_running() {
            let mut idle = IDLE.lock().expect("no panic");
            idle.push(Arc::clone(&self.server));
        }
    }
}

/// Ends with its connection.
#[derive(Debug)]
pub struct Link {
    pub channel: Channel,
    _connection: Connection,
}

pub fn header(letter: &BasicGetMessage, name: &str) -> Option<String> {
    let headers = letter.properties.headers().as_ref()?;
    let text = headers.inner().get(name)?.as_long_string()?;
    Some(text.to_string())
}

impl<const CLASSIC: bool> Rabbit<CLASSIC> {
    async fn on(server: Arc<RabbitServer>) -> Self {
        static QUEUES: AtomicU32 = AtomicU32::new(0);
        let number = QUEUES.fetch_add(1, Ordering::Relaxed);
        let queue = format!("bills-{number}");
        let this = Self {
            server,
            queue,
            is_reusable: false,
        };
        let mut arguments = FieldTable::default();
        let kind = if CLASSIC { "classic" } else { "quorum" };
        let kind = AMQPValue::LongString(kind.into());
        arguments.insert("x-queue-type".into(), kind);
        let link = this.link().await;
        for name in [this.queue.clone(), this.dead()] {
            let (options, arguments) = (QueueDeclareOptions::durable(), arguments.clone());
            let declared = link.channel.queue_declare(name.into(), options, arguments);
            declared.await.expect("a queue");
        }
        this
    }

    fn dead(&self) -> String {
        format!("{}.dead", self.queue)
    }

    pub async fn link(&self) -> Link {
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(&self.server.url(), properties).await;
        let connection = connection.expect("the broker is up");
        let channel = connection.create_channel().await.expect("a channel");
        let confirmed = channel.confirm_select(ConfirmSelectOptions::default());
        confirmed.await.expect("confirmations");
        Link {
            channel,
            _connection: connection,
        }
    }

    async fn publication(
        &self,
        link: &Link,
        text: &str,
        properties: BasicProperties,
    ) -> PublisherConfirm {
        let (exchange, key) = ("".into(), self.queue.as_str().into());
        let (options, durable) = (
            BasicPublishOptions::default(),
            properties.with_delivery_mode(2),
        );
        let channel = &link.channel;
        let publication = channel.basic_publish(exchange, key, options, text.as_bytes(), durable);
        publication.await.expect("the broker is up")
    }

    /// Sends a message, and waits until the broker has stored it.
    pub async fn publish(&self, text: &str, properties: BasicProperties) {
        let link = self.link().await;
        let sent = self.publication(&link, text, properties).await;
        assert!(sent.await.expect("a confirmation").is_ack());
    }

    /// Closes the connections of the queue's consumers, as an operator does.
    pub fn close_connections(&self) {
        let _ = self.eval(CLOSE);
    }

    fn eval(&self, expressions: &str) -> String {
        let expressions = expressions.replace("QUEUE", &self.queue);
        block_in_place(|| self.server.eval(&expressions))
    }

    pub async fn letters(&self) -> Vec<BasicGetMessage> {
        let (link, options) = (self.link().await, BasicGetOptions { no_ack: true });
        let mut letters = Vec::new();
        loop {
            let letter = link.channel.basic_get(self.dead().into(), options).await;
            let Some(letter) = letter.expect("the broker is up") else {
                return letters;
            };
            letters.push(letter);
        }
    }
}

impl<const CLASSIC: bool> Broker for Rabbit<CLASSIC> {
    type Source = RabbitQueue;

    const NAME: &'static str = if CLASSIC {
        "rabbitmq-classic"
    } else {
        "rabbitmq"
    };
    const ONE_LETTER: bool = false;
    /// Two heartbeats.
    const SILENCE: Duration = Duration::from_secs(2);
    const FAULTS: [usize; 3] = [2, 1, 1];

    async fn start() -> Self {
        let idle = IDLE.lock().expect("no panic").pop();
        let server = idle.unwrap_or_else(|| Arc::new(block_in_place(RabbitServer::start)));
        let mut this = Self::on(server).await;
        this.is_reusable = true;
        // RabbitMQ 3.10 writes the last queues after seconds, and the name of a quorum queue, without which it has no
        // leader: a kill before that loses them.
        this.eval("ok = mnesia:sync_log(), [ok = dets:sync(Table) || Table <- dets:all()].");
        this
    }

    async fn shared() -> Self {
        Self::on(Arc::clone(block_in_place(|| &*SHARED))).await
    }

    /// The broker gives up a consumer that is silent for two heartbeats.
    fn url(&self) -> String {
        format!("{}?heartbeat=1 {}", self.server.url(), self.queue)
    }

    async fn send(&self, ids: &[String]) {
        let (link, mut sent) = (self.link().await, Vec::new());
        for id in ids {
            let properties = BasicProperties::default().with_message_id(id.as_str().into());
            sent.push(self.publication(&link, id, properties).await);
        }
        for sent in sent {
            assert!(sent.await.expect("a confirmation").is_ack());
        }
    }

    fn kill(&self) {
        self.server.kill();
    }

    fn revive(&self) {
        self.server.restart();
    }

    async fn unsettled(&self) -> usize {
        // Unknown while the queue starts.
        self.eval(COUNT).parse().unwrap_or(1)
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let letters = self.letters().await;
        let letters = letters.iter().map(|letter| {
            let id = header(letter, "idem-id").expect("an id");
            (id, header(letter, "idem-reason").expect("a reason"))
        });
        letters.collect()
    }

    async fn source(url: &str, _: Duration) -> Result<RabbitQueue, BrokerError> {
        let (url, queue) = url.split_once(' ').expect("a URL and a queue");
        RabbitQueue::connect(url, queue).await
    }
}
