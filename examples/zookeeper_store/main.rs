//! `cargo run --example zookeeper_store -- HOST:PORT`: see [`idem_examples::zookeeper_store`].

use std::collections::hash_map::RandomState;
use std::error::Error as _;
use std::hash::BuildHasher as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use idem_examples::zookeeper_store::store::ZooKeeperStore;
use idem_runtime::{Engine, Error, idempotent};

const START: &str = "\
Start a server with `bin/zkServer.sh start-foreground` of Apache ZooKeeper, or, on Debian and Ubuntu:

  apt-get install default-jre-headless libzookeeper-java
  java -cp /usr/share/java/zookeeper.jar org.apache.zookeeper.server.ZooKeeperServerMain 2181 /tmp/zoo

It then listens at 127.0.0.1:2181.";

const ABOUT: &str = "Runs an annotated function on a store in ZooKeeper, by two engines that share nothing but the store.";

#[derive(Debug, Parser)]
#[command(args_override_self = true,
    name = "zookeeper_store",
    bin_name = "cargo run --example zookeeper_store --",
    about = ABOUT,
    after_help = START
)]
struct Args {
    /// Address of the server, or of several: host:port,host:port/chroot
    #[arg(value_name = "HOST:PORT")]
    servers: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match zookeeper_store(&Args::parse().servers).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => fail(&message),
    }
}

/// Whether the body has run once.
async fn zookeeper_store(servers: &str) -> Result<bool, String> {
    let store = ZooKeeperStore::connect(servers).await.map_err(|error| {
        let cause = error.source().map_or(String::new(), |c| format!(" ({c})"));
        format!("{error}{cause}\n\n{START}")
    })?;
    // Different in every process, which suffices here.
    let root = format!("/idem-example-{:016x}", RandomState::new().hash_one(0));
    say(&format!(
        "The store in ZooKeeper at {servers}, under {root}\n\n"
    ));
    let once = charge_often(&store.under(&root)).await?;
    say(if once { "\nok\n" } else { "\nWRONG\n" });
    Ok(once)
}

// The order is the key. Every error of this body releases the key, so that a retry runs.
#[idempotent(op = "zookeeper_store.charge", key = order, ttl = "24h", on_error = release)]
async fn charge(
    order: &str,
    cents: u64,
    #[idem(skip)] bodies: &AtomicU32,
) -> Result<String, Error> {
    let body = bodies.fetch_add(1, Ordering::Relaxed) + 1;
    Ok(format!("receipt {body} for {cents} cents"))
}

/// Calls the function in every way; returns whether its body has run once.
async fn charge_often(store: &ZooKeeperStore) -> Result<bool, String> {
    let bodies = AtomicU32::new(0);
    let first = engine(store)?;
    let second = engine(store)?;
    // Two engines share nothing but the store.
    let (one, two) = tokio::join!(
        first.scope(charge("order-7", 1_250, &bodies)),
        second.scope(charge("order-7", 1_250, &bodies)),
    );
    let again = second.scope(charge("order-7", 1_250, &bodies)).await;
    let other = second.scope(charge("order-7", 9_999, &bodies)).await;
    let answers = [
        ("one engine", one),
        ("another", two),
        ("again", again),
        ("other amount", other),
    ];
    for (call, answer) in answers {
        let answer = answer.unwrap_or_else(|refusal| refusal.to_string());
        say(&format!("{call:>12}  {answer}\n"));
    }
    let bodies = bodies.into_inner();
    say(&format!("      bodies  {bodies}\n"));
    Ok(bodies == 1)
}

fn engine(store: &ZooKeeperStore) -> Result<Engine, String> {
    Engine::builder(store.clone())
        .build()
        .map_err(|error| error.to_string())
}

fn fail(message: &str) -> ExitCode {
    eprintln!("zookeeper_store: {message}");
    ExitCode::from(2)
}

/// Prints, and ignores a closed standard output.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
