//! One transaction for the statements of several calls.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_core::stream::BoxStream;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};
use sqlx::{SqliteConnection, query_with};

use super::message::{BatchMessage, Ends, MAX_WIDTH, MessageTexts, StatementResult};
use super::queued_statement::QueuedStatement;
use crate::store::sql::collision::{collided, pause};
use crate::store::sql::failure::{error_kind, store_error};
use crate::store::sql::sqlite::Sqlite;
use crate::store::sql::statement::SqlText;
use crate::store::sql::statement::StatementReply;

/// How many rows are buffered between the driver's thread and this one.
const ROWS: usize = 1_024;

/// The connection that batches are written on.
pub(super) struct BatchWriter {
    options: SqliteConnectOptions,
    conn: Option<SqliteConnection>,
    texts: MessageTexts,
}

impl BatchWriter {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options: options
                .row_buffer_size(ROWS)
                .statement_cache_capacity(6 * MAX_WIDTH),
            conn: None,
            texts: MessageTexts::default(),
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
                Err(error) if collided::<Sqlite>(&error, collisions) => {
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
                let kind = error_kind::<Sqlite>(&error);
                (kind, store_error::<Sqlite>(statement.what, error))
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
    ) -> Result<Option<Vec<StatementReply>>, sqlx::Error> {
        let mut conn = self.connection().await?;
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
            let all = arguments(statements, &message.members, order, now)?;
            let mut done = Vec::new();
            let sent = send(&mut conn, text, all, message.statements(), ends, &mut done).await;
            // After an error within the transaction the connection is closed, and the transaction with it.
            if let Err(error) = sent {
                if ends.begins && done.is_empty() && error.as_database_error().is_some() {
                    self.conn = Some(conn);
                }
                return Err(error);
            }
            let done = &done[usize::from(ends.begins)..];
            if !message.is_enough(&done[..message.statements()]) {
                command(&mut conn, "ROLLBACK").await?;
                self.conn = Some(conn);
                return Ok(None);
            }
            message.fill(&done[..message.statements()], now, &mut replies);
        }
        if !ends.commits {
            command(&mut conn, "COMMIT").await?;
        }
        self.conn = Some(conn);
        Ok(Some(replies))
    }

    /// Writes one statement by itself.
    async fn alone(&mut self, statement: &QueuedStatement) -> Result<StatementReply, sqlx::Error> {
        let mut collisions = 1;
        loop {
            if statement.is_abandoned() {
                return Ok(StatementReply::default());
            }
            let mut conn = self.connection().await?;
            let all = arguments(std::slice::from_ref(statement), &[0], &statement.order, 0)?;
            let (text, mut done) = (Arc::clone(&statement.text), Vec::new());
            match send(&mut conn, text, all, 1, Ends::default(), &mut done).await {
                Ok(()) => {
                    self.conn = Some(conn);
                    let (affected, granted) = done[0];
                    return Ok(StatementReply {
                        affected,
                        granted,
                        ..StatementReply::default()
                    });
                }
                Err(error) if collided::<Sqlite>(&error, collisions) => {
                    self.conn = Some(conn);
                    pause(collisions).await;
                    collisions += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn connection(&mut self) -> Result<SqliteConnection, sqlx::Error> {
        match self.conn.take() {
            Some(conn) => Ok(conn),
            None => SqliteConnection::connect_with(&self.options).await,
        }
    }
}

/// Microseconds since 1970, by the machine's clock, which is the database's.
fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

fn arguments(
    statements: &[QueuedStatement],
    members: &[usize],
    order: &[usize],
    now: i64,
) -> Result<SqliteArguments, sqlx::Error> {
    let mut all = SqliteArguments::default();
    all.reserve(members.len() * order.len(), 0);
    for &member in members {
        statements[member].bind(&mut all, order, now)?;
    }
    Ok(all)
}

async fn command(conn: &mut SqliteConnection, text: &'static str) -> Result<(), sqlx::Error> {
    // As a query with arguments, of which there are none, it is prepared once.
    let all = query_with::<sqlx::Sqlite, _>(text, SqliteArguments::default());
    all.execute(conn).await?;
    Ok(())
}

/// Sends a text of `statements` statements, and records the result of each, those of `ends` included.
async fn send(
    conn: &mut SqliteConnection,
    text: SqlText,
    arguments: SqliteArguments,
    statements: usize,
    ends: Ends,
    done: &mut Vec<StatementResult>,
) -> Result<(), sqlx::Error> {
    let query = query_with::<sqlx::Sqlite, _>(AssertSqlSafe(text), arguments);
    let mut results = conn.fetch_many(query);
    let mut granted = None;
    while let Some(result) = next(&mut results).await {
        match result? {
            Either::Right(row) => granted = Some(row.try_get(0)?),
            Either::Left(result) => done.push((result.rows_affected(), granted.take())),
        }
    }
    let expected = statements + usize::from(ends.begins) + usize::from(ends.commits);
    if done.len() == expected {
        Ok(())
    } else {
        Err(sqlx::Error::Protocol(
            "a statement gave nothing back".into(),
        ))
    }
}

async fn next<T>(stream: &mut BoxStream<'_, T>) -> Option<T> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}
