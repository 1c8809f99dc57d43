//! One effect for each key on a lock service: records in `ZooKeeper`, which prefers consistency to availability.
//!
//! `cargo run --example lock_service` starts a `ZooKeeper` and four engines, each with connections of its own, which
//! issue 100 licences: each engine is asked three times for each. One of 20 bodies fails. In the middle of the load a
//! reply to one engine is lost, and all connections of another are cut: idem asks again in the name of the same call,
//! or tells the caller to repeat. The store is the example `zookeeper_store`, written from outside of idem.
//! `--unprotected` (debug builds) shows the same without idem, and exits with 1.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, hammer, pause, repeat};
use idem_examples::zookeeper_store::store::ZooKeeperStore;
use idem_harness::{TcpProxy, ZooKeeperServer};
use idem_runtime::{Classify, Engine, Error, idempotent};
use serde::{Deserialize, Serialize};
use zookeeper_client::{Acls, Client, CreateMode};

const LICENCES: i64 = 100;
const ENGINES: usize = 4;

/// Where the licences are: a node for each that was issued.
const ISSUED: &str = "/licences";

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum LicenceError {
    /// Nothing was issued, and a repeat runs.
    #[class(system)]
    Busy,
    /// The reply is lost, and the licence may be issued: no body runs until a hook (`reconcile`) or an operator has
    /// looked.
    #[class(unknown)]
    Unconfirmed,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for LicenceError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

/// The events so far.
#[derive(Debug, Default)]
struct Seen {
    calls: AtomicUsize,
    cut: AtomicUsize,
    bodies: AtomicI64,
    repeated: AtomicI64,
}

/// The number under which the licence was issued. An engine that dies in the body holds the key for the lease.
#[idempotent(op = "licence.issue", key = licence, ttl = "30d", lease = "10s")]
async fn issue(
    #[idem(skip)] registry: &Client,
    #[idem(skip)] seen: &Seen,
    licence: i64,
) -> Result<i64, LicenceError> {
    if seen.bodies.fetch_add(1, Relaxed) % 20 == 19 {
        return Err(LicenceError::Busy);
    }
    let mode = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    let path = format!("{ISSUED}/{licence}-");
    let (_, number) = registry
        .create(&path, &[], &mode)
        .await
        .map_err(|_| LicenceError::Unconfirmed)?;
    Ok(number.into_i64())
}

/// Engines with connections of their own, each through a proxy.
struct Site {
    engines: Vec<(Engine, TcpProxy)>,
    registry: Client,
    seen: Arc<Seen>,
}

/// One request at one engine, repeated while its error tells to.
async fn ask(site: Arc<Site>, (engine, licence): (usize, i64)) -> Result<i64, LicenceError> {
    let all = ENGINES * 3 * 100;
    match site.seen.calls.fetch_add(1, Relaxed) {
        call if call == all / 3 => site.engines[1].1.drop_next_reply(),
        call if call == all / 2 => site.seen.cut.store(site.engines[0].1.cut(), Relaxed),
        _ => {}
    }
    let call = || {
        site.engines[engine]
            .0
            .scope(issue(&site.registry, &site.seen, licence))
    };
    repeat(call, |error| match error {
        LicenceError::Busy => Some(Duration::ZERO),
        LicenceError::Idempotency(error) if error.is_retryable() => {
            // The store was not reached, or the first call still ran.
            site.seen.repeated.fetch_add(1, Relaxed);
            pause(error)
        }
        _ => None,
    })
    .await
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (server, seen) = (ZooKeeperServer::start(), Arc::new(Seen::default()));
    let registry = Client::connect(&server.addr().to_string()).await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    registry.mkdir(ISSUED, &open).await?;
    let mut engines = Vec::new();
    for _ in 0..ENGINES {
        let proxy = TcpProxy::start(server.addr());
        let store = ZooKeeperStore::connect(&proxy.addr().to_string()).await?;
        engines.push((options.engine(store), proxy));
    }
    let site = Arc::new(Site {
        engines,
        registry: registry.clone(),
        seen: seen.clone(),
    });
    let each = |licence| (0..3 * ENGINES).map(move |call| (call % ENGINES, licence));
    let calls = (0..LICENCES).flat_map(each).collect();
    let mut load = hammer("licences", 100, calls, site.clone(), ask).await;

    // The same licence at any engine: one number.
    for ((engine, _), _) in &mut load.answers {
        *engine = 0;
    }
    let nodes = registry.list_children(ISSUED).await?;
    let mut issued: Vec<_> = nodes
        .iter()
        .filter_map(|node| node.split('-').next())
        .collect();
    issued.sort_unstable();
    issued.dedup();
    let lost: usize = site
        .engines
        .iter()
        .map(|(_, proxy)| proxy.stats().dropped_replies)
        .sum();
    let mut books = Books::new("lock service: 100 licences, asked for 12 times each at 4 engines");
    books
        .check("licences issued", issued.len(), 100)
        .check("nodes in ZooKeeper", nodes.len(), 100)
        .check("calls with another number", load.contradictions(), 0)
        .check("calls without an answer", load.count(Result::is_err), 0)
        .note("replies that were lost", lost)
        .note("connections that were cut", seen.cut.load(Relaxed))
        .note("calls repeated", seen.repeated.load(Relaxed))
        .note("bodies, failed ones included", seen.bodies.load(Relaxed));
    load.speed(&mut books);
    Ok(books.close())
}
