//! A group under Sentinel, really started.

use std::time::Duration;

use idem_harness::{RedisServer, Reply, RespConn, SentinelSetup};

/// The command for the primary according to a sentinel.
const NAME: [&str; 3] = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSetup::NAME];

fn port(server: &RedisServer) -> u16 {
    server.port()
}

/// Writes a key, and returns when `replicas` have it.
fn write(group: &SentinelSetup, key: &str, replicas: i64) {
    let mut client = group.primary().connect();
    let written = client.command(&["SET", key, "value"]);
    assert_eq!(written.ok(), Some(Reply::Simple("OK".to_owned())));
    let wait = ["WAIT", &replicas.to_string(), "0"];
    let acknowledged = client.command(&wait).expect("WAIT is answered");
    assert!(acknowledged.as_int() >= Some(replicas), "{acknowledged}");
}

#[test]
fn a_started_group_replicates() {
    let group = SentinelSetup::start();
    let [primary, one, two] = group.servers() else {
        panic!("three servers")
    };
    assert_eq!(port(group.primary()), port(primary));
    for (sentinel, addr) in group.sentinels().iter().zip(group.sentinel_addrs()) {
        let named = RespConn::open(addr).unwrap().command(&NAME).unwrap();
        assert_eq!(named.to_string(), format!("127.0.0.1\n{}", port(primary)));
        let quorum = sentinel.cli(&["SENTINEL", "CKQUORUM", SentinelSetup::NAME]);
        assert!(quorum.starts_with("OK 3 usable Sentinels"), "{quorum}");
    }
    write(&group, "key", 2);
    for replica in [one, two] {
        assert_eq!(replica.cli(&["GET", "key"]), "value");
        let refused = replica.reply(&["SET", "key", "other"]);
        let error = refused.as_error().unwrap();
        assert!(error.starts_with("READONLY"), "{refused}");
    }
}

/// What happens to a primary: how it goes, and how it comes back.
type Fate = (&'static str, fn(&SentinelSetup), fn(&RedisServer));

#[test]
fn a_primary_is_replaced_however_it_goes_and_comes_back_as_a_replica() {
    let fates: [Fate; 4] = [
        (
            "killed",
            |group| {
                group.kill_primary();
            },
            |old| old.restart(),
        ),
        (
            "paused",
            |group| group.primary().pause(),
            |old| old.resume(),
        ),
        (
            "asked",
            |group| {
                group.failover();
            },
            |_| {},
        ),
        (
            "asked again",
            |group| {
                group.failover();
            },
            |_| {},
        ),
    ];
    let group = SentinelSetup::start();
    for (fate, end, bring_back) in fates {
        let old = group.primary();
        write(&group, "before", 2);
        end(&group);
        let new = group.await_new_primary(old);
        assert_ne!(port(new), port(old), "{fate}");
        assert!(new.cli(&["ROLE"]).starts_with("master"), "{fate}");
        group.await_settled();
        write(&group, "after", 1);
        bring_back(old);
        group.await_replica(old);
        assert!(old.cli(&["ROLE"]).starts_with("slave"), "{fate}");
        assert_eq!(port(group.await_settled()), port(new), "{fate}");
        // Each replica has what was written before what it acknowledges.
        write(&group, "last", 2);
        assert_eq!(old.cli(&["EXISTS", "before", "after"]), "2", "{fate}");
        new.cli(&["DEL", "before", "after"]);
    }
}

#[test]
fn restarted_members_keep_their_roles_and_two_sentinels_of_three_are_enough() {
    let group = SentinelSetup::start();
    let new = group.failover();
    group.await_settled();
    let mut servers = group.servers().iter();
    let replica = servers.find(|server| port(server) != port(new)).unwrap();
    let sentinel = &group.sentinels()[0];
    sentinel.kill();
    replica.kill();
    replica.restart();
    // Its own configuration contains it, before a sentinel could reconfigure it.
    let info = replica.cli(&["CONFIG", "GET", "replicaof"]);
    assert_eq!(info, format!("replicaof\n127.0.0.1 {}", port(new)));
    sentinel.restart();
    assert_eq!(port(group.await_settled()), port(new));

    sentinel.kill();
    let old = group.kill_primary();
    let new = group.await_new_primary(old);
    old.restart();
    group.await_replica(old);
    assert_eq!(port(group.primary()), port(new));
}

#[test]
fn members_have_the_settings_that_were_asked_for_also_after_a_failover() {
    let group = SentinelSetup::builder()
        .servers(|server| {
            let server = server.password("p@ss \"word\"").append_only_always();
            let server = server.acl_user("app", "on >secret ~app:* +get +set");
            server
                .arg("--min-replicas-to-write", "1")
                .arg("--min-replicas-max-lag", "2")
        })
        .sentinels(|sentinel| {
            sentinel
                .acl_user("app", "on >secret ~* +sentinel|get-master-addr-by-name")
                .acl_user("default", "off")
        })
        .down_after(Duration::from_millis(2_100))
        .failover_timeout(Duration::from_millis(4_500))
        .start();
    let say = |client: &mut RespConn, command: &[&str]| client.command(command).unwrap();
    for sentinel in group.sentinels() {
        let mut client = RespConn::open(sentinel.addr()).unwrap();
        let refused = say(&mut client, &NAME);
        assert!(refused.to_string().contains("NOAUTH"), "{refused}");
        say(&mut client, &["AUTH", "app", "secret"]);
        assert!(matches!(say(&mut client, &NAME), Reply::Array(_)));
        let primary = sentinel.cli(&["SENTINEL", "MASTER", SentinelSetup::NAME]);
        for setting in [
            "down-after-milliseconds\n2100\n",
            "failover-timeout\n4500\n",
        ] {
            assert!(primary.contains(setting), "{primary}");
        }
    }
    // The sentinels agree, though their default user is off.
    let old = group.kill_primary();
    let new = group.await_new_primary(old);
    // The rewritten settings are the configured ones.
    old.restart();
    group.await_settled();
    for server in [old, new] {
        let mut client = RespConn::open(server.addr()).unwrap();
        let refused = say(&mut client, &["PING"]);
        assert!(refused.to_string().contains("NOAUTH"), "{refused}");
        for login in [&["AUTH", "p@ss \"word\""][..], &["AUTH", "app", "secret"]] {
            assert_eq!(say(&mut client, login).to_string(), "OK");
        }
        for (name, value) in [("appendfsync", "always"), ("min-replicas-to-write", "1")] {
            let found = server.cli(&["CONFIG", "GET", name]);
            assert_eq!(found, format!("{name}\n{value}"));
        }
    }
}
