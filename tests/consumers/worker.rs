//! A consumer process, to be killed and stalled.
//!
//! It prints `ready`, and ends in order when its stdin is closed.

#[path = "worker/handler.rs"]
mod handler;

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use idem_consumers::{Consumer, Raw};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Context, Engine, Policy};
#[cfg(feature = "kafka")]
use idem_tests::brokers::Kafka;
use idem_tests::brokers::{Broker, Nats, Rabbit, RedisStreams};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::oneshot;

use self::handler::Handler;

/// Settings of a consumer process.
#[derive(Debug, Parser)]
struct Options {
    /// Kind of the broker
    #[arg(long)]
    broker: String,
    /// URL of the broker
    #[arg(long)]
    url: String,
    /// URL of the store of the records: redis://… or postgres://…
    #[arg(long)]
    store: String,
    /// Address of the bank
    #[arg(long)]
    bank: SocketAddr,
    /// What the bank calls this process
    #[arg(long)]
    name: u32,
    /// The lease in milliseconds
    #[arg(long)]
    lease: u64,
    /// Number of messages at once
    #[arg(long)]
    concurrency: usize,
    /// Number of attempts of a message
    #[arg(long)]
    attempts: u16,
    /// Writes a row in the message's transaction, in the store
    #[arg(long)]
    tx: bool,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    match &*options.broker {
        RedisStreams::NAME => work::<RedisStreams>(options).await,
        Nats::NAME => work::<Nats>(options).await,
        Rabbit::<false>::NAME => work::<Rabbit<false>>(options).await,
        #[cfg(feature = "kafka")]
        Kafka::NAME => work::<Kafka>(options).await,
        other => panic!("no broker: {other}"),
    }
}

async fn engine(url: &str) -> Engine {
    if url.starts_with("redis:") {
        Engine::new(RedisStore::connect(url).await.expect("the store is up"))
    } else {
        Engine::new(PostgresStore::connect(url).await.expect("the store is up"))
    }
}

async fn work<B: Broker>(options: Options) {
    let lease = Duration::from_millis(options.lease);
    let engine = engine(&options.store).await;
    let handler = Arc::new(Handler {
        bank: (options.name, options.bank),
    });
    let source = B::source(&options.url, lease).await;
    let source = source.expect("the broker is up");
    let consumer = Consumer::new(engine, "bills.collect")
        .concurrency(options.concurrency)
        .dead_letter_after(options.attempts)
        .retry_after(Duration::from_millis(50))
        // The test waits for its end, and meanwhile no stalled process goes on, whose transaction may hold a row.
        .drain(Duration::from_secs(5))
        .policy(Policy::new().lease(lease));
    let (closed, shutdown) = oneshot::channel();
    thread::spawn(move || {
        drop(io::stdin().lock().read_to_end(&mut Vec::new()));
        let _ = closed.send(());
    });
    writeln!(io::stdout(), "ready").expect("the test reads");
    let shutdown = async { drop(shutdown.await) };
    let end = if options.tx {
        let pool = PgPoolOptions::new().max_connections(8);
        let pool = pool
            .connect_lazy(&options.store)
            .expect("a URL of Postgres");
        let consumer = consumer.in_tx(pool);
        let ended = consumer.run_until(
            source,
            move |message: Raw, conn, cx| {
                let handler = Arc::clone(&handler);
                Box::pin(async move { handler.collect_in_tx(message, conn, cx).await })
            },
            shutdown,
        );
        ended.await
    } else {
        let handle = move |message: Raw, cx: Context| {
            let handler = Arc::clone(&handler);
            async move { handler.collect(message, cx).await }
        };
        consumer.run_until(source, handle, shutdown).await
    };
    end.expect("neither broker nor store refuses");
}
