//! One transaction for the statements of many.

use std::future::poll_fn;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};
use sqlx::{SqliteConnection, query_with};
use tokio::sync::oneshot;

use super::Sqlite;
use super::backend::{Answer, Argument, Text};
use super::failure::{store_error, trouble};
use super::group::Outcome;
use super::lane::{collided, pause};
use super::statement::Statement;

/// How many times a statement stands in a script at most.
const WIDEST: usize = 64;

/// How many rows wait between the driver's thread and this one.
const ROWS: usize = 1_024;

/// A statement in line.
pub(super) struct Job {
    what: &'static str,
    text: Text,
    arguments: Vec<Value>,
    told: oneshot::Sender<Outcome>,
}

/// An [`Argument`] that outlives its caller.
enum Value {
    Bytes(Vec<u8>),
    Int(i64),
    Text(String),
    Null,
}

impl Job {
    pub(super) fn new(
        what: &'static str,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> (Self, oneshot::Receiver<Outcome>) {
        let (told, hears) = oneshot::channel();
        let value = |index: &usize| match arguments[*index] {
            Argument::Bytes(bytes) | Argument::Body(Some(bytes)) => Value::Bytes(bytes.to_vec()),
            Argument::Body(None) => Value::Null,
            Argument::Int(number) => Value::Int(number),
            Argument::Text(text) => Value::Text(text.to_owned()),
        };
        let job = Self {
            what,
            text: Arc::clone(&statement.text),
            arguments: statement.order.iter().map(value).collect(),
            told,
        };
        (job, hears)
    }

    /// Whoever asked for it has given up.
    fn is_left(&self) -> bool {
        self.told.is_closed()
    }

    fn bind(&self, all: &mut SqliteArguments) -> Result<(), sqlx::Error> {
        for value in &self.arguments {
            let added = match value {
                Value::Bytes(bytes) => all.add(&bytes[..]),
                Value::Int(number) => all.add(*number),
                Value::Text(text) => all.add(&text[..]),
                Value::Null => all.add(None::<i64>),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        Ok(())
    }
}

/// The connection that batches are written on.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    conn: Option<SqliteConnection>,
    scripts: Scripts,
}

impl Writer {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        let scripts = 16 * (WIDEST.ilog2() as usize + 1);
        Self {
            options: options
                .row_buffer_size(ROWS)
                .statement_cache_capacity(scripts),
            conn: None,
            scripts: Scripts::default(),
        }
    }

    /// Writes all of them or, where that is not to be, those that can be. Tells each what became of it.
    pub(super) async fn write(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| !job.is_left());
        let mut collisions = 1;
        while jobs.len() > 1 {
            match self.together(&jobs).await {
                Ok(answers) => {
                    for (job, answer) in jobs.into_iter().zip(answers) {
                        // Nobody may be there any more to hear of it.
                        let _ = job.told.send(Ok(answer));
                    }
                    return;
                }
                Err(error) if collided::<Sqlite>(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                    jobs.retain(|job| !job.is_left());
                }
                // One of them may have spoilt it for the others. None of them has happened, or none is
                // known to have, and each may be sent again.
                Err(_) => break,
            }
        }
        for job in jobs {
            let outcome = self.alone(&job).await.map_err(|error| {
                let trouble = trouble::<Sqlite>(&error);
                (trouble, store_error::<Sqlite>(job.what, error))
            });
            let _ = job.told.send(outcome);
        }
    }

    /// All of them in one transaction: when this is done, they are on disk.
    async fn together(&mut self, jobs: &[Job]) -> Result<Vec<Answer>, sqlx::Error> {
        let mut conn = self.connection().await?;
        // For writing from the start: it waits for other processes here, and nowhere else.
        if let Err(error) = command(&mut conn, "BEGIN IMMEDIATE").await {
            if error.as_database_error().is_some() {
                self.conn = Some(conn);
            }
            return Err(error);
        }
        // Whatever goes wrong from here, the connection is closed, and the transaction with it.
        let mut answers: Vec<Answer> = jobs.iter().map(|_| Answer::default()).collect();
        for (text, members) in alike(jobs) {
            let mut rest = &members[..];
            while !rest.is_empty() {
                let width = WIDEST.min(1 << rest.len().ilog2());
                let (these, others) = rest.split_at(width);
                let script = self.scripts.of(&text, width);
                execute(&mut conn, script, jobs, these, &mut answers).await?;
                rest = others;
            }
        }
        command(&mut conn, "COMMIT").await?;
        self.conn = Some(conn);
        Ok(answers)
    }

    /// One of them, as if there were no others.
    async fn alone(&mut self, job: &Job) -> Result<Answer, sqlx::Error> {
        let mut collisions = 1;
        loop {
            if job.is_left() {
                return Ok(Answer::default());
            }
            let mut conn = self.connection().await?;
            let mut answers = [Answer::default()];
            let script = Arc::clone(&job.text);
            let jobs = std::slice::from_ref(job);
            match execute(&mut conn, script, jobs, &[0], &mut answers).await {
                Ok(()) => {
                    self.conn = Some(conn);
                    let [answer] = answers;
                    return Ok(answer);
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

/// The statements, and which of the jobs want each.
fn alike(jobs: &[Job]) -> Vec<(Text, Vec<usize>)> {
    let mut all: Vec<(Text, Vec<usize>)> = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        match all
            .iter_mut()
            .find(|(text, _)| Arc::ptr_eq(text, &job.text))
        {
            Some((_, members)) => members.push(index),
            None => all.push((Arc::clone(&job.text), vec![index])),
        }
    }
    all
}

/// A statement again and again, as one text that is prepared once.
#[derive(Default)]
struct Scripts(Vec<(Text, usize, Text)>);

impl Scripts {
    fn of(&mut self, text: &Text, width: usize) -> Text {
        let mut known = self.0.iter();
        let is = |(of, times, _): &&(Text, usize, Text)| *times == width && Arc::ptr_eq(of, text);
        if let Some((_, _, script)) = known.find(is) {
            return Arc::clone(script);
        }
        let script: Text = vec![&text[..]; width].join(";").into();
        self.0.push((Arc::clone(text), width, Arc::clone(&script)));
        script
    }
}

async fn command(conn: &mut SqliteConnection, text: &'static str) -> Result<(), sqlx::Error> {
    // With arguments, if none, it is prepared once.
    let all = query_with::<sqlx::Sqlite, _>(text, SqliteArguments::default());
    all.execute(conn).await?;
    Ok(())
}

/// Sends a script of `members`, and puts down what each of them gave back.
async fn execute(
    conn: &mut SqliteConnection,
    script: Text,
    jobs: &[Job],
    members: &[usize],
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    arguments.reserve(members.len() * jobs[members[0]].arguments.len(), 0);
    for &member in members {
        jobs[member].bind(&mut arguments)?;
    }
    let script = query_with::<sqlx::Sqlite, _>(AssertSqlSafe(script), arguments);
    let mut results = conn.fetch_many(script);
    let mut members = members.iter();
    let mut granted = None;
    while let Some(result) = next(&mut results).await {
        match result? {
            Either::Right(row) => granted = Some(row.try_get(0)?),
            Either::Left(done) => {
                let Some(&member) = members.next() else {
                    break;
                };
                answers[member] = Answer {
                    affected: done.rows_affected(),
                    granted: granted.take(),
                    ..Answer::default()
                };
            }
        }
    }
    match members.next() {
        None => Ok(()),
        Some(_) => Err(sqlx::Error::Protocol(
            "a statement gave nothing back".into(),
        )),
    }
}

async fn next<T>(stream: &mut BoxStream<'_, T>) -> Option<T> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}
