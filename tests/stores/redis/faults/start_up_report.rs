//! The start-up check on real servers: its report of each state, and the absence of leftovers.

use std::collections::BTreeSet;

use idem_harness::RedisServerBuilder;
use idem_tests::shop::{MARKERS, assert_contains, assert_refused, assert_starts};

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
        ("memory", " of 1.0 GiB (0 %)"),
        ("eviction", "noeviction"),
        ("persistence", "cost the last one), no snapshots"),
        ("replicas", "a failover can forget the last writes"),
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
            assert!(found.ends_with(fact) || is_near, "{topic}: {found}");
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
        "Redis persistence: no append-only file, no snapshots",
    );
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = warning(&server.url()).await;
    assert_starts(
        &snapshots,
        "Redis persistence: no append-only file, snapshots",
    );
    for (fsync, costs, warnings) in [
        ("always", "append-only file (on disk before each reply)", 0),
        ("everysec", "append-only file (to disk once a second;", 0),
        ("no", "append-only file (to disk when the system does;", 1),
    ] {
        let server = healthy().arg("--appendfsync", fsync).start();
        let store = store(&server.url()).await;
        assert_eq!(store.warnings().len(), warnings, "{fsync}");
        assert_starts(&facts(&store, "persistence")[0], costs);
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_read_settings_gets_a_partial_report() {
    let (server, url) = with_user(DOCUMENTED);
    let store = store(&url).await;
    assert_eq!(
        facts(&store, "persistence"),
        ["append-only file (how soon on disk is not told), whether snapshots is not told"]
    );
    assert_eq!(store.warnings(), [""; 0]);
    server.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let warning = warning(&url).await;
    assert_starts(&warning, "Redis persistence: no append-only file");
}

#[tokio::test]
async fn each_reason_to_refuse_writes_is_reported() {
    let server = healthy().start();
    let set = |name, value| server.cli(&["CONFIG", "SET", name, value]);
    // A user without the right to read the settings gets the same warning.
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
    assert_eq!(facts(&store, "replicas"), ["none; a write needs 1"]);
}

#[tokio::test]
async fn a_server_that_lets_writes_wait_is_connected_to_all_the_same() {
    let server = healthy().start();
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let warning = warning(&server.url()).await;
    assert_starts(&warning, "Redis rights: not known (no reply in time)");
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_reported() {
    let server = healthy().arg("--dbfilename", "snapshot").start();
    // A directory has the name of the file.
    std::fs::create_dir(server.dir().join("snapshot")).unwrap();
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    server.cli(&["BGSAVE"]);
    until("the snapshot has failed", || {
        let told = server.cli(&["INFO", "persistence"]);
        told.contains("rdb_last_bgsave_status:err")
    })
    .await;
    let refuses = warning(&server.url()).await;
    assert_contains(&refuses, "could not write its disk (MISCONF)");
    server.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let may = warning(&server.url()).await;
    assert_contains(&may, "it may soon refuse writes (MISCONF)");
    server.cli(&["CONFIG", "SET", "save", ""]);
    assert_eq!(store(&server.url()).await.warnings(), [""; 0]);
}

#[tokio::test]
async fn a_nearly_full_memory_is_reported() {
    let server = healthy().start();
    // 5 % of it is more than the memory of the connections.
    server.cli(&["SETRANGE", "ballast", "8388607", "b"]);
    let used = server.cli(&["INFO", "memory"]);
    let used = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.unwrap().trim().parse().unwrap();
    let limit = used * 100 / 95;
    server.cli(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    let warning = warning(&server.url()).await;
    assert_starts(&warning, "Redis memory: ");
}

#[tokio::test]
async fn an_evicting_policy_is_reported_with_and_without_a_limit() {
    let server = healthy().arg("--maxmemory-policy", "allkeys-lru").start();
    let will = warning(&server.url()).await;
    assert_contains(&will, "once a `maxmemory` is set");
    server.cli(&["CONFIG", "SET", "maxmemory", "1gb"]);
    assert_refused(server.url(), "`maxmemory-policy allkeys-lru`").await;
    let allowed = patient(RedisStore::builder(server.url())).allow_eviction();
    let [allowed] = allowed
        .connect()
        .await
        .unwrap()
        .warnings()
        .try_into()
        .unwrap();
    assert_contains(&allowed, "as soon as the memory is full");
}

#[tokio::test]
async fn a_replica_is_reported_with_its_link() {
    let primary = RedisServer::builder()
        .arg("--repl-diskless-sync-delay", "0")
        .start();
    let port = primary.port().to_string();
    let replica = healthy().args(["--replicaof", "127.0.0.1", &port]).start();
    let link = |state: &str| {
        let told = replica.cli(&["INFO", "replication"]);
        told.contains(&format!("master_link_status:{state}"))
    };
    until("the replica follows", || link("up")).await;
    let follows = warning(&replica.url()).await;
    assert_starts(&follows, "Redis role: replica; claims");
    let store = store(&replica.url()).await;
    let link_up = "this is one; its link to the primary is up";
    assert_eq!(facts(&store, "replicas"), [link_up]);
    assert_eq!(
        store.report().servers().next().unwrap().role(),
        Some("replica")
    );
    primary.kill();
    until("the link is down", || link("down")).await;
    let alone = warning(&replica.url()).await;
    assert_contains(&alone, "its link to the primary is down");
    // It then refuses more commands, the script among them.
    replica.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    let warnings = self::store(&replica.url()).await.warnings();
    assert_contains(&warnings[0], "its link to the primary is down");
}

#[tokio::test]
async fn a_loading_server_is_reported() {
    let server = healthy()
        .args(["--enable-debug-command", "yes"])
        .args(["--loading-process-events-interval-bytes", "1024"])
        .start();
    server.cli(&["DEBUG", "POPULATE", "20000"]);
    server.cli(&["CONFIG", "SET", "key-load-delay", "1000"]);
    let mut admin = server.connect();
    admin.send(&["DEBUG", "RELOAD"]).unwrap();
    let mut other = server.connect();
    until("it loads", || {
        let reply = other.command(&["PING"]).unwrap();
        reply
            .as_error()
            .is_some_and(|text| text.starts_with("LOADING"))
    })
    .await;
    let warning = warning(&server.url()).await;
    assert_starts(&warning, "Redis state: loading its data");
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let server = healthy().start();
    let mut monitor = server.monitor();
    let _store = store(&server.url()).await;
    let keys: BTreeSet<_> = monitor
        .commands()
        .iter()
        .filter(|command| command.is_from_script())
        .map(ToString::to_string)
        .collect();
    let [set] = Vec::from_iter(keys).try_into().expect("one command");
    assert!(set.starts_with("SET idem:start-up-check-"), "{set}");
    until("the key is gone", || server.cli(&["DBSIZE"]) == "0").await;
}

/// The URL of a user with these rules, instead of the one before.
pub(crate) fn user(server: &RedisServer, rules: &str) -> String {
    let setting = format!("ACL SETUSER app reset on >{PASSWORD} {rules}");
    server.cli(&setting.split_whitespace().collect::<Vec<_>>());
    server.url_as("app", PASSWORD)
}
