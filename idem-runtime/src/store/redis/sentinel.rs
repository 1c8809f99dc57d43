//! Discovery of the primary through sentinels.

mod listener;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Client, ConnectionInfo, Pipeline, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::listener::Listeners;
use super::address::{Address, client_at, text};
use super::link::Patience;
use crate::store::{StoreError, StoreErrorKind};

/// How long to wait for the other sentinels after the first answer.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one service. Clones share their state.
#[derive(Clone)]
pub(super) struct Sentinels(Arc<Inner>);

struct Inner {
    sentinels: Vec<Client>,
    service: String,
    /// Settings of a connection to a server; the address is filled in.
    server: ConnectionInfo,
    last: Mutex<Option<Primary>>,
    generation: AtomicU64,
    listeners: Mutex<Listeners>,
}

/// A sentinel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Primary {
    /// Grows with every failover.
    epoch: u64,
    address: Address,
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

    pub(super) fn clients(&self) -> &[Client] {
        &self.0.sentinels
    }

    #[cfg(test)]
    pub(super) fn server(&self) -> &ConnectionInfo {
        &self.0.server
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Queries all sentinels at once, and takes the answer with the latest failover: a sentinel that
    /// is cut off from the others does not know that it is late, and at first only the sentinel that
    /// leads a failover knows of it.
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
                    if best.as_ref().is_none_or(|best| best.epoch < primary.epoch) {
                        best = Some(primary);
                    }
                }
                Ok(Err(error)) => {
                    // A refusal is more informative than silence.
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

    /// Starts listening to the sentinels, unless it runs: the runtime of the listeners may have ended, while the
    /// connection to the server lives on another one.
    pub(super) fn listen(&self, patience: Patience) {
        let listeners = self.0.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.start(&Arc::downgrade(&self.0), &self.0.sentinels, patience);
    }

    fn elect(&self, primary: &Primary, by_most: bool) -> Result<(), StoreError> {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.epoch > primary.epoch
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
    /// A sentinel reports that another server is the primary, or is about to be.
    fn told(&self, said: &str) {
        let Some(address) = successor(said, &self.service) else {
            return;
        };
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().is_some_and(|last| last.address == address);
        // The next connection queries the sentinels for the primary.
        if !known {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A sentinel answers a query for the primary, without a failover message.
    fn heard(&self, primary: &Primary) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = last
            .as_ref()
            .is_some_and(|last| last.epoch < primary.epoch && last.address != primary.address);
        if newer {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The new primary of this service in a message: `service old-host old-port host port`
/// (`+switch-master`), or `slave name host port @ service old-host old-port` (`+promoted-slave`).
fn successor(said: &str, service: &str) -> Option<Address> {
    let words: Vec<_> = said.split(' ').collect();
    let ([of, _, _, host, port] | [_, _, host, port, "@", of, _, _]) = words[..] else {
        return None;
    };
    let (host, port) = (host.to_owned(), port.parse().ok()?);
    (of == service).then_some(Address { host, port })
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
    // In this order: a sentinel that learns of a failover in between answers with the new address and the old
    // epoch, and gains no precedence by it.
    let mut both = Pipeline::with_capacity(2);
    for what in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
        both.cmd("SENTINEL").arg(what).arg(&service);
    }
    let mut replies = connection
        .send_packed_commands(&both, 0, 2)
        .await
        .map_err(refused)?
        .into_iter();
    let mut reply = || replies.next().unwrap_or(Value::Nil);
    match (reply(), reply()) {
        (Value::ServerError(error), _) | (_, Value::ServerError(error)) => {
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
        (state, address) => primary(state, &address).ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Protocol,
                "asking the sentinels for the primary: one answered with something else",
            )
        }),
    }
}

/// Parses a sentinel's two replies.
///
/// They are those of `SENTINEL MASTER`, names and values one after the other, and of
/// `SENTINEL GET-MASTER-ADDR-BY-NAME`. Only the second names the new primary from its promotion on;
/// the first names the old one until the sentinel that leads the failover has reconfigured all
/// replicas.
fn primary(state: Value, address: &Value) -> Option<Primary> {
    let mut epoch = 0;
    for (name, value) in super::address::pairs(state)? {
        if text(&name)? == "config-epoch" {
            epoch = text(&value).and_then(|epoch| epoch.parse().ok())?;
        }
    }
    let Value::Array(address) = address else {
        return None;
    };
    let [host, port] = &address[..] else {
        return None;
    };
    let (host, port) = (text(host)?, text(port)?.parse().ok()?);
    Some(Primary {
        epoch,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Value {
        let words = words.iter();
        Value::Array(
            words
                .map(|word| Value::BulkString(word.as_bytes().to_vec()))
                .collect(),
        )
    }

    #[test]
    fn what_sentinels_say_names_the_successor() {
        let switched = "payments 10.0.0.1 6379 10.0.0.2 6380";
        let promoted = "slave 10.0.0.2:6380 10.0.0.2 6380 @ payments 10.0.0.1 6379";
        for said in [switched, promoted] {
            let found = successor(said, "payments").unwrap();
            assert_eq!(found.to_string(), "10.0.0.2:6380");
            assert_eq!(successor(said, "orders"), None);
        }
        assert_eq!(successor("", "payments"), None);
        assert_eq!(successor("payments a 1 b x", "payments"), None);
    }

    #[test]
    fn a_sentinel_that_leads_a_failover_names_the_new_primary() {
        let state = words(&[
            "name",
            "payments",
            "ip",
            "10.0.0.1",
            "port",
            "6379",
            "flags",
            "master,failover_in_progress",
            "config-epoch",
            "7",
        ]);
        let found = primary(state.clone(), &words(&["10.0.0.2", "6380"])).unwrap();
        assert_eq!(found.epoch, 7);
        assert_eq!(found.address.to_string(), "10.0.0.2:6380");
        for address in [Value::Nil, words(&["10.0.0.2"]), words(&["10.0.0.2", "x"])] {
            assert_eq!(primary(state.clone(), &address), None);
        }
        assert_eq!(primary(Value::Nil, &words(&["10.0.0.2", "6380"])), None);
    }
}
