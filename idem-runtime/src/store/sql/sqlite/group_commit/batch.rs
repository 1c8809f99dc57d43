//! One transaction for the statements of several calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use super::message::{BatchMessage, Ends, MessageTexts, StatementResult};
use super::queued_statement::QueuedStatement;
use crate::store::sql::argument::{OwnedArgument, SqlArgument};
use crate::store::sql::collision::{collided, pause};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::failure::store_error;
use crate::store::sql::session::{SqlClient, SqlReply, SqlSession, SqlStatement};
use crate::store::sql::statement::SqlText;
use crate::store::sql::statement::StatementReply;

/// The connection that batches are written on.
pub(super) struct BatchWriter {
    client: Arc<dyn SqlClient>,
    session: Option<Box<dyn SqlSession>>,
    texts: MessageTexts,
    commit: SqlText,
    roll_back: SqlText,
}

impl BatchWriter {
    pub(super) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self {
            client,
            session: None,
            texts: MessageTexts::default(),
            commit: "COMMIT".into(),
            roll_back: "ROLLBACK".into(),
        }
    }

    /// Writes all statements in one transaction or, if that fails, each by itself.
    ///
    /// Sends each caller its result.
    pub(super) async fn write(&mut self, mut statements: Vec<QueuedStatement>) {
        statements.retain(|statement| !statement.is_abandoned());
        let (mut collisions, mut at_once) = (1, true);
        while statements.len() > 1 {
            match self.together(&statements, at_once).await {
                Ok(None) => at_once = false,
                Ok(Some(replies)) => {
                    for (statement, reply) in statements.into_iter().zip(replies) {
                        statement.reply(Ok(reply));
                    }
                    return;
                }
                Err(error) if collided(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                    statements.retain(|statement| !statement.is_abandoned());
                }
                // One statement may have failed the transaction for the others. No statement was committed, as far as
                // is known, and each may be sent again.
                Err(_) => break,
            }
        }
        for statement in statements {
            let outcome = self.alone(&statement).await.map_err(|error| {
                let kind = error.kind();
                (kind, store_error(Dialect::SQLITE, statement.what, error))
            });
            statement.reply(outcome);
        }
    }

    /// Writes all statements in one transaction, which is on disk on return.
    ///
    /// `None`: some statements had no effect, it is not known which, and the transaction was rolled back.
    async fn together(
        &mut self,
        statements: &[QueuedStatement],
        at_once: bool,
    ) -> Result<Option<Vec<StatementReply>>, SqlError> {
        let mut session = self.session().await?;
        let (now, messages) = (now_us(), BatchMessage::all(statements, at_once));
        let mut replies: Vec<StatementReply> = statements
            .iter()
            .map(|_| StatementReply::default())
            .collect();
        let mut ends = Ends::default();
        for (number, message) in messages.iter().enumerate() {
            ends = Ends {
                begins: number == 0,
                commits: number + 1 == messages.len() && !message.is_strict(),
            };
            let first = &statements[message.members[0]];
            let text = self.texts.of(first, message, ends);
            let order = message.multi_row.as_ref();
            let order = order.map_or(&first.order[..], |multi_row| &multi_row.order);
            let all = arguments(statements, &message.members, order, now);
            let mut done = Vec::new();
            let sent = send(
                &mut *session,
                (&text, &all),
                message.statements(),
                ends,
                &mut done,
            );
            // After an error within the transaction the connection is closed, and the transaction with it.
            if let Err(error) = sent.await {
                if ends.begins && done.is_empty() && error.is_of_server() {
                    self.session = Some(session);
                }
                return Err(error);
            }
            let done = &done[usize::from(ends.begins)..];
            if !message.is_enough(&done[..message.statements()]) {
                command(&mut *session, &self.roll_back).await?;
                self.session = Some(session);
                return Ok(None);
            }
            message.fill(&done[..message.statements()], now, &mut replies);
        }
        if !ends.commits {
            command(&mut *session, &self.commit).await?;
        }
        self.session = Some(session);
        Ok(Some(replies))
    }

    /// Writes one statement by itself.
    async fn alone(&mut self, statement: &QueuedStatement) -> Result<StatementReply, SqlError> {
        let mut collisions = 1;
        loop {
            if statement.is_abandoned() {
                return Ok(StatementReply::default());
            }
            let mut session = self.session().await?;
            let all = arguments(std::slice::from_ref(statement), &[0], &statement.order, 0);
            let (message, mut done) = ((&statement.text, &all[..]), Vec::new());
            match send(&mut *session, message, 1, Ends::default(), &mut done).await {
                Ok(()) => {
                    self.session = Some(session);
                    let (affected, granted) = done[0];
                    return Ok(StatementReply {
                        affected,
                        granted,
                        ..StatementReply::default()
                    });
                }
                Err(error) if collided(&error, collisions) => {
                    self.session = Some(session);
                    pause(collisions).await;
                    collisions += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn session(&mut self) -> Result<Box<dyn SqlSession>, SqlError> {
        match self.session.take() {
            Some(session) => Ok(session),
            None => self.client.connect(None).await,
        }
    }
}

/// Microseconds since 1970, by the machine's clock, which is the database's.
fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

/// The arguments of these statements in this order; the index after the last one is the time.
fn arguments<'a>(
    statements: &'a [QueuedStatement],
    members: &[usize],
    order: &[usize],
    now: i64,
) -> Vec<SqlArgument<'a>> {
    let mut all = Vec::with_capacity(members.len() * order.len());
    for &member in members {
        let arguments = &statements[member].arguments;
        all.extend(order.iter().map(|&index| {
            let argument = arguments.get(index);
            argument.map_or(SqlArgument::Int(now), OwnedArgument::borrow)
        }));
    }
    all
}

async fn command(session: &mut dyn SqlSession, text: &SqlText) -> Result<(), SqlError> {
    // As a statement it is prepared once.
    let is_known = AtomicBool::new(true);
    let statement = SqlStatement::new(text, true, (&[], &[]), &is_known);
    session.send(statement, &mut |_| Ok(())).await
}

/// Sends a text of `statements` statements, and records the result of each, those of `ends` included.
async fn send(
    session: &mut dyn SqlSession,
    (text, arguments): (&SqlText, &[SqlArgument<'_>]),
    statements: usize,
    ends: Ends,
    done: &mut Vec<StatementResult>,
) -> Result<(), SqlError> {
    let mut granted = None;
    let is_known = AtomicBool::new(false);
    let statement = SqlStatement::new(text, true, (&[], arguments), &is_known);
    let mut receive = |part: SqlReply<'_>| {
        match part {
            SqlReply::Row(row) => granted = Some(row.number(0)?),
            SqlReply::Done { affected, .. } => done.push((affected, granted.take())),
        }
        Ok(())
    };
    session.send(statement, &mut receive).await?;
    let expected = statements + usize::from(ends.begins) + usize::from(ends.commits);
    if done.len() == expected {
        Ok(())
    } else {
        Err(SqlError::lost("a statement gave nothing back"))
    }
}
