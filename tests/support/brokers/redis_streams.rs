//! Redis Streams.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_consumers::{BrokerError, OnLostSubscription, RedisStream};
use idem_harness::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};

use super::{Broker, Subscribed};
use crate::shop::PATIENCE;

pub const STREAM: &str = "bills";
pub const GROUP: &str = "collectors";

#[derive(Debug)]
pub struct RedisStreams(pub RedisServer);

impl RedisStreams {
    /// The entries that this group has not settled.
    pub async fn unsettled_of(&self, group: &str) -> usize {
        let mut command = redis::cmd("XINFO");
        command.arg("GROUPS").arg(STREAM);
        let groups: Vec<BTreeMap<String, Value>> = self.query(&command).await;
        let name = Value::BulkString(group.as_bytes().to_vec());
        let group = groups.iter().find(|group| group["name"] == name);
        let group = group.expect("the group is there");
        let mut command = redis::cmd("XINFO");
        let stream: BTreeMap<String, Value> = self.query(command.arg("STREAM").arg(STREAM)).await;
        // The group's `lag` is unknown after a restart.
        let delivered = group["last-delivered-id"] == stream["last-generated-id"];
        let pending = redis::from_redis_value::<usize>(group["pending"].clone());
        pending.expect("a number") + usize::from(!delivered)
    }

    async fn client(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.0.url()).expect("a URL of a server");
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let client = client.get_multiplexed_async_connection_with_config(&patient);
        client.await.expect("the server is up")
    }

    async fn query<T: redis::FromRedisValue>(&self, command: &Cmd) -> T {
        let reply = command.query_async(&mut self.client().await).await;
        reply.expect("a reply of this type")
    }

    pub async fn letters(&self) -> Vec<BTreeMap<String, String>> {
        let mut command = redis::cmd("XRANGE");
        command.arg(format!("{STREAM}:dead")).arg("-").arg("+");
        let letters: Vec<(String, BTreeMap<String, String>)> = self.query(&command).await;
        letters.into_iter().map(|(_, letter)| letter).collect()
    }
}

impl Broker for RedisStreams {
    type Source = RedisStream;

    const NAME: &'static str = "redis-streams";
    const ONE_LETTER: bool = true;

    async fn start() -> Self {
        let this = Self(RedisServer::builder().append_only_every_second().start());
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(STREAM).arg(GROUP);
        let () = this.query(command.arg("0").arg("MKSTREAM")).await;
        this
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn send(&self, ids: &[String]) {
        let mut pipeline = redis::pipe();
        for id in ids {
            let add = pipeline.cmd("XADD").arg(STREAM).arg("*");
            add.arg("id").arg(id).arg("payload").arg(id).ignore();
        }
        let sent = pipeline.query_async(&mut self.client().await).await;
        let () = sent.expect("every message is appended");
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn revive(&self) {
        self.0.restart();
    }

    async fn unsettled(&self) -> usize {
        self.unsettled_of(GROUP).await
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let letters = self.letters().await.into_iter();
        letters
            .map(|letter| (letter["id"].clone(), letter["idem-reason"].clone()))
            .collect()
    }

    async fn source(url: &str, held: Duration) -> Result<RedisStream, BrokerError> {
        let stream = RedisStream::connect(url, STREAM, GROUP).await?;
        Ok(stream.visibility(held))
    }
}

impl Subscribed for RedisStreams {
    const NAMES: [&'static str; 2] = [STREAM, GROUP];

    fn on_lost(source: RedisStream, on_lost: OnLostSubscription) -> RedisStream {
        source.on_lost_subscription(on_lost)
    }

    async fn unsubscribe(&self) {
        self.0.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    }

    async fn is_subscribed(&self) -> bool {
        self.0.cli(&["XINFO", "GROUPS", STREAM]).contains(GROUP)
    }
}
