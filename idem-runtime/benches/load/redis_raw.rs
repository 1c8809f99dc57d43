//! The same work by the redis crate alone: what idem is measured against.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};

use super::driver::Work;

/// How long everything here lives, in milliseconds: as long as idem's answers.
pub(crate) const LIFE: u64 = 120_000;

/// Stores an answer where the claim is still one's own.
pub(crate) const COMPLETE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0";

/// Gives a claim back where it is still one's own.
const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return 0";

/// Makes a connection with the settings of the store's.
pub(crate) async fn connect(client: &Client) -> MultiplexedConnection {
    connect_with(client, config()).await
}

/// Makes a connection with client-side caching, which needs RESP3.
pub(crate) async fn connect_caching(url: &str) -> MultiplexedConnection {
    let separator = if url.contains('?') { '&' } else { '?' };
    let client = Client::open(format!("{url}{separator}protocol=resp3")).unwrap();
    let config = config().set_cache_config(redis::caching::CacheConfig::new());
    connect_with(&client, config).await
}

async fn connect_with(client: &Client, config: AsyncConnectionConfig) -> MultiplexedConnection {
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// As in `store/redis/builder.rs`, but for how long a reply may take:
/// nothing here is sent again.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(Some(Duration::from_secs(20)))
        .set_pipeline_buffer_size(1_024)
}

/// A connection and its payloads.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    value: Arc<[u8]>,
    complete: Arc<str>,
    release: Arc<str>,
    /// A claim: a letter and an owner.
    claim: [u8; 17],
    key: [u8; 22],
}

impl Raw {
    /// `space` keeps the keys of one user of it apart from another's.
    pub(crate) async fn new(
        mut connection: MultiplexedConnection,
        value_bytes: usize,
        space: u64,
    ) -> Self {
        let complete = load(&mut connection, COMPLETE).await;
        let release = load(&mut connection, RELEASE).await;
        let mut key = *b"raw:-----:------------";
        write_base64(&mut key[4..9], space);
        Self {
            connection,
            value: vec![b'.'; value_bytes].into(),
            complete,
            release,
            claim: *b"P----------------",
            key,
        }
    }

    fn set(&mut self, number: u64) {
        write_base64(&mut self.key[10..], number);
        write_base64(&mut self.claim[1..], number);
    }

    async fn send(&mut self, command: &Cmd) -> Value {
        self.connection.send_packed_command(command).await.unwrap()
    }

    async fn claim(&mut self) -> Value {
        let mut command = Cmd::new();
        command.arg("SET").arg(&self.key).arg(&self.claim);
        command.arg("NX").arg("GET").arg("PX").arg(LIFE);
        self.send(&command).await
    }

    async fn claim_new(&mut self) {
        assert_eq!(self.claim().await, Value::Nil, "the key is new");
    }

    async fn claim_done(&mut self) {
        let answer = self.claim().await;
        assert!(matches!(answer, Value::BulkString(bytes) if bytes.len() == self.value.len()));
    }

    async fn set_value(&mut self) {
        let mut command = Cmd::new();
        command.arg("SET").arg(&self.key).arg(&*self.value);
        command.arg("PX").arg(LIFE);
        assert_eq!(self.send(&command).await, Value::Okay);
    }

    async fn set_value_if_ours(&mut self) -> Value {
        let mut command = Cmd::new();
        command.arg("SET").arg(&self.key).arg(&*self.value);
        command.arg("IFEQ").arg(&self.claim).arg("PX").arg(LIFE);
        let reply = self.connection.send_packed_command(&command).await;
        reply.unwrap_or(Value::Nil)
    }

    async fn complete(&mut self) {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&*self.complete).arg(1);
        command.arg(&self.key).arg(&self.claim);
        command.arg(&*self.value).arg(LIFE);
        assert_eq!(self.send(&command).await, Value::Int(1));
    }

    async fn release(&mut self) {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&*self.release).arg(1);
        command.arg(&self.key).arg(&self.claim);
        assert_eq!(self.send(&command).await, Value::Int(1));
    }

    async fn get(&mut self) {
        let mut command = Cmd::new();
        command.arg("GET").arg(&self.key);
        let answer = self.send(&command).await;
        assert!(matches!(answer, Value::BulkString(bytes) if bytes.len() == self.value.len()));
    }

    /// Whether the server compares and sets without a script.
    pub(crate) async fn has_ifeq(mut self) -> bool {
        self.set(0);
        self.claim().await == Value::Nil && self.set_value_if_ours().await == Value::Okay
    }
}

pub(crate) async fn load(connection: &mut MultiplexedConnection, source: &str) -> Arc<str> {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(source);
    let sha: String = command.query_async(connection).await.unwrap();
    sha.into()
}

/// Writes a number over all of these bytes, without allocating.
fn write_base64(into: &mut [u8], mut number: u64) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for byte in into.iter_mut().rev() {
        *byte = DIGITS[(number & 63) as usize];
        number >>= 6;
    }
}

/// A command of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Claim,
    SetValue,
    SetValueIfOurs,
    Complete,
    Release,
    ReadByClaim,
    Get,
}
use Step::{Claim, Complete, Get, ReadByClaim, Release, SetValue, SetValueIfOurs};

/// `SET NX GET`, then `SET` without a check of the claim.
pub(crate) const UNFENCED: &[Step] = &[Claim, SetValue];
/// `SET NX GET`, then a script that looks who holds the claim.
pub(crate) const FENCED: &[Step] = &[Claim, Complete];
/// `SET NX GET`, then `SET IFEQ`, which looks who holds the claim.
pub(crate) const IF_EQUAL: &[Step] = &[Claim, SetValueIfOurs];
/// `SET NX GET` of a key that has a value.
pub(crate) const CLAIMED: &[Step] = &[ReadByClaim];
/// `GET` of a key that has a value; from the connection's cache, if it has one.
pub(crate) const GOT: &[Step] = &[Get];
/// `SET NX GET`, then a script that deletes the caller's own claim.
pub(crate) const RELEASED: &[Step] = &[Claim, Release];
/// `SET NX GET`, the script, and `SET NX GET` again.
pub(crate) const FENCED_AND_CLAIMED: &[Step] = &[Claim, Complete, ReadByClaim];

/// The commands of one call, of a new key for first ones.
#[derive(Clone)]
pub(crate) struct Calls(pub(crate) Raw, pub(crate) &'static [Step]);

impl Work for Calls {
    fn fills(&self) -> bool {
        self.1[0] != Claim
    }

    async fn fill(&mut self, number: u64) {
        self.0.set(number);
        self.0.set_value().await;
        if self.1 == GOT {
            self.0.get().await;
        }
    }

    async fn call(&mut self, number: u64) {
        let Self(raw, steps) = self;
        raw.set(number);
        for step in *steps {
            match step {
                Claim => raw.claim_new().await,
                SetValue => raw.set_value().await,
                SetValueIfOurs => assert_eq!(raw.set_value_if_ours().await, Value::Okay),
                Complete => raw.complete().await,
                Release => raw.release().await,
                ReadByClaim => raw.claim_done().await,
                Get => raw.get().await,
            }
        }
    }
}
