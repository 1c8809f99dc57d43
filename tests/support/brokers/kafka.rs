//! Kafka: the mock cluster of librdkafka.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{BrokerError, KafkaTopic};
use idem_harness::KafkaCluster;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;

use super::Broker;

pub const TOPIC: &str = "bills";
pub const GROUP: &str = "collectors";
const DEAD: &str = "bills.dead";
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a consumer may be silent. A new group of the mock cluster waits for 3 s for its members, which are to be
/// there still; a later rebalance takes a second less than this.
const SESSION: Duration = Duration::from_millis(3_500);

/// A consumer's wait for the end of a rebalance, less 3 s. The mock cluster sends no reply to a member whose session
/// lapses meanwhile (`rd_kafka_mock_cgrp_classic_session_tmr_cb`), as on a busy machine. Longer than a stall.
const REJOIN: Duration = Duration::from_secs(8);

/// A consumer group of a topic, and a topic of dead letters.
pub struct Kafka {
    pub cluster: KafkaCluster,
    /// The ids sent to each partition, in the order of their offsets.
    sent: Mutex<Vec<Vec<String>>>,
    /// Of the same group, and never subscribed.
    group: Arc<BaseConsumer>,
}

pub fn header<'a>(message: &'a OwnedMessage, name: &str) -> Option<&'a str> {
    let mut headers = message.headers()?.iter();
    let found = headers.find(|header| header.key == name)?;
    std::str::from_utf8(found.value?).ok()
}

fn client(cluster: &KafkaCluster) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.brokers());
    config.set("message.max.bytes", "10000000");
    config
}

impl Kafka {
    /// A cluster whose topic has this number of partitions.
    pub fn with_partitions(partitions: u32) -> Self {
        let cluster = KafkaCluster::start();
        cluster.create_topic(TOPIC, partitions);
        cluster.create_topic(DEAD, 1);
        let group = client(&cluster).set("group.id", GROUP).create();
        let partitions = usize::try_from(partitions).expect("a few");
        Self {
            cluster,
            sent: Mutex::new(vec![Vec::new(); partitions]),
            group: Arc::new(group.expect("a client")),
        }
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, Vec<Vec<String>>> {
        self.sent.lock().expect("no panic while it is held")
    }

    /// The committed offset of each partition; 0 where it is unknown.
    pub async fn committed(&self) -> Vec<usize> {
        let (group, partitions) = (Arc::clone(&self.group), self.sent().len());
        let read = move || {
            let mut list = TopicPartitionList::new();
            let end = i32::try_from(partitions).expect("a few");
            list.add_partition_range(TOPIC, 0, end - 1);
            group.committed_offsets(list, PATIENCE)
        };
        let Ok(list) = spawn_blocking(read).await.expect("no panic") else {
            return vec![0; partitions];
        };
        let offset = |offset| match offset {
            Offset::Offset(offset) => usize::try_from(offset).expect("an offset"),
            _ => 0,
        };
        let elements = list.elements();
        elements.iter().map(|it| offset(it.offset())).collect()
    }

    pub async fn letters(&self) -> Vec<OwnedMessage> {
        let client = client(&self.cluster).set("group.id", "operators").create();
        let client: BaseConsumer = client.expect("a client");
        let read = move || {
            let (_, count) = client.fetch_watermarks(DEAD, 0, PATIENCE).expect("a topic");
            let mut list = TopicPartitionList::new();
            let added = list.add_partition_offset(DEAD, 0, Offset::Beginning);
            added.expect("an offset");
            client.assign(&list).expect("a partition");
            let poll = || client.poll(PATIENCE).expect("a dead letter in time").ok();
            let found = std::iter::repeat_with(poll).flatten();
            let count = usize::try_from(count).expect("a number");
            found.map(|letter| letter.detach()).take(count).collect()
        };
        spawn_blocking(read).await.expect("no panic")
    }
}

impl Broker for Kafka {
    type Source = KafkaTopic;

    const NAME: &'static str = "kafka";
    const ONE_LETTER: bool = false;
    const RESTARTS: bool = false;
    const SILENCE: Duration = SESSION;

    async fn start() -> Self {
        Self::with_partitions(6)
    }

    fn url(&self) -> String {
        self.cluster.brokers().to_owned()
    }

    /// Sends to all partitions in turn.
    async fn send(&self, ids: &[String]) {
        let producer: FutureProducer = client(&self.cluster).create().expect("a client");
        let mut sent = Vec::new();
        {
            let mut log = self.sent();
            for id in ids {
                let fewest = log.iter().map(Vec::len).min();
                let partition = log.iter().position(|it| Some(it.len()) == fewest);
                let partition = partition.expect("at least one partition");
                log[partition].push(id.clone());
                let value = Some(id);
                let header = Header { key: "id", value };
                let record = FutureRecord::<str, str>::to(TOPIC)
                    .partition(i32::try_from(partition).expect("a few"))
                    .headers(OwnedHeaders::new().insert(header))
                    .payload(id);
                let queued = producer.send_result(record);
                sent.push(queued.map_err(|(error, _)| error).expect("room for it"));
            }
        }
        for sent in sent {
            let confirmed = sent.await.expect("the producer is there");
            confirmed.expect("the message is stored");
        }
    }

    fn kill(&self) {
        self.cluster.take_down();
    }

    fn revive(&self) {
        self.cluster.bring_up();
    }

    async fn unsettled(&self) -> usize {
        let sent: usize = self.sent().iter().map(Vec::len).sum();
        sent - self.committed().await.iter().sum::<usize>()
    }

    async fn settled(&self) -> Option<Vec<String>> {
        let committed = self.committed().await;
        let sent = self.sent();
        let settled = sent.iter().zip(committed);
        let settled = settled.flat_map(|(ids, committed)| ids[..committed].to_vec());
        Some(settled.collect())
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let letters = self.letters().await;
        let text = |letter, name| header(letter, name).expect("a header").to_owned();
        let letters = letters
            .iter()
            .map(|it| (text(it, "idem-id"), text(it, "idem-reason")));
        letters.collect()
    }

    async fn source(url: &str, _: Duration) -> Result<KafkaTopic, BrokerError> {
        let session = SESSION.as_millis().to_string();
        let rejoin = REJOIN.as_millis().to_string();
        let properties = [
            ("session.timeout.ms", &*session),
            ("heartbeat.interval.ms", "200"),
            ("max.poll.interval.ms", &*rejoin),
        ];
        KafkaTopic::connect_with(url, TOPIC, GROUP, properties).await
    }
}
