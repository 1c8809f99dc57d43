//! Behind a network that loses, delays and doubles messages, and cuts connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_harness::{Fault, ProxyStats, TcpProxy};
use serde_json::Value;

use crate::pyiceberg::{count, expected, run, share_a_table, tables};
use crate::service::Service;

/// What happens to mutations, in turn.
const FAULTS: [Option<Fault>; 9] = [
    Some(Fault::DropReply),
    None,
    Some(Fault::Double),
    Some(Fault::DelayReply(Duration::from_millis(600))),
    None,
    Some(Fault::DelayRequest(Duration::from_millis(200))),
    None,
    Some(Fault::Cut),
    None,
];

/// A run of the clients.
#[derive(Debug)]
struct Run {
    /// The requests for a change.
    requests: usize,
    /// Those of them that have a key.
    keyed: usize,
    errors: Vec<Value>,
    network: ProxyStats,
}

async fn behind_it(service: &Service, with_keys: bool) -> Run {
    let addr = service.addr;
    let clients = move || {
        share_a_table(&format!("http://{addr}"));
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let [requests, keyed] = &*counts;
        let proxy = TcpProxy::http(addr, {
            let counts = Arc::clone(&counts);
            move |request| {
                if request.starts_with(b"GET ") {
                    return None;
                }
                let [requests, keyed] = &*counts;
                let has_key = String::from_utf8_lossy(request).contains("Idempotency-Key: ");
                keyed.fetch_add(has_key.into(), Ordering::Relaxed);
                FAULTS[requests.fetch_add(1, Ordering::Relaxed) % FAULTS.len()]
            }
        });
        let errors = run(&format!("http://{}", proxy.addr()), with_keys);
        let network = proxy.finish();
        Run {
            requests: requests.load(Ordering::Relaxed),
            keyed: keyed.load(Ordering::Relaxed),
            errors,
            network,
        }
    };
    tokio::task::spawn_blocking(clients).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_is_applied_once() {
    let service = Service::start().await;
    let run = behind_it(&service, true).await;
    assert_eq!(run.errors, Vec::<Value>::new());
    assert_eq!(tables(&service.pool).await, expected());
    // The network was as bad as it was meant to be.
    assert!(run.requests > count() * 4 / 3, "{run:?}");
    let faults = run.requests / FAULTS.len();
    let network = run.network;
    assert!(network.dropped_replies > 0, "{run:?}");
    assert!(network.answered_copies >= faults * 2, "{run:?}");
    assert_eq!(run.keyed, run.requests);
}

/// Without keys, as `PyIceberg` itself, operations fail and are applied twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_clients_and_catalog_contradict_each_other() {
    let service = Service::start().await;
    let run = behind_it(&service, false).await;
    assert_eq!(run.keyed, 0);
    // The first request of the run has created it, and its reply was lost.
    let failed = |error: &Value| error["error"] == "NamespaceAlreadyExistsError";
    assert!(run.errors.iter().any(failed), "{run:#?}");
    let (tables, expected) = (tables(&service.pool).await, expected());
    let is_doubled = |name: &String| {
        let table = expected.get(name);
        table.is_some_and(|table| tables[name].commits > table.commits)
    };
    assert!(tables.keys().any(is_doubled), "{tables:#?}");
}
