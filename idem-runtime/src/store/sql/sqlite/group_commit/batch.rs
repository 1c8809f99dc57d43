//! One transaction for the statements of several calls.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_core::stream::BoxStream;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};
use sqlx::{SqliteConnection, query_with};

use crate::store::sql::Sqlite;
use crate::store::sql::backend::{Answer, Text};
use crate::store::sql::failure::{store_error, trouble};
use crate::store::sql::pool::{collided, pause};
use crate::store::sql::sqlite::group_commit::message::{Done, Ends, Mode, Part, Texts, WIDEST};
use crate::store::sql::sqlite::group_commit::queued_statement::Job;

/// How many rows are buffered between the driver's thread and this one.
const ROWS: usize = 1_024;

/// The connection that batches are written on.
pub(in crate::store::sql) struct Writer {
    options: SqliteConnectOptions,
    conn: Option<SqliteConnection>,
    texts: Texts,
}

impl Writer {
    pub(in crate::store::sql) fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options: options
                .row_buffer_size(ROWS)
                .statement_cache_capacity(6 * WIDEST),
            conn: None,
            texts: Texts::default(),
        }
    }

    /// Writes all of them in one transaction or, if that fails, each by itself. Sends each its result.
    pub(in crate::store::sql) async fn write(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| !job.is_left());
        let (mut collisions, mut mode) = (1, Mode::AtOnce);
        while jobs.len() > 1 {
            match self.together(&jobs, mode).await {
                Ok(None) => mode = Mode::InTurn,
                Ok(Some(answers)) => {
                    for (job, answer) in jobs.into_iter().zip(answers) {
                        job.tell(Ok(answer));
                    }
                    return;
                }
                Err(error) if collided::<Sqlite>(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                    jobs.retain(|job| !job.is_left());
                }
                // One of them may have failed the transaction for the others. None of them has happened, or none is
                // known to have, and each may be sent again.
                Err(_) => break,
            }
        }
        for job in jobs {
            let outcome = self.alone(&job).await.map_err(|error| {
                let trouble = trouble::<Sqlite>(&error);
                (trouble, store_error::<Sqlite>(job.what, error))
            });
            job.tell(outcome);
        }
    }

    /// Writes all of them in one transaction, which is on disk on return. `None`: some statements had no effect, and it
    /// is not known which; nothing has happened.
    async fn together(
        &mut self,
        jobs: &[Job],
        mode: Mode,
    ) -> Result<Option<Vec<Answer>>, sqlx::Error> {
        let mut conn = self.connection().await?;
        let (now, parts) = (now_us(), Part::all(jobs, mode));
        let mut answers: Vec<Answer> = jobs.iter().map(|_| Answer::default()).collect();
        let mut ends = Ends::default();
        for (number, part) in parts.iter().enumerate() {
            ends = Ends {
                begins: number == 0,
                commits: number + 1 == parts.len() && !part.is_strict,
            };
            let text = self.texts.of(jobs, part, ends);
            let all = match &jobs[part.members[0]].many {
                Some(many) if part.mode == Mode::AtOnce => {
                    arguments(jobs, &part.members, &many.order, now)?
                }
                _ => arguments(jobs, &part.members, &jobs[part.members[0]].order, now)?,
            };
            let mut done = Vec::new();
            let sent = send(&mut conn, text, all, part.statements(), ends, &mut done).await;
            // After an error within the transaction the connection is closed, and the transaction with it.
            if let Err(error) = sent {
                if ends.begins && done.is_empty() && error.as_database_error().is_some() {
                    self.conn = Some(conn);
                }
                return Err(error);
            }
            let done = &done[usize::from(ends.begins)..];
            if !part.is_enough(&done[..part.statements()]) {
                command(&mut conn, "ROLLBACK").await?;
                self.conn = Some(conn);
                return Ok(None);
            }
            part.tell(&done[..part.statements()], now, &mut answers);
        }
        if !ends.commits {
            command(&mut conn, "COMMIT").await?;
        }
        self.conn = Some(conn);
        Ok(Some(answers))
    }

    /// Writes one of them, as if there were no others.
    async fn alone(&mut self, job: &Job) -> Result<Answer, sqlx::Error> {
        let mut collisions = 1;
        loop {
            if job.is_left() {
                return Ok(Answer::default());
            }
            let mut conn = self.connection().await?;
            let all = arguments(std::slice::from_ref(job), &[0], &job.order, 0)?;
            let (text, mut done) = (Arc::clone(&job.text), Vec::new());
            match send(&mut conn, text, all, 1, Ends::default(), &mut done).await {
                Ok(()) => {
                    self.conn = Some(conn);
                    let (affected, granted) = done[0];
                    return Ok(Answer {
                        affected,
                        granted,
                        ..Answer::default()
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
    jobs: &[Job],
    members: &[usize],
    order: &[usize],
    now: i64,
) -> Result<SqliteArguments, sqlx::Error> {
    let mut all = SqliteArguments::default();
    all.reserve(members.len() * order.len(), 0);
    for &member in members {
        jobs[member].bind(&mut all, order, now)?;
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
    text: Text,
    arguments: SqliteArguments,
    statements: usize,
    ends: Ends,
    done: &mut Vec<Done>,
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
