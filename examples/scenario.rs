//! Shared by the programs in `scenarios`: servers, callers, and books that balance or end with 1.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_harness::{PostgresServer, RedisServer};
use idem_runtime::observe::Event;
use idem_runtime::store::Store;
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Engine, EngineBuilder, Error, Observer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

/// The options of every scenario.
#[derive(Clone, Copy, Debug, clap::Parser)]
pub struct Options {
    /// Run every call's body, as without idem. Debug builds only.
    #[arg(long)]
    pub unprotected: bool,
}

impl Options {
    /// An engine over the store, or an unprotecting one.
    pub fn engine(self, store: impl Store) -> Engine {
        let engine = self.builder(store).build();
        engine.expect("the defaults are within their bounds")
    }

    /// The same, for further settings.
    pub fn builder(self, store: impl Store) -> EngineBuilder {
        let builder = Engine::builder(store);
        if self.unprotected {
            return builder.disabled().observer(Silent);
        }
        builder
    }
}

/// Keeps the terminal free for the books: the default observer has a line for each unprotected call.
#[derive(Debug)]
struct Silent;

impl Observer for Silent {
    fn observe(&self, _: &Event<'_>) {}
}

/// A server that a scenario uses: at the address in a variable, or its own, which ends with the value.
#[derive(Debug)]
pub struct Server<S> {
    url: String,
    _own: Option<S>,
}

impl<S> Server<S> {
    /// Its URL, for a client.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn named(variable: &str, start: impl FnOnce() -> S, url: impl FnOnce(&S) -> String) -> Self {
        if let Ok(url) = std::env::var(variable) {
            return Self { url, _own: None };
        }
        let own = start();
        Self {
            url: url(&own),
            _own: Some(own),
        }
    }
}

impl Server<RedisServer> {
    /// `REDIS_URL`, or a `redis-server` of its own.
    pub fn redis() -> Self {
        let start = || RedisServer::builder().append_only_every_second().start();
        Self::named("REDIS_URL", start, RedisServer::url)
    }

    /// A connection that waits longer than the default. A busy machine loses replies in its half a second.
    pub async fn client(&self) -> RedisResult<MultiplexedConnection> {
        let patience = Some(Duration::from_secs(10));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        let client = redis::Client::open(self.url())?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }
}

impl Server<PostgresServer> {
    /// `DATABASE_URL`, or a `PostgreSQL` of its own.
    pub fn postgres() -> Self {
        let start = || PostgresServer::builder().durable().start();
        Self::named("DATABASE_URL", start, |server| server.url())
    }

    /// A pool of connections to new tables, and a store in `records`.
    pub async fn with_tables(
        tables: &'static str,
        records: &str,
        connections: u32,
    ) -> Result<(Self, PgPool, PostgresStore), Box<dyn std::error::Error>> {
        let server = Self::postgres();
        let pool = PgPoolOptions::new().max_connections(connections);
        let pool = pool.connect(server.url()).await?;
        sqlx::raw_sql(tables).execute(&pool).await?;
        let store = PostgresStore::builder(&pool).table(records).connect();
        let store = store.await?;
        store.migrate().await?;
        Ok((server, pool, store))
    }
}

/// A scenario's figures, counted and expected.
#[derive(Debug)]
pub struct Books {
    title: String,
    /// What, counted, expected.
    rows: Vec<[String; 3]>,
    wrong: u32,
    /// Printed below the rows.
    remark: &'static str,
}

impl Books {
    /// Empty books under a title.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            rows: Vec::new(),
            wrong: 0,
            remark: "",
        }
    }

    /// A figure that is as it is: a time, a rate, a number of retries.
    pub fn note(&mut self, what: &str, value: impl Display) -> &mut Self {
        let row = [what.to_owned(), value.to_string(), String::new()];
        self.rows.push(row);
        self
    }

    /// The meaning and the limits of an unprotected run's figures.
    pub fn remark_if(&mut self, unprotected: bool, remark: &'static str) -> &mut Self {
        if unprotected {
            self.remark = remark;
        }
        self
    }

    /// A figure that must be equal to the expected one.
    pub fn check<T: Copy + Display + PartialEq>(
        &mut self,
        what: &str,
        counted: T,
        expected: T,
    ) -> &mut Self {
        let equal = counted == expected;
        self.wrong += u32::from(!equal);
        let expected = expected.to_string() + if equal { "" } else { "  WRONG" };
        let row = [what.to_owned(), counted.to_string(), expected];
        self.rows.push(row);
        self
    }

    /// Prints the rows, and is the exit code of the program: 1 unless every figure is as expected.
    #[allow(clippy::print_stdout, reason = "the programs show their books")]
    pub fn close(&self) -> ExitCode {
        println!("{:<60} {:>12}   expected", self.title, "counted");
        for [what, counted, expected] in &self.rows {
            println!("{what:<60} {counted:>12}   {expected}");
        }
        if self.wrong == 0 {
            println!("the books balance");
            ExitCode::SUCCESS
        } else {
            println!("THE BOOKS DO NOT BALANCE: {} figures are wrong", self.wrong);
            println!("{}", self.remark);
            ExitCode::FAILURE
        }
    }
}

/// The number that a query returns.
pub async fn count(pool: &PgPool, sql: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql).fetch_one(pool).await
}

/// The pause before a repeat that idem's error allows.
pub fn pause(error: &Error) -> Option<Duration> {
    let pause = error.retry_after().unwrap_or_default();
    error
        .is_retryable()
        .then(|| pause.min(Duration::from_secs(1)))
}

/// Repeats a call after the pause that its error asks for: a hundred times, then it gives up.
pub async fn repeat<T, E, F>(
    mut call: impl FnMut() -> F,
    pause: impl Fn(&E) -> Option<Duration>,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    for _ in 1..100 {
        let answer = call().await;
        match answer.as_ref().err().and_then(&pause) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return answer,
        }
    }
    call().await
}

/// What many callers have been told, and when.
#[derive(Debug)]
pub struct Load<C, A> {
    /// Each call with its answer, in no order.
    pub answers: Vec<(C, A)>,
    /// The time of each call, shortest first.
    times: Vec<Duration>,
    elapsed: Duration,
}

/// Makes the calls in order by this many concurrent callers. Each has a clone of `shared`.
pub async fn hammer<S, C, A, F>(
    what: &'static str,
    callers: usize,
    calls: Vec<C>,
    shared: S,
    call: impl Fn(S, C) -> F + Clone + Send + 'static,
) -> Load<C, A>
where
    S: Clone + Send + 'static,
    C: Copy + Send + Sync + 'static,
    A: Send + 'static,
    F: Future<Output = A> + Send,
{
    // Progress for the reader: a release build of a flash sale takes a minute.
    eprintln!("{what}: {} calls", calls.len());
    let (since, calls) = (Instant::now(), Arc::new((calls, AtomicUsize::new(0))));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (calls, shared, call) = (calls.clone(), shared.clone(), call.clone());
        tasks.spawn(async move {
            let (mut answers, mut times) = (Vec::new(), Vec::new());
            while let Some(&next) = calls.0.get(calls.1.fetch_add(1, Ordering::Relaxed)) {
                let called = Instant::now();
                answers.push((next, call(shared.clone(), next).await));
                times.push(called.elapsed());
            }
            (answers, times)
        });
    }
    let (mut answers, mut times) = (Vec::new(), Vec::new());
    for (some, of_them) in tasks.join_all().await {
        answers.extend(some);
        times.extend(of_them);
    }
    times.sort_unstable();
    Load {
        answers,
        times,
        elapsed: since.elapsed(),
    }
}

/// The answers that differ from the first one to the same call.
pub fn contradictions<C: Eq + Hash, A: PartialEq>(answers: &[(C, A)]) -> i64 {
    let mut first = HashMap::new();
    let differs = |(call, answer)| *first.entry(call).or_insert(answer) != answer;
    let pairs = answers.iter().map(|(call, answer)| (call, answer));
    pairs.map(differs).map(i64::from).sum()
}

impl<C: Copy + Eq + Hash, A: PartialEq> Load<C, A> {
    /// The answers that meet a condition.
    pub fn count(&self, which: impl Fn(&A) -> bool) -> i64 {
        let met = self.answers.iter().map(|(_, answer)| which(answer));
        met.map(i64::from).sum()
    }

    /// The answers that differ from the first one to the same call.
    pub fn contradictions(&self) -> i64 {
        contradictions(&self.answers)
    }

    /// Calls a second.
    pub fn per_second(&self) -> u128 {
        self.answers.len() as u128 * 1_000_000 / self.elapsed.as_micros().max(1)
    }

    /// The time that this percentage of the calls did not exceed.
    pub fn within(&self, percent: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let time = self.times.get(last * percent / 100);
        time.copied().unwrap_or_default()
    }

    /// Notes how fast the calls were.
    pub fn speed(&self, books: &mut Books) {
        let [median, most] = [50, 99].map(|percent| self.within(percent));
        books
            .note("  calls", self.answers.len())
            .note("  calls a second", self.per_second())
            .note("  median of a call", format!("{median:.1?}"))
            .note("  99 % of the calls within", format!("{most:.1?}"));
    }
}
