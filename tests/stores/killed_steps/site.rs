//! The stores, and the processes on them.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use idem_harness::{PostgresServer, RedisServer, TestDir, Worker};
use idem_runtime::store::sql::{Backend, Postgres, SqlStore, Sqlite};
use idem_tests::orders::database::{Database, InPostgres, InSqlite};
use tokio::runtime::Runtime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Redis,
    Postgres,
    Layered,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Sqlite, Self::Redis, Self::Postgres, Self::Layered];

    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The place of one trial: a prefix, a table, a file of its own.
#[derive(Debug)]
pub(crate) struct Site {
    kind: Kind,
    /// The prefix of its records.
    prefix: String,
    /// The table of its records.
    table: String,
    dir: TestDir,
    runtime: Runtime,
}

/// How the processes of a trial lose their claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leases {
    /// The test ages the claims in the store: a stalled process wakes up and does not know it, as after the suspension
    /// of a machine, and the store alone refuses it.
    Aged,
    /// The leases lapse. A stalled process finds out when it wakes up.
    Lapse,
}

// The servers of all trials. They end with the process.

fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    // On disk, because each process would be warned of a server without persistence.
    SERVER.get_or_init(|| RedisServer::builder().append_only_every_second().start())
}

fn postgres() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(PostgresServer::start)
}

impl Leases {
    /// A lease that lapses in a trial, or does not.
    fn lease(self) -> Duration {
        match self {
            Self::Aged => Duration::from_mins(1),
            // Long enough for a process that a busy machine delays.
            Self::Lapse => Duration::from_secs(3),
        }
    }
}

impl Site {
    pub(crate) fn start(kind: Kind, trial: &str) -> Self {
        let site = Self {
            kind,
            prefix: format!("steps:{kind:?}:{trial}"),
            table: format!("t_{kind:?}_{trial}").to_lowercase(),
            dir: TestDir::new("steps").expect("there is room for a file"),
            runtime: Runtime::new().expect("a runtime starts"),
        };
        std::fs::create_dir(site.ledger()).expect("there is room for a directory");
        match kind {
            Kind::Sqlite => site.migrate::<Sqlite>(),
            Kind::Postgres | Kind::Layered => site.migrate::<Postgres>(),
            Kind::Redis => {}
        }
        site
    }

    /// Where the processes write their effects down.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// The URL of the store, and of a layered store's durable one.
    fn urls(&self) -> (String, Option<String>) {
        match self.kind {
            Kind::Sqlite => {
                let file = self.dir.path().join("steps.db");
                (format!("sqlite:{}?mode=rwc", file.display()), None)
            }
            Kind::Redis => (redis().url(), None),
            Kind::Postgres => (postgres().url(), None),
            Kind::Layered => (redis().url(), Some(postgres().url())),
        }
    }

    fn sql<B: Backend>(&self) -> SqlStore<B> {
        let (url, durable) = self.urls();
        let store = SqlStore::<B>::builder(durable.unwrap_or(url)).table(&*self.table);
        let store = self.runtime.block_on(store.connections(1).connect());
        store.expect("the database is up")
    }

    fn migrate<B: Backend>(&self) {
        let store = self.sql::<B>();
        let created = self.runtime.block_on(store.migrate());
        created.expect("the table is created");
    }

    fn age_sql<B: Backend>(&self, by: Duration) {
        let store = self.sql::<B>();
        let aged = self.runtime.block_on(store.age(by));
        aged.expect("the table is there");
    }

    /// Ends the leases of all claims.
    pub(crate) fn age(&self) {
        let by = Leases::Aged.lease() + Duration::from_secs(1);
        let names = format!("{}:", self.prefix);
        match self.kind {
            Kind::Sqlite => self.age_sql::<Sqlite>(by),
            Kind::Postgres => self.age_sql::<Postgres>(by),
            Kind::Redis => drop(redis().advance(by, &names)),
            Kind::Layered => {
                self.age_sql::<Postgres>(by);
                redis().advance(by, &names);
            }
        }
    }

    /// Creates the table of rows that calls write.
    pub(crate) fn create_rows(&self) {
        let create = format!(
            "CREATE TABLE {}_rows (number BIGINT, process BIGINT)",
            self.table
        );
        match self.kind {
            Kind::Sqlite => drop(self.query::<InSqlite>(create)),
            _ => drop(self.query::<InPostgres>(create)),
        }
    }

    /// The processes that have written a row of this number.
    pub(crate) fn rows(&self, number: usize) -> Vec<i64> {
        let select = format!(
            "SELECT process FROM {}_rows WHERE number = {number}",
            self.table
        );
        let rows = match self.kind {
            Kind::Sqlite => self.query::<InSqlite>(select),
            _ => self.query::<InPostgres>(select),
        };
        rows.into_iter().map(|row| row[0]).collect()
    }

    fn query<D: Database>(&self, sql: String) -> Vec<Vec<i64>> {
        let (url, durable) = self.urls();
        self.runtime.block_on(async {
            let pool = D::pool(durable.as_deref().unwrap_or(&url), 1);
            let mut conn = pool.acquire().await.expect("the database is up");
            D::rows(&mut conn, sql)
                .await
                .expect("the statement is right")
        })
    }

    /// Whether a process stalled amid a write blocks all other writers.
    pub(crate) fn has_locks_of_processes(&self) -> bool {
        self.kind == Kind::Sqlite
    }

    /// Starts a process. `waits`: its calls wait for the end of others.
    pub(crate) fn spawn(&self, number: usize, leases: Leases, waits: bool) -> Worker {
        let (url, durable) = self.urls();
        let millis = |time: Duration| time.as_millis().to_string();
        let wait = Duration::from_secs(if waits { 25 } else { 0 });
        let mut worker = Worker::sibling("idem-steps")
            .args(["--store", &self.kind.name()])
            .args(["--url", &url, "--prefix", &self.prefix])
            .args(["--table", &self.table])
            .args(["--ledger", &self.ledger().display().to_string()])
            .args(["--name", &number.to_string()])
            .args(["--lease", &millis(leases.lease()), "--wait", &millis(wait)]);
        if let Some(durable) = durable {
            worker = worker.args(["--durable", &durable]);
        }
        let mut worker = worker.spawn();
        assert_eq!(worker.line(), "ready");
        worker
    }
}
