//! One transaction for the statements of many.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_core::stream::BoxStream;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};
use sqlx::{SqliteConnection, query_with};

use super::Sqlite;
use super::backend::{Answer, Text};
use super::failure::{store_error, trouble};
use super::job::Job;
use super::lane::{collided, pause};
use super::many::Many;

/// How many times a statement stands in a script at most.
const WIDEST: usize = 64;

/// How many rows wait between the driver's thread and this one.
const ROWS: usize = 1_024;

/// How the statements of a batch are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What does for one in one for many: each of them is expected to do what it is for.
    AtOnce,
    /// One behind the other.
    InTurn,
}

/// The connection that batches are written on.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    conn: Option<SqliteConnection>,
    scripts: Scripts,
}

impl Writer {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options: options
                .row_buffer_size(ROWS)
                .statement_cache_capacity(4 * WIDEST),
            conn: None,
            scripts: Scripts::default(),
        }
    }

    /// Writes all of them or, where that is not to be, those that can be. Tells each what became of it.
    pub(super) async fn write(&mut self, mut jobs: Vec<Job>) {
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
            job.tell(outcome);
        }
    }

    /// All of them in one transaction: when this is done, they are on disk. `None`: not all of them did
    /// what they are for, and it is not known which; nothing has happened.
    async fn together(
        &mut self,
        jobs: &[Job],
        mode: Mode,
    ) -> Result<Option<Vec<Answer>>, sqlx::Error> {
        let mut conn = self.connection().await?;
        // For writing from the start: it waits for other processes here, and nowhere else.
        if let Err(error) = command(&mut conn, "BEGIN IMMEDIATE").await {
            if error.as_database_error().is_some() {
                self.conn = Some(conn);
            }
            return Err(error);
        }
        // Whatever goes wrong from here, the connection is closed, and the transaction with it.
        let now = now_us();
        let mut answers: Vec<Answer> = jobs.iter().map(|_| Answer::default()).collect();
        for members in alike(jobs) {
            let all_did = match &jobs[members[0]].many {
                Some(many) if mode == Mode::AtOnce && members.len() > 1 => {
                    let sent = self.at_once(&mut conn, jobs, &members, many, now, &mut answers);
                    sent.await?
                }
                _ => {
                    let sent = self.in_turn(&mut conn, jobs, &members, &mut answers);
                    sent.await?;
                    true
                }
            };
            if !all_did {
                command(&mut conn, "ROLLBACK").await?;
                self.conn = Some(conn);
                return Ok(None);
            }
        }
        command(&mut conn, "COMMIT").await?;
        self.conn = Some(conn);
        Ok(Some(answers))
    }

    /// Whether all of them did what they are for.
    async fn at_once(
        &mut self,
        conn: &mut SqliteConnection,
        jobs: &[Job],
        members: &[usize],
        many: &Many,
        now: i64,
        answers: &mut [Answer],
    ) -> Result<bool, sqlx::Error> {
        for these in members.chunks(WIDEST) {
            let (text, width) = (&jobs[these[0]].text, these.len());
            let script = self
                .scripts
                .of(text, Mode::AtOnce, width, || many.text(width));
            let all = arguments(jobs, these, &many.order, now)?;
            let script = query_with::<sqlx::Sqlite, _>(AssertSqlSafe(script), all);
            let done = script.execute(&mut *conn).await?;
            if done.rows_affected() != width as u64 {
                return Ok(false);
            }
            for &member in these {
                answers[member].affected = 1;
                answers[member].granted = Some(now);
            }
        }
        Ok(true)
    }

    async fn in_turn(
        &mut self,
        conn: &mut SqliteConnection,
        jobs: &[Job],
        members: &[usize],
        answers: &mut [Answer],
    ) -> Result<(), sqlx::Error> {
        let mut rest = members;
        while !rest.is_empty() {
            let one = &jobs[rest[0]];
            // Few widths, since each takes as many statements.
            let width = WIDEST.min(1 << rest.len().ilog2());
            let (these, others) = rest.split_at(width);
            let script = self.scripts.of(&one.text, Mode::InTurn, width, || {
                vec![&one.text[..]; width].join(";").into()
            });
            let all = arguments(jobs, these, &one.order, 0)?;
            execute(conn, script, all, these, answers).await?;
            rest = others;
        }
        Ok(())
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
            let all = arguments(std::slice::from_ref(job), &[0], &job.order, 0)?;
            let script = Arc::clone(&job.text);
            match execute(&mut conn, script, all, &[0], &mut answers).await {
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

/// Which of the jobs want the same statement.
fn alike(jobs: &[Job]) -> Vec<Vec<usize>> {
    let mut all: Vec<(&Text, Vec<usize>)> = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        match all
            .iter_mut()
            .find(|(text, _)| Arc::ptr_eq(text, &job.text))
        {
            Some((_, members)) => members.push(index),
            None => all.push((&job.text, vec![index])),
        }
    }
    all.into_iter().map(|(_, members)| members).collect()
}

/// Of a statement, how it is sent, for how many, and the text.
#[derive(Default)]
struct Scripts(Vec<(Text, Mode, usize, Text)>);

impl Scripts {
    fn of(&mut self, text: &Text, mode: Mode, width: usize, make: impl FnOnce() -> Text) -> Text {
        for (of, sent, times, script) in &self.0 {
            if *times == width && *sent == mode && Arc::ptr_eq(of, text) {
                return Arc::clone(script);
            }
        }
        let script = make();
        self.0
            .push((Arc::clone(text), mode, width, Arc::clone(&script)));
        script
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
    // With arguments, if none, it is prepared once.
    let all = query_with::<sqlx::Sqlite, _>(text, SqliteArguments::default());
    all.execute(conn).await?;
    Ok(())
}

/// Sends a script, and puts down what each of its statements gave back.
async fn execute(
    conn: &mut SqliteConnection,
    script: Text,
    arguments: SqliteArguments,
    members: &[usize],
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    let script = query_with::<sqlx::Sqlite, _>(AssertSqlSafe(script), arguments);
    let mut results = conn.fetch_many(script);
    let (mut members, mut granted) = (members.iter(), None);
    while let Some(result) = next(&mut results).await {
        match result? {
            Either::Right(row) => granted = Some(row.try_get(0)?),
            Either::Left(done) => {
                let Some(&member) = members.next() else {
                    break;
                };
                answers[member] = Answer {
                    affected: done.rows_affected(),
                    row: None,
                    granted: granted.take(),
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
