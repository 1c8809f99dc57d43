//! Discovery of the primary through sentinels.
//!
//! A primary that is cut off does not know that another server has taken its place, and goes on granting claims to its
//! clients. The sentinels know, and publish it at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connect::connect;
use super::endpoint::{Address, Endpoint, place};
use super::failure::{is_unknown_user, store_error};
use super::subscriber_connection::SubscriberConnection;
use super::wire::{ConnectionLimits, Words, pairs, text};
use crate::env::lock::Lock;
use crate::store::{StoreError, StoreErrorKind};

/// Wait for the other sentinels after the first reply.
const OTHERS: Duration = Duration::from_millis(100);
/// Pause before a sentinel that does not answer is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Channels of failover messages.
///
/// The sentinel that leads a failover publishes on the first as soon as the new primary is promoted; all of
/// them publish on the second when the replicas follow it.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// Silence after which the sentinel is queried: a network may have dropped the connection, and
/// messages published without one are lost.
const QUIET: Duration = Duration::from_secs(5);

/// The sentinels of one service. Clones share their state.
#[derive(Clone)]
pub(super) struct Sentinels(Arc<SentinelGroup>);

/// The state that the clones of [`Sentinels`] share.
struct SentinelGroup {
    sentinels: Vec<Endpoint>,
    /// Settings of a connection to a server; the address is filled in.
    server: Endpoint,
    election: Arc<Election>,
    listeners: Lock<FailoverListeners>,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Endpoint>, service: String, server: Endpoint) -> Self {
        Self(Arc::new(SentinelGroup {
            sentinels,
            server,
            election: Arc::new(Election::new(service)),
            listeners: Lock::default(),
        }))
    }

    pub(super) fn sentinels(&self) -> &[Endpoint] {
        &self.0.sentinels
    }

    pub(super) fn server(&self) -> &Endpoint {
        &self.0.server
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.0.election.generation()
    }

    /// The primary of the latest failover, queried from all sentinels at once.
    ///
    /// A sentinel that is cut off from the others does not know that it is late, and at first only the sentinel that
    /// leads a failover knows of it.
    pub(super) async fn primary(&self, limits: ConnectionLimits) -> Result<Endpoint, StoreError> {
        self.listen(limits);
        let mut queries = JoinSet::new();
        for sentinel in &self.0.sentinels {
            queries.spawn(query(
                sentinel.clone(),
                self.0.election.service.clone(),
                limits,
            ));
        }
        let most = self.0.sentinels.len() / 2 + 1;
        let mut until = Instant::now() + limits.connect + limits.response;
        let (mut replies, mut best, mut failure) = (0, None::<Primary>, None);
        while let Ok(Some(reply)) = timeout_at(until, queries.join_next()).await {
            match reply {
                Ok(Ok(primary)) => {
                    replies += 1;
                    if replies == 1 {
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
                self.0.election.elect(&primary, replies >= most)?;
                self.0.server.at(&primary.address)
            }
            None => Err(failure.unwrap_or_else(|| unavailable("no sentinel answered in time"))),
        }
    }

    /// Starts the failover listeners, unless they run.
    ///
    /// Their runtime may have ended while another one drives the connection to the server.
    pub(super) fn listen(&self, limits: ConnectionLimits) {
        let mut listeners = self.0.listeners.lock();
        listeners.start(&Arc::downgrade(&self.0.election), &self.0.sentinels, limits);
    }
}

debug_fields!(Sentinels {
    service: |it| &it.0.election.service
});

/// The last known primary of a service, and the number of failovers.
#[derive(Debug)]
struct Election {
    service: String,
    last: Lock<Option<Primary>>,
    generation: AtomicU64,
}

impl Election {
    fn new(service: String) -> Self {
        Self {
            service,
            last: Lock::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Records the primary of the latest failover. `by_most`: most of the sentinels have replied.
    fn elect(&self, primary: &Primary, by_most: bool) -> Result<(), StoreError> {
        let mut last = self.last.lock();
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
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        *last = Some(primary.clone());
        Ok(())
    }

    /// Applies a sentinel's message that another server is, or becomes, the primary.
    fn announce(&self, said: &str) {
        let Some(address) = successor(said, &self.service) else {
            return;
        };
        let last = self.last.lock();
        let known = last.as_ref().is_some_and(|last| last.address == address);
        // The next connection queries the sentinels for the primary.
        if !known {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A sentinel replies to a query that follows no failover message.
    fn observe(&self, primary: &Primary) {
        let last = self.last.lock();
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

/// A primary, as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Primary {
    /// Grows with every failover.
    epoch: u64,
    address: Address,
}

/// Queries a sentinel for the primary.
async fn query(
    sentinel: Endpoint,
    service: String,
    limits: ConnectionLimits,
) -> Result<Primary, StoreError> {
    let connected = connect(&sentinel, limits, None).await?;
    let wire = connected.map_err(|error| refused(&sentinel, error))?;
    // In this order: a sentinel that learns of a failover in between replies with the new address and the old epoch,
    // and does not take precedence.
    let state =
        |words: &mut Words<'_>| words.command(&[&[b"SENTINEL", b"MASTER", service.as_bytes()]]);
    let address = |words: &mut Words<'_>| {
        words.command(&[&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()]]);
    };
    let replies = wire.send(&state, Some(&address), false).await;
    let replies = replies.map_err(|error| refused(&sentinel, error))?;
    match (replies.first, replies.second.unwrap_or(Value::Nil)) {
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
            Err(refused(&sentinel, error))
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
/// They are those of `SENTINEL MASTER` (names and values) and of `SENTINEL GET-MASTER-ADDR-BY-NAME`. Only the second
/// names the new primary from its promotion on; the first names the old one until the sentinel that leads the failover
/// has reconfigured all replicas.
fn primary(state: Value, address: &Value) -> Option<Primary> {
    let mut epoch = 0;
    for (name, value) in pairs(state)? {
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

fn refused(sentinel: &Endpoint, error: RedisError) -> StoreError {
    let what = format!("asking the sentinel at {} for the primary", place(sentinel));
    let says = |words| error.detail().is_some_and(|said| said.contains(words));
    if is_unknown_user(&error) && sentinel.was_accepted() {
        let message = format!("{what}: it does not accept the credentials of the provider");
        return StoreError::new(StoreErrorKind::Unavailable, message).answered();
    }
    if is_unknown_user(&error) {
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
    store_error(&what, error)
}

fn unavailable(why: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("asking the sentinels for the primary: {why}"),
    )
}

/// A connection to each sentinel, on the runtime of the first connection.
#[derive(Default)]
struct FailoverListeners(Vec<AbortHandle>);

impl FailoverListeners {
    /// Starts the listeners, unless they run. The runtime on which they were started may be gone.
    fn start(
        &mut self,
        election: &Weak<Election>,
        sentinels: &[Endpoint],
        limits: ConnectionLimits,
    ) {
        if !self.0.is_empty() && self.0.iter().all(|task| !task.is_finished()) {
            return;
        }
        self.stop();
        for sentinel in sentinels {
            let listener = listen(election.clone(), sentinel.clone(), limits);
            self.0.push(tokio::spawn(listener).abort_handle());
        }
    }

    fn stop(&mut self) {
        for task in self.0.drain(..) {
            task.abort();
        }
    }
}

impl Drop for FailoverListeners {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn listen(election: Weak<Election>, sentinel: Endpoint, limits: ConnectionLimits) {
    loop {
        if let Some(mut connection) = subscribe(&sentinel, limits).await {
            loop {
                // Before the first message, after each message, and after each silence.
                if !catch_up(&election, &sentinel, limits).await {
                    break;
                }
                match timeout(QUIET, connection.message()).await {
                    Ok(Some(message)) => {
                        let Some(election) = election.upgrade() else {
                            return;
                        };
                        election.announce(&String::from_utf8_lossy(&message.payload));
                    }
                    Ok(None) => break,
                    Err(_) => {}
                }
            }
        }
        sleep(PAUSE).await;
        if election.strong_count() == 0 {
            return;
        }
    }
}

/// Queries the sentinel on a connection of its own. Returns whether it answers.
async fn catch_up(
    election: &Weak<Election>,
    sentinel: &Endpoint,
    limits: ConnectionLimits,
) -> bool {
    let Some(service) = election.upgrade().map(|election| election.service.clone()) else {
        return false;
    };
    let asked = timeout(
        limits.connect + limits.response,
        query(sentinel.clone(), service, limits),
    );
    match (asked.await, election.upgrade()) {
        (Ok(Ok(primary)), Some(election)) => {
            election.observe(&primary);
            true
        }
        _ => false,
    }
}

async fn subscribe(sentinel: &Endpoint, limits: ConnectionLimits) -> Option<SubscriberConnection> {
    let opened = SubscriberConnection::open(sentinel, limits).await.ok()?;
    let connection = opened.ok()?;
    for channel in CHANNELS {
        connection.subscribe(channel).await.ok()?;
    }
    Some(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_epoch_of_another_server_begins_a_generation() {
        let primary = |epoch, port| Primary {
            epoch,
            address: Address {
                host: "10.0.0.1".to_owned(),
                port,
            },
        };
        let election = Election::new("payments".to_owned());
        election.elect(&primary(2, 6379), true).unwrap();
        for (seen, generation) in [
            (primary(3, 6379), 0),
            (primary(2, 6380), 0),
            (primary(3, 6380), 1),
        ] {
            election.observe(&seen);
            assert_eq!(election.generation(), generation, "{seen:?}");
        }
    }

    #[test]
    fn a_failover_message_names_the_successor() {
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
    fn words(words: &[&str]) -> Value {
        let words = words.iter();
        Value::Array(
            words
                .map(|word| Value::BulkString(word.as_bytes().to_vec()))
                .collect(),
        )
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
