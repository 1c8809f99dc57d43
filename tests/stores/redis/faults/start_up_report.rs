//! The start-up check on real servers: its report of each state, and the absence of leftovers.

use std::collections::BTreeSet;

use idem_harness::RedisServerBuilder;
use idem_tests::shop::{MARKERS, assert_refused, assert_starts};

use crate::prelude::*;

/// Connects, and searches the report for confidential text.
pub(crate) async fn store(url: &str) -> RedisStore {
    let store = connect(url).await.unwrap();
    let report = store.report().to_string();
    let debug = format!("{store:?}");
    let addr = url
        .rsplit('@')
        .next()
        .unwrap()
        .trim_start_matches("redis://");
    // The report of a cluster distinguishes nodes by their addresses.
    let addresses = if report.contains("cluster") {
        &[][..]
    } else {
        &[addr, "127.0.0.1"]
    };
    for secret in MARKERS.iter().chain(addresses) {
        assert!(!report.contains(secret), "{secret} is in {report}");
        assert!(!debug.contains(secret), "{secret} is in {debug}");
    }
    assert_eq!(
        store.report().warnings(),
        store.warnings(),
        "nobody watched"
    );
    for warning in store.warnings() {
        assert!(report.contains(&warning), "{warning} is not in {report}");
    }
    store
}

/// The only warning.
async fn warning(url: &str) -> String {
    let store = store(url).await;
    let [warning] = store.warnings().try_into().expect("one warning");
    warning
}

/// A line of the report.
pub(crate) fn line(store: &RedisStore, name: &str) -> String {
    let report = store.report().to_string();
    let mut lines = report.lines().map(str::trim_start);
    let line = lines.find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {report}"))
        .trim()
        .to_owned()
}

/// On disk, so that there is no warning.
pub(crate) fn healthy() -> RedisServerBuilder {
    RedisServer::builder().append_only_every_second()
}

/// The report without digits, because versions and sizes differ from server to server.
fn masked(report: &str) -> String {
    let mut masked = String::new();
    for c in report.chars() {
        match c {
            '0'..='9' | '.' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            c => masked.push(c),
        }
    }
    for unit in ["KiB", "MiB", "GiB"] {
        masked = masked.replace(unit, "units");
    }
    masked.replace("Valkey", "Redis")
}

#[tokio::test]
async fn a_healthy_server_has_a_short_report() {
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
    let expected = "\
Redis #, standalone, primary
  memory        # units of # units, noeviction
  persistence   append-only file (to disk once a second; a power loss can cost the last one), no snapshots
  replicas      #: online (lag # s); a failover can forget the last writes
  rights        all that idem needs under `idem:`
  warnings      none";
    for url in [server.url(), format!("{}?protocol=resp3", server.url())] {
        let store = connect(&url).await.unwrap();
        assert_eq!(masked(&store.report().to_string()), expected);
    }
}

#[tokio::test]
async fn the_loss_by_a_restart_is_reported() {
    let server = RedisServer::start();
    let nothing = warning(&server.url()).await;
    assert_starts(&nothing, "Redis keeps nothing on disk");
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = warning(&server.url()).await;
    assert_starts(&snapshots, "Redis keeps snapshots only");
    for (fsync, costs) in [
        ("always", "append-only file (on disk before each reply)"),
        ("everysec", "append-only file (to disk once a second;"),
        ("no", "append-only file (to disk when the system does;"),
    ] {
        let server = healthy().arg("--appendfsync", fsync).start();
        let store = store(&server.url()).await;
        assert_eq!(store.warnings(), [""; 0]);
        let line = line(&store, "persistence");
        assert!(line.starts_with(costs), "{line}");
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_read_settings_gets_a_partial_report() {
    let (server, url) = with_user(DOCUMENTED);
    let store = store(&url).await;
    let line = line(&store, "persistence");
    assert_eq!(
        line,
        "append-only file (how soon on disk is not told), whether snapshots is not told"
    );
    assert_eq!(store.warnings(), [""; 0]);
    server.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let warning = warning(&url).await;
    assert_starts(&warning, "Redis has no append-only file");
}

#[tokio::test]
async fn each_reason_to_refuse_writes_is_reported() {
    let server = healthy().start();
    let set = |name, value| server.cli(&["CONFIG", "SET", name, value]);
    // A user without the right to read the settings gets the same warning.
    for url in [server.url(), user(&server, DOCUMENTED)] {
        set("maxmemory", "1");
        let full = warning(&url).await;
        assert!(full.starts_with("Redis is out of memory"), "{full}");
        set("maxmemory", "0");
        set("min-replicas-to-write", "1");
        let few = warning(&url).await;
        assert!(few.starts_with("Redis has too few replicas"), "{few}");
        set("min-replicas-to-write", "0");
        assert_eq!(store(&url).await.warnings(), [""; 0]);
    }
    set("min-replicas-to-write", "1");
    let store = store(&server.url()).await;
    assert_eq!(line(&store, "replicas"), "none; a write needs 1");
}

#[tokio::test]
async fn a_server_that_lets_writes_wait_is_connected_to_all_the_same() {
    let server = healthy().start();
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let warning = warning(&server.url()).await;
    assert!(warning.contains("failed (no reply in time)"), "{warning}");
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
    assert_starts(
        &refuses,
        "Redis could not write its last snapshot and refuses writes",
    );
    server.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let may = warning(&server.url()).await;
    assert_starts(&may, "Redis could not write its last snapshot, and may");
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
    assert!(warning.contains("% of its `maxmemory`"), "{warning}");
}

#[tokio::test]
async fn an_evicting_policy_is_reported_with_and_without_a_limit() {
    let server = healthy().arg("--maxmemory-policy", "allkeys-lru").start();
    let will = warning(&server.url()).await;
    assert!(will.contains("as soon as a `maxmemory` is set"), "{will}");
    server.cli(&["CONFIG", "SET", "maxmemory", "1gb"]);
    assert_refused(server.url(), "`maxmemory-policy allkeys-lru`").await;
    let allowed = patient(RedisStore::builder(server.url())).allow_eviction();
    let report = allowed.connect().await.unwrap().report().to_string();
    assert!(report.contains("the guarantee ends there"), "{report}");
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
    assert_starts(&follows, "this Redis is a replica: claims");
    let store = store(&replica.url()).await;
    assert_eq!(
        line(&store, "replicas"),
        "this is one; its link to the primary is up"
    );
    assert_eq!(
        store.report().servers().next().unwrap().role(),
        Some("replica")
    );
    primary.kill();
    until("the link is down", || link("down")).await;
    let alone = warning(&replica.url()).await;
    assert!(alone.contains("its link to the primary is down"), "{alone}");
    // It then refuses more commands, the script among them.
    replica.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    let warnings = self::store(&replica.url()).await.warnings();
    assert!(
        warnings[0].contains("its link to the primary is down"),
        "{warnings:?}"
    );
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
    assert_starts(&warning, "Redis is loading its data");
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
