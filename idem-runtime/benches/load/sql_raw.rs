//! The same statements by sqlx alone: the measure of the SQL stores. They are those of `store/sql` as they were when
//! this was written, on a table of their own.

/// The dialect of one database, with its `CLAIM`, `COMPLETE` and `READ`.
macro_rules! dialect {
    ($name:ident: $conn:ident, $schema:expr) => {
        dialect! {
            $name: $conn, $schema;
            async fn claim(conn: &mut $conn, key: &[u8]) -> sqlx::Result<Option<i64>> {
                use sqlx::Row as _;
                let claim = sqlx::query(CLAIM).bind(key).bind(OPERATION).bind(LAYOUT);
                let claim = claim.bind(PENDING).bind(OWNER).bind(ATTEMPTS).bind(LEASE_MS);
                let claim = claim.bind(RETAIN_MS).bind(FINGERPRINT).bind(LIFE_US);
                let row = claim.fetch_optional(conn).await?;
                let Some(row) = row else { return Ok(None) };
                // A row inserted by the statement has a negative version.
                let is_new = row.try_get::<i64, _>(11)? < 0;
                is_new.then(|| row.try_get(3)).transpose()
            }
        }
    };
    ($name:ident: $conn:ident, $schema:expr; $($claim:tt)+) => {
        pub(crate) enum $name {}

        impl Dialect for $name {
            type Conn = $conn;

            async fn migrate(conn: &mut $conn) -> sqlx::Result<()> {
                use sqlx::Executor as _;
                let schema = $schema.replace("idem_records", "raw_records");
                let schema = sqlx::raw_sql(sqlx::AssertSqlSafe(schema));
                conn.execute(schema).await.map(drop)
            }

            $($claim)+

            async fn complete(
                conn: &mut $conn,
                key: &[u8],
                fence: i64,
                value: &[u8],
            ) -> sqlx::Result<u64> {
                let done = sqlx::query(COMPLETE).bind(DONE).bind(0_i64).bind(RETAIN_MS);
                let done = done.bind(value).bind(LIFE_US).bind(key).bind(OWNER);
                let done = done.bind(fence).bind(ATTEMPTS).bind(FINGERPRINT);
                Ok(done.execute(conn).await?.rows_affected())
            }

            async fn read(conn: &mut $conn, key: &[u8]) -> sqlx::Result<Option<usize>> {
                let row = sqlx::query_as::<_, Found>(READ).bind(key);
                Ok(row.fetch_optional(conn).await?.map(answer))
            }
        }
    };
}

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::Connection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::driver::Work;

/// As many as the store makes by default.
const CONNECTIONS: usize = 8;
/// A time-out, as the store has one; a longer one, because nothing here is sent again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all records here have in common.
const OPERATION: &str = "bench.pay";
const OWNER: &[u8] = &[7; 16];
const LAYOUT: i64 = 50;
const PENDING: &str = "P";
const DONE: &str = "D";
const ATTEMPTS: i64 = 1;
const LEASE_MS: i64 = 30_000;
const RETAIN_MS: i64 = 120_000;
const FINGERPRINT: &[u8] = &[3; 20];
const LIFE_US: i64 = 120_000_000;

/// A row: layout, state, owner, fence, attempts, detail, retention, fingerprint, body, what it has
/// left, now, version. A replay reads nearly all of them.
type Found = (
    i64,
    String,
    Vec<u8>,
    i64,
    i64,
    i64,
    i64,
    Vec<u8>,
    Option<Vec<u8>>,
    i64,
    i64,
    i64,
);

/// The length of a recent answer with this fingerprint.
fn answer(found: Found) -> usize {
    let (layout, state, _, _, _, _, _, fingerprint, body, left_us, _, _) = found;
    let is_ours = layout == LAYOUT && fingerprint == FINGERPRINT;
    assert!(is_ours && state == DONE && left_us > 0, "it is done");
    body.map_or(0, |body| body.len())
}

/// The statements in the words of one database.
pub(crate) trait Dialect: Send + Sync + 'static {
    type Conn: Connection;

    /// Creates the table, if it is not there.
    fn migrate(conn: &mut Self::Conn) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The fence of a new claim; `None` where there is a record already.
    fn claim(
        conn: &mut Self::Conn,
        key: &[u8],
    ) -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;

    /// How many records it changed: one.
    fn complete(
        conn: &mut Self::Conn,
        key: &[u8],
        fence: i64,
        value: &[u8],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// The length of a stored answer.
    fn read(
        conn: &mut Self::Conn,
        key: &[u8],
    ) -> impl Future<Output = sqlx::Result<Option<usize>>> + Send;
}

pub(crate) type Options<D> = <<D as Dialect>::Conn as Connection>::Options;

/// Connections that workers share.
struct Connections<D: Dialect> {
    options: Options<D>,
    idle: Mutex<Vec<D::Conn>>,
    seats: Semaphore,
}

/// The connections and their payloads.
pub(crate) struct Raw<D: Dialect> {
    connections: Arc<Connections<D>>,
    value: Arc<[u8]>,
    key: [u8; 48],
}

impl<D: Dialect> Clone for Raw<D> {
    fn clone(&self) -> Self {
        Self {
            connections: Arc::clone(&self.connections),
            value: Arc::clone(&self.value),
            key: self.key,
        }
    }
}

impl<D: Dialect> Raw<D> {
    /// Creates the table, if it is not there. `space` keeps the keys of one user of it apart from
    /// another's.
    pub(crate) async fn new(options: Options<D>, value_bytes: usize, space: u64) -> Self {
        let mut conn = D::Conn::connect_with(&options).await.unwrap();
        D::migrate(&mut conn).await.unwrap();
        let mut key = [0; 48];
        key[..8].copy_from_slice(&space.to_be_bytes());
        Self {
            connections: Arc::new(Connections {
                options,
                idle: Mutex::new(vec![conn]),
                seats: Semaphore::new(CONNECTIONS),
            }),
            value: vec![b'.'; value_bytes].into(),
            key,
        }
    }

    fn set(&mut self, number: u64) {
        // Spread, as digests are.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.key[16..24].copy_from_slice(&spread.to_be_bytes());
    }

    async fn claim(&self) -> Option<i64> {
        let claimed = async {
            let (mut conn, _seat) = self.take().await;
            let fence = D::claim(&mut conn, &self.key).await;
            self.give_back(conn);
            fence
        };
        in_time(claimed).await
    }

    async fn complete(&self, fence: i64) {
        let completed = async {
            let (mut conn, _seat) = self.take().await;
            let changed = D::complete(&mut conn, &self.key, fence, &self.value).await;
            self.give_back(conn);
            changed
        };
        assert_eq!(in_time(completed).await, 1, "the claim is ours");
    }

    async fn read(&self) -> Option<usize> {
        let read = async {
            let (mut conn, _seat) = self.take().await;
            let answer = D::read(&mut conn, &self.key).await;
            self.give_back(conn);
            answer
        };
        in_time(read).await
    }

    /// A connection of its own.
    async fn take(&self) -> (D::Conn, SemaphorePermit<'_>) {
        let seat = self.connections.seats.acquire().await.unwrap();
        let idle = self.connections.idle.lock().unwrap().pop();
        let conn = if let Some(conn) = idle {
            conn
        } else {
            let options = &self.connections.options;
            D::Conn::connect_with(options).await.unwrap()
        };
        (conn, seat)
    }

    fn give_back(&self, conn: D::Conn) {
        self.connections.idle.lock().unwrap().push(conn);
    }

    async fn first(&self) {
        let fence = self.claim().await;
        self.complete(fence.expect("the key is new")).await;
    }
}

async fn in_time<T>(action: impl Future<Output = sqlx::Result<T>>) -> T {
    let done = tokio::time::timeout(PATIENCE, action).await;
    done.unwrap().unwrap()
}

/// The statements of one call.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The store's statements for a first call among first calls.
    First,
    /// The statements for a first call among replays.
    ReadFirst,
    /// The store's statements for a replay among replays.
    Replay,
    /// The statements for a replay among first calls.
    ReplayByClaim,
}

pub(crate) struct Calls<D: Dialect>(pub(crate) Raw<D>, pub(crate) Kind);

/// Not derived, which would ask for a database that can be cloned.
impl<D: Dialect> Clone for Calls<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1)
    }
}

impl<D: Dialect> Work for Calls<D> {
    fn fills(&self) -> bool {
        matches!(self.1, Kind::Replay | Kind::ReplayByClaim)
    }

    async fn fill(&mut self, number: u64) {
        self.0.set(number);
        if self.0.read().await.is_none() {
            self.0.first().await;
        }
    }

    async fn call(&mut self, number: u64) {
        let Self(raw, kind) = self;
        raw.set(number);
        match kind {
            Kind::First => raw.first().await,
            Kind::ReadFirst => {
                assert_eq!(raw.read().await, None, "the key is new");
                raw.first().await;
            }
            Kind::Replay => assert_eq!(
                raw.read().await,
                Some(raw.value.len()),
                "the answer is there"
            ),
            Kind::ReplayByClaim => assert_eq!(raw.claim().await, None, "the answer is there"),
        }
    }
}
