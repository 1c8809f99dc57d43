//! Every case of the conformance suite on the example's store.
//!
//! `cargo test --test zookeeper_store_conformance -- leases` runs the cases whose names contain that.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use idem_conformance::{Case, cases};
use idem_examples::zookeeper_store::fixture::InZooKeeper;
use idem_examples::zookeeper_store::store::ZooKeeperStore;
use idem_harness::ZooKeeperServer;
use libtest_mimic::{Arguments, Trial, run};
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::Client;

/// A server, a store on it, and a client beside the store.
struct Zoo {
    store: ZooKeeperStore,
    client: Client,
    _server: ZooKeeperServer,
}

fn main() -> ExitCode {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = Arc::new(runtime.expect("a runtime starts"));
    let zoo = Arc::new(OnceLock::new());
    let trials = cases().into_iter().map(|case| trial(&runtime, &zoo, case));
    let code = run(&Arguments::from_args(), trials.collect()).exit_code();
    // The sessions end before their server.
    drop(runtime);
    code
}

/// One server serves all cases; it starts with the first that runs.
fn trial(runtime: &Arc<Runtime>, zoo: &Arc<OnceLock<Zoo>>, case: Case) -> Trial {
    let (runtime, zoo) = (Arc::clone(runtime), Arc::clone(zoo));
    Trial::test(case.name, move || {
        let zoo = zoo.get_or_init(|| runtime.block_on(start()));
        let root = format!("/{}", case.name);
        let fixture = InZooKeeper::new(&zoo.store, &zoo.client, root);
        runtime.block_on((case.run)(Arc::new(fixture)));
        Ok(())
    })
}

async fn start() -> Zoo {
    let server = ZooKeeperServer::start();
    let servers = server.addr().to_string();
    Zoo {
        store: ZooKeeperStore::connect(&servers)
            .await
            .expect("the server is up"),
        client: Client::connect(&servers).await.expect("the server is up"),
        _server: server,
    }
}
