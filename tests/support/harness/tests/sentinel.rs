//! A group under Sentinel, really started.

use std::time::{Duration, Instant};

use idem_harness::{RedisServer, Reply, RespConn, SentinelSetup};

/// The primary according to each sentinel, queried directly.
fn named(group: &SentinelSetup) -> Vec<String> {
    let name = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSetup::NAME];
    let sentinels = group.sentinels().iter();
    sentinels.map(|sentinel| sentinel.cli(&name)).collect()
}

fn role(server: &RedisServer) -> String {
    match server.reply(&["ROLE"]) {
        Reply::Array(words) => words[0].to_string(),
        other => panic!("{other}"),
    }
}

/// Writes a key, and returns when `replicas` have it.
fn write(group: &SentinelSetup, key: &str, replicas: i64) {
    let mut client = group.primary().connect();
    let written = client.command(&["SET", key, "value"]);
    assert_eq!(written.ok(), Some(Reply::Simple("OK".to_owned())));
    let wait = ["WAIT", &replicas.to_string(), "20000"];
    let acknowledged = client.command(&wait).expect("WAIT is answered");
    assert!(acknowledged.as_int() >= Some(replicas), "{acknowledged}");
}

fn port(server: &RedisServer) -> u16 {
    server.port()
}

#[test]
fn a_started_group_replicates() {
    let start = Instant::now();
    let group = SentinelSetup::start();
    eprintln!("started within {:?}", start.elapsed());
    let [primary, one, two] = group.servers() else {
        panic!("three servers")
    };
    assert_eq!(port(group.primary()), port(primary));
    assert_eq!(
        named(&group),
        vec![format!("127.0.0.1\n{}", port(primary)); 3]
    );
    for addr in group.sentinel_addrs() {
        let pong = RespConn::open(addr).unwrap().command(&["PING"]).unwrap();
        assert_eq!(pong.to_string(), "PONG");
    }
    let mut client = RespConn::open(primary.addr()).unwrap();
    client.command(&["SET", "key", "value"]).unwrap();
    assert_eq!(
        client.command(&["WAIT", "2", "20000"]).unwrap().as_int(),
        Some(2)
    );
    for replica in [one, two] {
        assert_eq!(replica.cli(&["GET", "key"]), "value");
        let refused = replica.reply(&["SET", "key", "other"]);
        assert!(
            refused.as_error().unwrap().starts_with("READONLY"),
            "{refused}"
        );
    }
    for sentinel in group.sentinels() {
        let quorum = sentinel.cli(&["SENTINEL", "CKQUORUM", SentinelSetup::NAME]);
        assert!(quorum.starts_with("OK 3 usable Sentinels"), "{quorum}");
    }
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let group = SentinelSetup::start();
    write(&group, "before", 2);
    let start = Instant::now();
    let old = group.kill_primary();
    assert!(!old.is_running());
    let new = group.await_new_primary(old);
    eprintln!("new primary within {:?}", start.elapsed());
    assert_ne!(port(new), port(old));
    assert_eq!(role(new), "master");
    group.await_settled();
    write(&group, "after", 1);
    old.restart();
    group.await_replica(old);
    eprintln!("old one is a replica within {:?}", start.elapsed());
    assert_eq!(role(old), "slave");
    assert_eq!(port(group.await_settled()), port(new));
    assert_eq!(old.cli(&["EXISTS", "before", "after"]), "2");
}

#[test]
fn a_paused_primary_is_replaced_and_demoted_when_it_is_resumed() {
    let group = SentinelSetup::start();
    let old = group.primary();
    old.pause();
    let new = group.await_new_primary(old);
    old.resume();
    group.await_replica(old);
    assert_eq!(port(group.await_settled()), port(new));
}

#[test]
fn a_failover_that_was_asked_for_swaps_the_primary() {
    let group = SentinelSetup::start();
    let old = group.primary();
    write(&group, "key", 2);
    let new = group.failover();
    assert_ne!(port(new), port(old));
    group.await_replica(old);
    assert_eq!(new.cli(&["GET", "key"]), "value");
    group.await_settled();
    // And once more.
    assert_ne!(port(group.failover()), port(new));
}

#[test]
fn a_restarted_replica_and_a_restarted_sentinel_keep_their_roles() {
    let group = SentinelSetup::start();
    let old = group.primary();
    let new = group.failover();
    group.await_settled();
    let replica = group
        .servers()
        .iter()
        .find(|server| port(server) != port(new))
        .unwrap();
    let sentinel = &group.sentinels()[0];
    sentinel.kill();
    replica.kill();
    replica.restart();
    // Its own configuration contains it, before a sentinel could reconfigure it.
    let info = replica.cli(&["CONFIG", "GET", "replicaof"]);
    assert_eq!(info, format!("replicaof\n127.0.0.1 {}", port(new)));
    sentinel.restart();
    assert_eq!(port(group.await_settled()), port(new));
    assert_ne!(port(old), port(new));
}

#[test]
fn two_sentinels_of_three_are_enough() {
    let group = SentinelSetup::start();
    group.sentinels()[0].kill();
    let old = group.kill_primary();
    let new = group.await_new_primary(old);
    old.restart();
    group.await_replica(old);
    assert_eq!(port(group.primary()), port(new));
}

#[test]
fn servers_have_the_settings_that_were_asked_for() {
    let group = SentinelSetup::builder()
        .servers(|server| {
            let server = server.password("p@ss \"word\"").append_only_always();
            server.acl_user("app", "on >secret ~app:* +get +set").args([
                "--min-replicas-to-write",
                "1",
                "--min-replicas-max-lag",
                "2",
            ])
        })
        .start();
    let old = group.primary();
    let mut client = RespConn::open(old.addr()).unwrap();
    let refused = client.command(&["PING"]).unwrap();
    assert!(
        refused.as_error().unwrap().starts_with("NOAUTH"),
        "{refused}"
    );
    let new = group.failover();
    group.await_settled();
    // The rewritten settings are the configured ones.
    old.restart();
    group.await_settled();
    for server in [old, new] {
        let mut client = RespConn::open(server.addr()).unwrap();
        let reply = client.command(&["AUTH", "p@ss \"word\""]).unwrap();
        assert_eq!(reply.to_string(), "OK");
        let reply = client.command(&["AUTH", "app", "secret"]).unwrap();
        assert_eq!(reply.to_string(), "OK");
        assert_eq!(
            server.cli(&["CONFIG", "GET", "appendfsync"]),
            "appendfsync\nalways"
        );
        assert_eq!(
            server.cli(&["CONFIG", "GET", "min-replicas-to-write"]),
            "min-replicas-to-write\n1"
        );
    }
}

#[test]
fn sentinels_have_the_settings_that_were_asked_for() {
    let group = SentinelSetup::builder()
        .sentinels(|sentinel| {
            sentinel
                .acl_user("app", "on >secret ~* +sentinel|get-master-addr-by-name")
                .acl_user("default", "off")
        })
        .down_after(Duration::from_millis(2_100))
        .failover_timeout(Duration::from_millis(4_500))
        .start();
    for sentinel in group.sentinels() {
        let mut client = RespConn::open(sentinel.addr()).unwrap();
        let name = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSetup::NAME];
        let refused = client.command(&name).unwrap();
        assert!(
            refused.as_error().unwrap().starts_with("NOAUTH"),
            "{refused}"
        );
        client.command(&["AUTH", "app", "secret"]).unwrap();
        assert!(matches!(client.command(&name).unwrap(), Reply::Array(_)));
        let primary = sentinel.cli(&["SENTINEL", "MASTER", SentinelSetup::NAME]);
        assert!(
            primary.contains("down-after-milliseconds\n2100\n"),
            "{primary}"
        );
        assert!(primary.contains("failover-timeout\n4500\n"), "{primary}");
    }
    // They agree, though their default user is off.
    let old = group.kill_primary();
    group.await_new_primary(old);
}

#[test]
fn a_dropped_group_leaves_nothing_behind() {
    let group = SentinelSetup::start();
    let members = || group.servers().iter().chain(group.sentinels());
    let dirs: Vec<_> = members().map(|member| member.dir().to_owned()).collect();
    let addrs: Vec<_> = members().map(RedisServer::addr).collect();
    assert!(dirs.iter().all(|dir| dir.exists()));
    drop(group);
    assert!(dirs.iter().all(|dir| !dir.exists()));
    assert!(addrs.iter().all(|addr| RespConn::open(*addr).is_err()));
}
