//! One connection to Redis that is made again when it breaks or falls silent.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};

use super::super::{StoreError, StoreErrorKind};
use super::failure::{breaks_connection, connect_error, store_error};

/// Commands that may be on their way at once before a sender waits.
const PIPELINE: usize = 1_024;
/// Time-outs in a row after which a connection is given up: the server may be gone without the
/// network having said so, and the client library keeps such a connection for ever.
const SILENT: u32 = 3;
/// How long a command that its sender gives up must have waited to count among them.
const QUIET: Duration = Duration::from_millis(100);

/// A multiplexed connection, made when it is first needed and made again after it broke.
///
/// Its driver runs on the runtime of whoever made it.
pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    live: Mutex<Option<Live>>,
    /// One task at a time connects; the others wait for what it finds.
    connecting: tokio::sync::Mutex<()>,
    /// Counts connection attempts, so that whoever waited for a failed one shares its failure
    /// instead of trying again, one after the other.
    attempts: AtomicU32,
    failure: Mutex<Option<StoreError>>,
    /// A connection was made before, so that the URL is right, or was.
    known: AtomicBool,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    timeouts: Arc<AtomicU32>,
}

impl Link {
    pub(super) fn new(client: Client, connect: Duration, response: Duration) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect))
            .set_response_timeout(Some(response))
            .set_pipeline_buffer_size(PIPELINE);
        Self {
            client,
            config,
            live: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            attempts: AtomicU32::new(0),
            failure: Mutex::default(),
            known: AtomicBool::new(false),
        }
    }

    /// Sends a command and waits for its reply. Whether a command without a reply was executed is
    /// not known; the scripts make that harmless.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut live = self.connected().await.map_err(Failure::Connect)?;
        let mut unanswered = Unanswered {
            link: self,
            timeouts: Arc::clone(&live.timeouts),
            since: Some(Instant::now()),
        };
        let reply = live.connection.send_packed_command(command).await;
        unanswered.since = None;
        match reply {
            Ok(reply) => {
                if live.timeouts.load(Ordering::Relaxed) != 0 {
                    live.timeouts.store(0, Ordering::Relaxed);
                }
                match reply {
                    Value::ServerError(error) => {
                        let error = error.into();
                        if breaks_connection(&error) {
                            self.drop_connection(&live.timeouts);
                        }
                        Err(Failure::Reply(error))
                    }
                    value => Ok(value),
                }
            }
            Err(error) => {
                if error.is_timeout() {
                    self.silent(&live.timeouts);
                } else if breaks_connection(&error) {
                    self.drop_connection(&live.timeouts);
                }
                Err(Failure::Reply(error))
            }
        }
    }

    /// Counts a command without a reply.
    fn silent(&self, timeouts: &Arc<AtomicU32>) {
        if timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT {
            self.drop_connection(timeouts);
        }
    }

    fn current(&self) -> Option<Live> {
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn connected(&self) -> Result<Live, StoreError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let seen = self.attempts.load(Ordering::Acquire);
        let _connecting = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if self.attempts.load(Ordering::Acquire) != seen {
            let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = failure.clone() {
                return Err(error);
            }
        }
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match connection {
            Ok(connection) => {
                *failure = None;
                self.known.store(true, Ordering::Relaxed);
                let live = Live {
                    connection,
                    timeouts: Arc::default(),
                };
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                let error = connect_error(error, self.known.load(Ordering::Relaxed));
                *failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Forgets this connection, unless another has taken its place already.
    fn drop_connection(&self, broken: &Arc<AtomicU32>) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live
            .as_ref()
            .is_some_and(|live| Arc::ptr_eq(&live.timeouts, broken))
        {
            *live = None;
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connected", &self.current().is_some())
            .finish_non_exhaustive()
    }
}

/// A command on its way. Its sender may give it up before `response_timeout` is over, because its
/// own deadline is shorter; that is silence as well.
struct Unanswered<'a> {
    link: &'a Link,
    timeouts: Arc<AtomicU32>,
    since: Option<Instant>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= QUIET) {
            self.link.silent(&self.timeouts);
        }
    }
}

/// Why a command has no reply.
pub(super) enum Failure {
    /// There is no connection; nothing was sent.
    Connect(StoreError),
    /// The server's error, or none in time.
    Reply(RedisError),
}

impl Failure {
    pub(super) fn store_error(self, what: &str) -> StoreError {
        match self {
            Self::Connect(error) => error,
            Self::Reply(error) => store_error(what, error),
        }
    }
}

/// A client for this URL.
pub(super) fn client(url: &str) -> Result<Client, StoreError> {
    use redis::IntoConnectionInfo;
    let refuse = |_: RedisError| {
        // The URL may hold a password, and the error may quote the URL: neither is repeated.
        StoreError::new(
            StoreErrorKind::Refused,
            "the Redis URL cannot be used; write `redis://[user:password@]host[:port][/db]`",
        )
    };
    let info = url.into_connection_info().map_err(refuse)?;
    // Without it a small command may wait for the acknowledgement of the one before.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let redis = info.redis_settings().clone().set_skip_set_lib_name();
    Client::open(info.set_tcp_settings(tcp).set_redis_settings(redis)).map_err(refuse)
}
