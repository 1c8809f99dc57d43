//! The logs of the libraries below a store.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use idem_runtime::store::sql::{MySql, MySqlStore, Postgres, PostgresStore, SqlStoreBuilder};
use idem_runtime::{Engine, Error};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::database::{Server, TestDatabase};

// On one thread, whose log is read.
#[tokio::test]
async fn no_log_has_an_answer_in_mariadb() {
    no_log_has_an_answer::<MySql>("sqlx", |url| MySqlStore::builder(url)).await;
}

#[tokio::test]
async fn no_log_has_an_answer_in_postgres() {
    no_log_has_an_answer::<Postgres>("sqlx", |url| PostgresStore::builder(url)).await;
}

/// The client logs the parameters of named statements.
#[tokio::test]
async fn no_log_has_an_answer_by_tokio_postgres() {
    let store = |url: &str| {
        let config: tokio_postgres::Config = url.parse().unwrap();
        PostgresStore::builder(config).named_statements(true)
    };
    no_log_has_an_answer::<Postgres>("with parameters: [parameter(", store).await;
}

/// The log of a thread, at all levels.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A single connection, so that claims and completions are sent together: on MariaDB as a text with their arguments.
async fn no_log_has_an_answer<D: Server>(
    logged: &str,
    store: impl FnOnce(&str) -> SqlStoreBuilder<D>,
) {
    const SECRET: &str = "4242 4242 4242 4242";
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let place = TestDatabase::new::<D>();
    let _logging = subscriber.set_default();
    let store = store(&place.url).connections(1).connect();
    let store = store.await.expect("the database is up");
    store.migrate().await.expect("the table is made");
    let engine = Engine::new(store);
    let calls = (0..16).map(|key| {
        let call = engine.operation("cards.charge").key(&key);
        call.run(async |_| Ok::<_, Error>(SECRET.to_owned()))
    });
    for answer in join_all(calls).await {
        assert_eq!(answer.as_deref(), Ok(SECRET));
    }
    let log = log.0.lock().unwrap();
    let log = String::from_utf8_lossy(&log).to_lowercase();
    assert!(log.contains(logged), "nothing is logged");
    let mut hex = String::new();
    for byte in SECRET.bytes() {
        write!(hex, "{byte:02x}").expect("there is room");
    }
    assert!(!log.contains(SECRET) && !log.contains(&hex), "{log}");
}
