//! A consumer process, to be killed and stalled. Its handler charges at the bank, and in `tx` mode writes a row as well.
//!
//! Its argument is the JSON of its settings. It prints `ready`, and ends in order when its stdin is closed.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use idem_consumers::{Consumer, Raw};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Classify, Context, Engine, Policy};
#[cfg(feature = "kafka")]
use idem_tests::brokers::Kafka;
use idem_tests::brokers::{Broker, ConsumerSettings, Nats, Rabbit, RedisStreams};
use idem_tests::shop::{connected, patiently};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Why a bill was not collected.
#[derive(Clone, Copy, Debug, Classify, Deserialize, Serialize)]
enum Failure {
    #[class(system)]
    Bank,
    #[class(system)]
    Database,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Bank
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("a row: {error}");
        Self::Database
    }
}

/// Charges once by the message's key. Where there is a transaction, writes a row before.
async fn collect(
    settings: &ConsumerSettings,
    message: Raw,
    tx: Option<&mut PgConnection>,
    cx: Context,
) -> Result<(), Failure> {
    let id = String::from_utf8(message.0).expect("as it was sent");
    if let Some(tx) = tx {
        let insert = sqlx::query("INSERT INTO bills (id) VALUES ($1)");
        insert.bind(&id).execute(tx).await?;
    }
    let mut bank = BufReader::new(TcpStream::connect(settings.bank).await?);
    let request = format!("{} {id} {}\n", settings.name, cx.derive_key("bank"));
    bank.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    bank.read_line(&mut answer).await?;
    match &*answer {
        "charged\n" => Ok(()),
        _ => Err(Failure::Bank),
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let settings = env::args().nth(1).expect("the settings");
    let settings: ConsumerSettings = serde_json::from_str(&settings).expect("the settings");
    match &*settings.broker {
        RedisStreams::NAME => work::<RedisStreams>(settings).await,
        Nats::NAME => Box::pin(work::<Nats>(settings)).await,
        Rabbit::<false>::NAME => work::<Rabbit<false>>(settings).await,
        #[cfg(feature = "kafka")]
        Kafka::NAME => work::<Kafka>(settings).await,
        other => panic!("no broker: {other}"),
    }
}

async fn engine(url: &str) -> Engine {
    if url.starts_with("redis:") {
        Engine::new(connected(RedisStore::builder(url)).await)
    } else {
        let connecting = async {
            loop {
                match PostgresStore::connect(url).await {
                    Ok(store) => return store,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        };
        Engine::new(patiently("the store connects", connecting).await)
    }
}

async fn work<B: Broker>(settings: ConsumerSettings) {
    let settings = Arc::new(settings);
    let engine = engine(&settings.store).await;
    // A busy machine may delay the replies of a broker for longer than its client waits.
    let connecting = async {
        loop {
            match B::source(&settings.url, settings.lease).await {
                Ok(source) => return source,
                Err(error) => eprintln!("the broker is up: {error}"),
            }
        }
    };
    let source = patiently("the broker is up", connecting).await;
    let consumer = Consumer::new(engine, "bills.collect")
        .concurrency(settings.concurrency)
        .dead_letter_after(settings.attempts)
        .retry_after(Duration::from_millis(50))
        // The test waits for its end, and meanwhile no stalled process goes on, whose transaction may hold a row.
        .drain(Duration::from_secs(5))
        .policy(Policy::new().lease(settings.lease));
    let (closed, shutdown) = oneshot::channel();
    thread::spawn(move || {
        drop(io::stdin().lock().read_to_end(&mut Vec::new()));
        let _ = closed.send(());
    });
    writeln!(io::stdout(), "ready").expect("the test reads");
    let shutdown = async { drop(shutdown.await) };
    let end = if settings.tx {
        let pool = PgPoolOptions::new().max_connections(8);
        let pool = pool.connect_lazy(&settings.store);
        let consumer = consumer.in_tx(pool.expect("a URL of Postgres"));
        let ended = consumer.run_until(
            source,
            move |message: Raw, conn, cx| {
                let settings = Arc::clone(&settings);
                Box::pin(async move { collect(&settings, message, Some(conn), cx).await })
            },
            shutdown,
        );
        ended.await
    } else {
        let handle = move |message: Raw, cx: Context| {
            let settings = Arc::clone(&settings);
            async move { collect(&settings, message, None, cx).await }
        };
        consumer.run_until(source, handle, shutdown).await
    };
    end.expect("neither broker nor store refuses");
}
