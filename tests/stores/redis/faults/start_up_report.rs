//! The start-up check on real servers: its report of each state, and the absence of leftovers.

use idem_harness::RedisServerBuilder;
use idem_tests::shop::{MARKERS, assert_starts};

use crate::prelude::*;

/// Connects, and searches the report for confidential text.
pub(crate) async fn store(url: &str) -> RedisStore {
    let store = connect(url).await.unwrap();
    let texts = [store.report().to_string(), format!("{store:?}")];
    let addr = url.rsplit('@').next().unwrap();
    let addr = addr.trim_start_matches("redis://");
    // The report of a cluster distinguishes nodes by their addresses.
    let addresses = if texts[0].contains(", cluster") {
        &[][..]
    } else {
        &[addr, "127.0.0.1"]
    };
    for secret in MARKERS.iter().chain(addresses) {
        for text in &texts {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
    store
}

/// The only warning.
async fn warning(url: &str) -> String {
    let store = store(url).await;
    let [warning] = store.warnings().try_into().expect("one warning");
    warning
}

/// The facts of a topic.
pub(crate) fn facts(store: &RedisStore, topic: &str) -> Vec<String> {
    let findings = store.report().findings().into_iter();
    let about = findings.filter(|(_, finding)| finding.topic == topic);
    about.map(|(_, finding)| finding.fact).collect()
}

/// On disk, so that there is no warning.
pub(crate) fn healthy() -> RedisServerBuilder {
    RedisServer::builder().append_only_every_second()
}

#[tokio::test]
async fn a_healthy_server_has_findings_in_both_protocols() {
    let server = healthy()
        .arg("--maxmemory", "1gb")
        .arg("--repl-diskless-sync-delay", "0")
        .start();
    let port = server.port().to_string();
    let _replica = RedisServer::builder()
        .args(["--replicaof", "127.0.0.1", &port])
        .start();
    until("the replica is online", || {
        server
            .cli(&["INFO", "replication"])
            .contains("state=online")
    })
    .await;
    let expected = [
        ("version", ", standalone"),
        ("role", "primary"),
        ("memory", " of 1.00G (0 %)"),
        ("eviction", "noeviction"),
        (
            "persistence",
            "aof_enabled 1, appendfsync everysec, save \"\"",
        ),
        (
            "replicas",
            "connected_slaves 1, min-replicas-to-write 0, online lag ",
        ),
        ("clock", ", to the millisecond"),
        ("rights", "all that idem needs under `idem:`"),
    ];
    for url in [server.url(), format!("{}?protocol=resp3", server.url())] {
        let store = connect(&url).await.unwrap();
        assert_eq!(store.warnings(), [""; 0]);
        for (topic, fact) in expected {
            let [found] = facts(&store, topic).try_into().expect(topic);
            // The distance of two clocks that are read one after the other.
            let is_near = topic == "clock" && found.starts_with("0.00");
            assert!(found.contains(fact) || is_near, "{topic}: {found}");
        }
        assert_eq!(store.report().findings().len(), expected.len());
    }
}

#[tokio::test]
async fn the_loss_by_a_restart_is_reported() {
    let server = RedisServer::start();
    let nothing = warning(&server.url()).await;
    assert_starts(
        &nothing,
        "Redis persistence: aof_enabled 0, appendfsync everysec, save \"\"",
    );
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = warning(&server.url()).await;
    assert_starts(
        &snapshots,
        "Redis persistence: aof_enabled 0, appendfsync everysec, save 3600 1",
    );
    for (fsync, warnings) in [("always", 0), ("everysec", 0), ("no", 1)] {
        let server = healthy().arg("--appendfsync", fsync).start();
        let store = store(&server.url()).await;
        assert_eq!(store.warnings().len(), warnings, "{fsync}");
        let fact = format!("aof_enabled 1, appendfsync {fsync}, ");
        assert_starts(&facts(&store, "persistence")[0], &fact);
    }
}

#[tokio::test]
async fn each_reason_to_refuse_writes_is_reported() {
    let server = healthy().start();
    let set = |name, value| server.cli(&["CONFIG", "SET", name, value]);
    // Without the right to read the settings there is the same warning.
    for url in [server.url(), user(&server, DOCUMENTED)] {
        set("maxmemory", "1");
        let full = warning(&url).await;
        assert_starts(&full, "Redis writes: out of memory");
        set("maxmemory", "0");
        set("min-replicas-to-write", "1");
        let few = warning(&url).await;
        assert_starts(&few, "Redis writes: refuses writes: too few replicas");
        set("min-replicas-to-write", "0");
        assert_eq!(store(&url).await.warnings(), [""; 0]);
    }
    set("min-replicas-to-write", "1");
    let store = store(&server.url()).await;
    assert_eq!(
        facts(&store, "replicas"),
        ["connected_slaves 0, min-replicas-to-write 1"]
    );
}

#[tokio::test]
async fn a_server_that_lets_writes_wait_is_connected_to_all_the_same() {
    let server = healthy().start();
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let warning = warning(&server.url()).await;
    assert_starts(&warning, "Redis rights: not known (no reply in time)");
}

#[tokio::test]
async fn a_nearly_full_memory_is_reported() {
    let server = healthy().start();
    // 5 % of it is more than the memory of the connections.
    server.cli(&["SETRANGE", "ballast", "8388607", "b"]);
    let used: u64 = server.info("memory", "used_memory").parse().unwrap();
    let limit = used * 100 / 95;
    server.cli(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    let warning = warning(&server.url()).await;
    assert_starts(&warning, "Redis memory: ");
}

/// The URL of a user with these rules alone.
pub(crate) fn user(server: &RedisServer, rules: &str) -> String {
    let setting = format!("ACL SETUSER app reset resetchannels on >{PASSWORD} {rules}");
    server.cli(&setting.split_whitespace().collect::<Vec<_>>());
    server.url_as("app", PASSWORD)
}
