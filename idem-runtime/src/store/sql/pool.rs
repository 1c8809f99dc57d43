//! The store's own connections, and the sending of statements.
//!
//! Not a pool of sqlx, because that pings a connection whenever it is returned, a round trip for each operation; and a
//! pool shared with bodies can run dry while every body waits for its claim to be completed.

use std::future::{pending, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::argument::{Arguments, SqlArgument};
use super::collision::{COLLISIONS, collided, pause};
use super::dialect::Dialect;
use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::failure::{login_error, store_error};
use super::login::Login;
use super::queue::{ConnectionPermit, NoPermit, PermitQueue, Priority, Turn, stall};
use super::queued_call::QueuedCall;
use super::session::{SqlClient, SqlSession, execute, rows};
#[cfg(feature = "_sqlite")]
use super::sqlite::group_commit::GroupCommit;
use super::statement::{Statement, StatementOutcome, StatementReply};
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;
use crate::store::{StoreError, StoreErrorKind};

/// How the store's own connections send a statement.
#[derive(Clone, Copy)]
pub(super) enum Sending {
    /// By a name that the connection keeps.
    Named,
    /// Without a name, in one message.
    Unnamed,
    /// Without a name, in a transaction that holds a proxy's session.
    InTransaction,
}

impl Sending {
    /// `named`: as the builder has it.
    pub(super) fn of(client: &dyn SqlClient, named: Option<bool>) -> Self {
        let is_one_message = client.is_one_message();
        if !client.is_unnamed() && named.unwrap_or(!is_one_message) {
            Self::Named
        } else if is_one_message {
            Self::Unnamed
        } else {
            Self::InTransaction
        }
    }
}

/// Begins the transaction of an unnamed statement, of PostgreSQL.
///
/// The server ends one whose `COMMIT` is lost on the way, and with it the lock on the row.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// The right to use a connection, the connection, and its former use.
pub(super) type PermittedConnection = (ConnectionPermit, (Box<dyn SqlSession>, bool));

/// The connections without a statement.
struct IdleConnections {
    /// Each with the time of its last reply; the newest last.
    connections: Vec<(Box<dyn SqlSession>, Instant)>,
    /// The time of the last reply on any connection.
    last_reply: Instant,
}

/// A set of connections, made when they are needed.
pub(crate) struct ConnectionPool {
    dialect: &'static Dialect,
    login: Arc<Login>,
    sending: Sending,
    idle: Mutex<IdleConnections>,
    permits: Arc<PermitQueue>,
    most: usize,
    response_timeout: Duration,
    clock: Arc<ServerClock>,
    #[cfg(feature = "_sqlite")]
    group_commit: Option<Arc<GroupCommit>>,
}

debug_fields!(ConnectionPool {
    most,
    response_timeout
});

impl ConnectionPool {
    /// `reserved` of `most` connections are for statements that end or keep claims.
    pub(crate) fn new(
        (dialect, sending, login): (&'static Dialect, Sending, Arc<Login>),
        (most, reserved): (usize, usize),
        response_timeout: Duration,
        clock: Arc<ServerClock>,
    ) -> Self {
        Self {
            dialect,
            login,
            sending,
            idle: Mutex::new(IdleConnections {
                connections: Vec::new(),
                last_reply: Instant::now(),
            }),
            permits: PermitQueue::new(most, reserved),
            most,
            response_timeout,
            clock,
            #[cfg(feature = "_sqlite")]
            group_commit: None,
        }
    }

    /// Sends its writes through this group commit.
    #[cfg(feature = "_sqlite")]
    pub(crate) fn grouped(mut self, group_commit: Option<Arc<GroupCommit>>) -> Self {
        self.group_commit = group_commit;
        self
    }

    /// How long a statement may take.
    pub(crate) fn patience(&self) -> Duration {
        self.response_timeout
    }

    /// The longest statement that the server accepts, in bytes with its values, as the last connection has it.
    pub(crate) fn longest(&self) -> usize {
        self.login.longest()
    }

    /// Sends a statement.
    ///
    /// `what` is its purpose, as in "a claim". A statement that collided, or whose connection had gone stale, is sent
    /// again; every statement of the store may be.
    pub(crate) async fn run(
        self: &Arc<Self>,
        (what, priority): (&'static str, Priority<'_>),
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> Result<StatementReply, StoreError> {
        let outcome = self.send((what, priority), statement, arguments).await;
        outcome.map_err(|(_, error)| error)
    }

    /// As [`run`](Self::run), and returns the kind of a server's error.
    pub(crate) async fn send(
        self: &Arc<Self>,
        (what, priority): (&'static str, Priority<'_>),
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> StatementOutcome {
        let queued = || QueuedCall::new(statement, arguments);
        #[cfg(feature = "_sqlite")]
        let (_lone, queued) = match &self.group_commit {
            Some(group_commit) if !statement.only_reads() => {
                let begun = Instant::now();
                let turn = group_commit.take(priority, self.response_timeout, queued);
                match turn.await {
                    Ok(Turn::Permit(lone, _)) => (Some(lone), None),
                    Ok(Turn::Outcome(outcome)) => {
                        self.learn_time(outcome.as_ref().ok(), begun);
                        return outcome;
                    }
                    Ok(Turn::Alone) => (None, None),
                    Err(none) => return Err((None, self.no_permit(what, &none))),
                }
            }
            // Its batches are parts of a group commit.
            None if self.dialect.has_one_writer && !statement.only_reads() => (None, None),
            _ => (None, Some(queued)),
        };
        #[cfg(not(feature = "_sqlite"))]
        let queued = Some(queued);
        let queued = || queued.and_then(|queued| queued());
        let purpose = (what, priority.of_next());
        let sent = self.send_once(purpose, statement, arguments, queued);
        if let ControlFlow::Break(outcome) = sent.await {
            return outcome;
        }
        // Its batch may have changed the record: it is to be known soon whether it did.
        let again = if statement.only_reads() {
            priority
        } else {
            Priority::Ending
        };
        // Boxed, because it is rare, and its state would be part of every future.
        let sent = Box::pin(self.send_once((what, again), statement, arguments, || None));
        match sent.await {
            ControlFlow::Break(outcome) => outcome,
            // Only a queued call is taken along.
            ControlFlow::Continue(()) => Err((None, self.silence(what))),
        }
    }

    /// Sends a statement on a connection; continues if its batch fails.
    ///
    /// With `queued` a batch can take it along.
    pub(super) async fn send_once(
        self: &Arc<Self>,
        (what, priority): (&'static str, Priority<'_>),
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
        queued: impl FnOnce() -> Option<QueuedCall>,
    ) -> ControlFlow<StatementOutcome> {
        let begun = Instant::now();
        let reads = statement.only_reads();
        let purpose = (priority, reads);
        let turn = (self.permits).take(purpose, self.response_timeout, queued);
        let (mut permit, call) = match turn.await {
            Ok(Turn::Permit(permit, call)) => (permit, call),
            Ok(Turn::Outcome(outcome)) => return ControlFlow::Break(outcome),
            Ok(Turn::Alone) => return ControlFlow::Continue(()),
            Err(none) => return ControlFlow::Break(Err((None, self.no_permit(what, &none)))),
        };
        // Each part has a time limit of its own, so that a slow one leaves enough time for the next.
        let connection = match timeout(self.response_timeout, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return ControlFlow::Break(Err(self.failure(what, error))),
            Err(_) => return ControlFlow::Break(Err((None, self.silence(what)))),
        };
        // A read too: the claim that follows it has waited for its turn already.
        if let Priority::Claim(admission) = priority {
            admission.sent_after(begun.elapsed());
        }
        if let Some((batch, outcome)) = permit.take_along(call) {
            // A task, because this future may be dropped, or never be polled again.
            tokio::spawn(Arc::clone(self).send_batch((permit, connection), batch));
            return match timeout(stall(self.response_timeout, reads), outcome).await {
                Ok(Ok(Turn::Outcome(outcome))) => ControlFlow::Break(outcome),
                _ => ControlFlow::Continue(()),
            };
        }
        let arguments = Arguments::One(arguments);
        let sent = self.send_on((permit, connection), what, statement, arguments);
        ControlFlow::Break(sent.await)
    }

    /// Sends a statement on this connection.
    pub(super) async fn send_on(
        &self,
        (permit, connection): PermittedConnection,
        what: &'static str,
        statement: &Statement,
        arguments: Arguments<'_>,
    ) -> StatementOutcome {
        // The permit is held until after the error message, which counts its connection.
        let mut attempt = pin!(self.attempt(connection, statement, arguments));
        let outcome = match timeout(self.response_timeout, attempt.as_mut()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failure(what, error)),
            Err(_) => Err((None, self.silence(what))),
        };
        drop::<ConnectionPermit>(permit);
        outcome
    }

    fn failure(&self, what: &str, error: SqlError) -> (Option<SqlErrorKind>, StoreError) {
        let kind = error.kind();
        let error = match kind {
            Some(SqlErrorKind::Login) if self.login.changes() => login_error(self.dialect, what),
            _ => store_error(self.dialect, what, error),
        };
        (kind, error)
    }

    fn no_permit(&self, what: &str, none: &NoPermit) -> StoreError {
        match none {
            NoPermit::TooLate => self.silence(what),
            NoPermit::Refused(Crowded {
                waiting,
                retry_after,
            }) => {
                let message = format!(
                    "{what}: {waiting} others wait for {} connections of {}, longer than this one may, and \
                     it was not sent; it may be made again in {retry_after:.1?}",
                    self.most, self.dialect.name
                );
                StoreError::overloaded(message, *retry_after)
            }
        }
    }

    pub(crate) fn silence(&self, what: &str) -> StoreError {
        let (name, patience) = (self.dialect.name, self.response_timeout);
        let used = self.permits.used();
        let message = format!(
            "{what}: no reply of {name} within {patience:?}, with {used} of {} connections in use: the \
             server is silent or busy, or another transaction holds the record",
            self.most
        );
        StoreError::new(StoreErrorKind::Unavailable, message)
    }

    async fn attempt(
        &self,
        first: (Box<dyn SqlSession>, bool),
        statement: &Statement,
        arguments: Arguments<'_>,
    ) -> Result<StatementReply, SqlError> {
        let (mut first, mut collisions) = (Some(first), 0);
        loop {
            // If dropped half-way, the connection is closed, because its command may still be in progress.
            let (mut conn, used) = match first.take() {
                Some(first) => first,
                None => self.connection().await?,
            };
            let sent = Instant::now();
            let reply = if used && !self.dialect.has_one_writer {
                let mut reply = pin!(self.run_on(&mut *conn, statement, arguments));
                // The connection may be half-open.
                match timeout(self.response_timeout / 4, reply.as_mut()).await {
                    Ok(reply) => reply,
                    Err(_) if self.discard_silent(sent) => continue,
                    // It waits for a row, or its connection alone is half-open.
                    Err(_) => {
                        let mut again = Box::pin(self.run_anew(sent, statement, arguments));
                        let first = poll_fn(|cx| match reply.as_mut().poll(cx) {
                            Poll::Ready(reply) => Poll::Ready(ControlFlow::Continue(reply)),
                            Poll::Pending => again.as_mut().poll(cx).map(ControlFlow::Break),
                        });
                        match first.await {
                            ControlFlow::Continue(reply) => reply,
                            ControlFlow::Break(answer) => return Ok(answer),
                        }
                    }
                }
            } else {
                self.run_on(&mut *conn, statement, arguments).await
            };
            match reply {
                Ok(answer) => {
                    self.learn_time(Some(&answer), sent);
                    self.keep(conn);
                    return Ok(answer);
                }
                Err(error) => {
                    if let Some(kind) = error.kind() {
                        // MySQL lets a user with an expired password in, and then refuses each statement. Another
                        // error may be that of a prepared statement which this connection alone has.
                        let is_useless = matches!(
                            kind,
                            SqlErrorKind::ReadOnly | SqlErrorKind::Login | SqlErrorKind::Other
                        );
                        if !kind.is_silence() && !is_useless {
                            self.keep(conn);
                        } else if used {
                            continue;
                        }
                    } else if used && error.is_lost() {
                        // The server was restarted since the last use. The number of such connections is limited.
                        continue;
                    }
                    if !error.is_collision() || collisions == COLLISIONS {
                        return Err(error);
                    }
                    collisions += 1;
                    pause(collisions).await;
                }
            }
        }
    }

    /// Sends a statement again later, on a replying or a new connection. Does not return without an answer.
    ///
    /// A busy server may not start a session in time, so that a connection which replies is better than a new one.
    async fn run_anew(
        &self,
        sent: Instant,
        statement: &Statement,
        arguments: Arguments<'_>,
    ) -> StatementReply {
        sleep(self.response_timeout / 4).await;
        let turn = (self.permits).take((Priority::Other, false), self.response_timeout, || None);
        if let Ok(Turn::Permit(_permit, _)) = turn.await {
            let replies = (self.idle().connections).pop_if(|(_, replied)| *replied > sent);
            let conn = match replies {
                Some((conn, _)) => Ok(conn),
                None => self.connect().await,
            };
            if let Ok(mut conn) = conn
                && let Ok(answer) = self.run_on(&mut *conn, statement, arguments).await
            {
                self.keep(conn);
                return answer;
            }
        }
        pending().await
    }

    /// Sends a statement on a connection of the store.
    pub(crate) async fn run_on(
        &self,
        conn: &mut dyn SqlSession,
        statement: &Statement,
        arguments: Arguments<'_>,
    ) -> Result<StatementReply, SqlError> {
        match self.sending {
            Sending::Named => statement.send(conn, arguments, true).await,
            Sending::Unnamed => statement.send(conn, arguments, false).await,
            // Boxed, because it is rare, and its state would be part of every future.
            Sending::InTransaction => {
                Box::pin(run_in_transaction(conn, statement, arguments)).await
            }
        }
    }

    /// Whether a statement in a transaction of a caller has a name.
    ///
    /// The options of its connection are not known; as a rule they are those of the store.
    pub(crate) fn names_on(&self, conn: &dyn SqlSession) -> bool {
        matches!(self.sending, Sending::Named) || conn.keeps_statements()
    }

    /// Reports the time in a reply to the clock.
    fn learn_time(&self, answer: Option<&StatementReply>, sent: Instant) {
        if let Some(now_us) = answer.and_then(StatementReply::now_us) {
            self.clock.says(now_us, sent);
        }
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, conn: Box<dyn SqlSession>) {
        let now = Instant::now();
        let mut idle = self.idle();
        idle.last_reply = now;
        idle.connections.push((conn, now));
    }

    /// Closes the idle connections if none has replied since this was sent.
    ///
    /// What dropped one connection may have dropped the others, and each would cost a call its deadline. If others have
    /// replies, the statement waits for a row, or this connection alone is half-open.
    fn discard_silent(&self, sent: Instant) -> bool {
        let mut idle = self.idle();
        let is_silent = idle.last_reply <= sent;
        let discarded = if is_silent {
            std::mem::take(&mut idle.connections)
        } else {
            Vec::new()
        };
        drop(idle);
        drop(discarded);
        is_silent
    }

    /// A connection, and whether it was used before.
    async fn connection(&self) -> Result<(Box<dyn SqlSession>, bool), SqlError> {
        let idle = self.idle().connections.pop();
        match idle {
            Some((conn, _)) => Ok((conn, true)),
            // Boxed, because it is rare, and would enlarge every future of the store.
            None => Ok((Box::pin(self.connect()).await?, false)),
        }
    }

    async fn connect(&self) -> Result<Box<dyn SqlSession>, SqlError> {
        let mut collisions = 1;
        loop {
            match self.login.connect().await {
                Err(error) if collided(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                }
                connected => {
                    let mut conn = connected.map_err(SqlError::of_login)?;
                    if !self.dialect.session.is_empty() {
                        let longest = rows(&mut *conn, self.dialect.session, |row| row.number(0));
                        if let Some(longest) = longest.await?.pop() {
                            self.login.learn_longest(longest);
                        }
                    }
                    return Ok(conn);
                }
            }
        }
    }

    /// Opens a connection outside of the queue, for several statements.
    pub(crate) async fn open(&self, what: &str) -> Result<Box<dyn SqlSession>, StoreError> {
        match timeout(self.response_timeout, self.connect()).await {
            Ok(connected) => connected.map_err(|error| store_error(self.dialect, what, error)),
            Err(_) => Err(self.silence(what)),
        }
    }
}

/// Sends an unnamed statement in a transaction that holds a proxy's session.
async fn run_in_transaction(
    conn: &mut dyn SqlSession,
    statement: &Statement,
    arguments: Arguments<'_>,
) -> Result<StatementReply, SqlError> {
    execute(conn, BEGIN.to_owned()).await?;
    match statement.send(conn, arguments, false).await {
        Ok(reply) => {
            execute(conn, "COMMIT".to_owned()).await?;
            Ok(reply)
        }
        Err(error) => {
            // Without it the proxy would hold the session. If it fails, so does the next use of the connection.
            let _ = execute(conn, "ROLLBACK".to_owned()).await;
            Err(error)
        }
    }
}
