//! A group under Sentinel that falls apart.

use idem_harness::{Partition, RedisServer, RespConn, SentinelSetup, eventually};

fn started() -> SentinelSetup {
    SentinelSetup::builder().partitions().start()
}

fn port(server: &RedisServer) -> u16 {
    server.port()
}

fn run(client: &mut RespConn, command: &[&str]) -> String {
    client
        .command(command)
        .expect("the connection lives")
        .to_string()
}

/// The number of replicas that have this connection's writes, after a wait that is long enough for reachable ones.
fn acknowledged(client: &mut RespConn) -> String {
    run(client, &["WAIT", "2", "300"])
}

fn an_isolated_primary_serves_its_clients_and_another_one_is_elected(how: Partition) {
    let group = started();
    let old = group.primary();
    let mut clients = [old.addr(), group.announced_addr(old)].map(|addr| {
        let mut client = RespConn::open(addr).expect("it listens");
        assert_eq!(run(&mut client, &["SET", "before", "1"]), "OK");
        assert_eq!(run(&mut client, &["WAIT", "2", "0"]), "2");
        client
    });

    group.isolate(old, how);
    // From now on, writes do not reach the replicas.
    for client in &mut clients {
        assert_eq!(run(client, &["SET", "during", "lost"]), "OK");
        assert_eq!(acknowledged(client), "0");
    }
    let new = group.await_new_primary(old);
    assert_ne!(port(new), port(old));
    group.await_settled();
    assert_eq!(new.cli(&["MGET", "before", "during"]), "1\n(nil)");

    // The old primary still considers itself the primary, and its old and new clients do so too.
    for client in &mut clients {
        assert!(run(client, &["ROLE"]).starts_with("master"));
        assert_eq!(run(client, &["SET", "late", "lost"]), "OK");
    }
    for addr in [old.addr(), group.announced_addr(old)] {
        let mut client = RespConn::open(addr).expect("it listens");
        assert_eq!(run(&mut client, &["GET", "late"]), "lost");
    }
    new.cli(&["SET", "after", "1"]);

    group.heal();
    group.await_replica(old);
    assert_eq!(port(group.await_settled()), port(new));
    let found = old.cli(&["MGET", "before", "during", "late", "after"]);
    assert_eq!(found, "1\n(nil)\n(nil)\n1");
}

#[test]
fn a_primary_whose_links_are_cut_serves_its_clients_and_another_one_is_elected() {
    an_isolated_primary_serves_its_clients_and_another_one_is_elected(Partition::Cut);
}

#[test]
fn a_primary_whose_links_are_silent_serves_its_clients_and_another_one_is_elected() {
    an_isolated_primary_serves_its_clients_and_another_one_is_elected(Partition::Silent);
}

#[test]
fn a_primary_that_needs_replicas_refuses_writes_when_its_links_are_cut() {
    let group = SentinelSetup::builder()
        .servers(|server| {
            server
                .arg("--min-replicas-to-write", "1")
                .arg("--min-replicas-max-lag", "2")
        })
        .partitions()
        .start();
    let old = group.primary();
    // A busy machine may delay the replicas' acknowledgements.
    eventually("it has replicas", || {
        let reply = old.reply(&["SET", "before", "1"]);
        reply.as_error().is_none()
    });
    group.isolate(old, Partition::Cut);
    eventually("it refuses writes", || {
        let reply = old.reply(&["SET", "during", "1"]);
        reply.as_error().is_some_and(|error| {
            assert!(error.starts_with("NOREPLICAS"), "{error}");
            true
        })
    });
    assert_eq!(old.cli(&["GET", "before"]), "1");
}

#[test]
fn a_replica_alone_misses_writes_and_catches_up() {
    let group = started();
    let [primary, replica, other] = group.servers() else {
        panic!("three servers")
    };
    for how in [Partition::Cut, Partition::Silent] {
        let key = format!("{how:?}");
        group.isolate(replica, how);
        let mut client = RespConn::open(primary.addr()).unwrap();
        assert_eq!(run(&mut client, &["SET", &key, "1"]), "OK");
        assert_eq!(run(&mut client, &["WAIT", "1", "0"]), "1");
        assert_eq!(acknowledged(&mut client), "1");
        assert_eq!(other.cli(&["EXISTS", &key]), "1");
        assert_eq!(replica.cli(&["EXISTS", &key]), "0");
        assert_eq!(port(group.await_settled()), port(primary));
        group.heal();
        group.await_settled();
        assert_eq!(run(&mut client, &["WAIT", "2", "0"]), "2");
        assert_eq!(replica.cli(&["EXISTS", &key]), "1");
    }
}

#[test]
fn a_group_with_a_network_between_replaces_a_killed_primary() {
    let group = started();
    let named =
        group.sentinels()[0].cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSetup::NAME]);
    let addr = group.announced_addr(group.primary());
    assert_eq!(named, format!("127.0.0.1\n{}", addr.port()));
    let old = group.kill_primary();
    let new = group.await_new_primary(old);
    old.restart();
    group.await_replica(old);
    assert_eq!(port(group.await_settled()), port(new));
    // It still connects from its own address.
    group.isolate(old, Partition::Silent);
    let mut client = RespConn::open(group.announced_addr(new)).unwrap();
    assert_eq!(run(&mut client, &["SET", "key", "1"]), "OK");
    assert_eq!(run(&mut client, &["WAIT", "1", "0"]), "1");
    assert_eq!(acknowledged(&mut client), "1");
}
