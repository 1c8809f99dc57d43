//! Sentinels: who is the primary.

mod listener;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Client, Cmd, ConnectionInfo, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::listener::Listeners;
use super::address::{Address, client_at, text};
use super::link::Patience;
use crate::store::{StoreError, StoreErrorKind};

/// How long the others are waited for when one sentinel has answered and most have not.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one service. Clones are the same.
#[derive(Clone)]
pub(super) struct Sentinels(Arc<Inner>);

struct Inner {
    sentinels: Vec<Client>,
    service: String,
    /// How a connection to a server is made; the address is filled in.
    server: ConnectionInfo,
    last: Mutex<Option<Primary>>,
    generation: AtomicU64,
    listeners: Mutex<Listeners>,
}

/// What a sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Primary {
    age: Age,
    address: Address,
}

/// How new it is: the greater, the newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    /// Grows with every failover.
    epoch: u64,
    /// The sentinel that carries a failover out still names the old primary when the others name
    /// the new one.
    settled: bool,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Client>, service: String, server: ConnectionInfo) -> Self {
        Self(Arc::new(Inner {
            sentinels,
            service,
            server,
            last: Mutex::default(),
            generation: AtomicU64::new(0),
            listeners: Mutex::default(),
        }))
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Asks all sentinels at once, and believes the one that knows of the latest failover: one that
    /// is cut off from the others does not know that it is late.
    pub(super) async fn primary(&self, patience: Patience) -> Result<Client, StoreError> {
        self.listen(patience);
        let mut asked = JoinSet::new();
        for client in &self.0.sentinels {
            asked.spawn(ask(client.clone(), self.0.service.clone(), patience));
        }
        let most = self.0.sentinels.len() / 2 + 1;
        let mut until = Instant::now() + patience.connect + patience.response;
        let (mut answers, mut best, mut failure) = (0, None::<Primary>, None);
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            match answer {
                Ok(Ok(primary)) => {
                    answers += 1;
                    if answers == 1 {
                        until = until.min(Instant::now() + OTHERS);
                    }
                    if best.as_ref().is_none_or(|best| best.age < primary.age) {
                        best = Some(primary);
                    }
                    // Just after a failover most may not have heard of it yet.
                    if answers >= most && !best.as_ref().is_some_and(|best| self.is_late(best)) {
                        break;
                    }
                }
                Ok(Err(error)) => {
                    // A refusal says more than silence.
                    if failure.as_ref().is_none_or(StoreError::is_transient) {
                        failure = Some(error);
                    }
                }
                Err(_) => {}
            }
        }
        match best {
            Some(primary) => {
                self.elect(&primary, answers >= most)?;
                client_at(&self.0.server, &primary.address)
            }
            None => Err(failure.unwrap_or_else(|| unavailable("no sentinel answered in time"))),
        }
    }

    /// Listens to the sentinels, unless it does: the runtime on which it did may have ended, while the
    /// connection to the server is another's and goes on.
    pub(super) fn listen(&self, patience: Patience) {
        let listeners = self.0.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.start(&Arc::downgrade(&self.0), &self.0.sentinels, patience);
    }

    fn is_late(&self, primary: &Primary) -> bool {
        let last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|last| last.age > primary.age)
    }

    fn elect(&self, primary: &Primary, by_most: bool) -> Result<(), StoreError> {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.age > primary.age
            && !by_most
        {
            return Err(unavailable(
                "the only sentinels that answer do not know of the last failover",
            ));
        }
        if last
            .as_ref()
            .is_some_and(|last| last.address != primary.address)
        {
            self.0.generation.fetch_add(1, Ordering::AcqRel);
        }
        *last = Some(primary.clone());
        Ok(())
    }
}

impl Inner {
    /// A sentinel says that another server is the primary: `service old-host old-port host port`.
    fn switched(&self, said: &[u8]) {
        let said = String::from_utf8_lossy(said);
        let words: Vec<_> = said.split(' ').collect();
        let [service, _, _, host, port] = words[..] else {
            return;
        };
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last
            .as_ref()
            .is_some_and(|last| last.address.host == host && port.parse() == Ok(last.address.port));
        // The next connection asks who it is.
        if service == self.service && !known {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Inner {
    /// A sentinel says who the primary is, without there being news.
    fn heard(&self, primary: &Primary) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = last
            .as_ref()
            .is_some_and(|last| last.age < primary.age && last.address != primary.address);
        if newer {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("sentinels", &self.0.sentinels.len())
            .field("service", &self.0.service)
            .finish_non_exhaustive()
    }
}

async fn ask(client: Client, service: String, patience: Patience) -> Result<Primary, StoreError> {
    let config = patience.config();
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connected.await.map_err(refused)?;
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("MASTER").arg(&service);
    let reply = connection.send_packed_command(&command).await;
    match reply {
        Ok(Value::ServerError(error)) => {
            let error = RedisError::from(error);
            if error
                .detail()
                .is_some_and(|said| said.contains("No such master"))
            {
                return Err(StoreError::new(
                    StoreErrorKind::Refused,
                    format!(
                        "asking the sentinels for the primary: they do not watch a service \
                         `{service}`; compare the URL with `sentinel monitor` in their \
                         configuration"
                    ),
                ));
            }
            Err(refused(error))
        }
        Ok(reply) => primary(reply).ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Protocol,
                "asking the sentinels for the primary: one answered with something else",
            )
        }),
        Err(error) => Err(refused(error)),
    }
}

/// The answer of `SENTINEL MASTER`: names and values, one after the other.
fn primary(reply: Value) -> Option<Primary> {
    let (mut host, mut port, mut epoch, mut settled) = (None, None, 0, true);
    for (name, value) in super::address::pairs(reply)? {
        match text(&name)?.as_str() {
            "ip" => host = text(&value),
            "port" => port = text(&value).and_then(|port| port.parse().ok()),
            "config-epoch" => epoch = text(&value).and_then(|epoch| epoch.parse().ok())?,
            "flags" => settled = !text(&value)?.contains("failover_in_progress"),
            _ => {}
        }
    }
    let (host, port) = (host?, port?);
    Some(Primary {
        age: Age { epoch, settled },
        address: Address { host, port },
    })
}

fn refused(error: RedisError) -> StoreError {
    let what = "asking a sentinel for the primary";
    let says = |words| error.detail().is_some_and(|said| said.contains(words));
    if super::failure::is_unknown_user(&error) {
        return StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "{what}: it does not accept the user or password, or asks for one; those of the URL \
                 are the server's, and `RedisStoreBuilder::sentinel_credentials` sets the sentinels'"
            ),
        );
    }
    if error.code() == Some("ERR") && says("unknown command") {
        return StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "{what}: this is no sentinel; the hosts of `redis+sentinel://` are those of the \
                 sentinels, port 26379 unless it is written"
            ),
        );
    }
    super::failure::store_error(what, error)
}

fn unavailable(why: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("asking the sentinels for the primary: {why}"),
    )
}
