//! A cluster, really started.

use std::thread;
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServer, Reply, RespConn};

fn port(server: &RedisServer) -> u16 {
    server.port()
}

/// Writes a key that the replica has when this returns.
fn write(cluster: &ClusterSetup, key: &str) {
    let mut client = cluster.primary_of(key).connect();
    let written = client.command(&["SET", key, "value"]);
    assert_eq!(written.ok(), Some(Reply::Simple("OK".to_owned())));
    let acknowledged = client.command(&["WAIT", "1", "0"]);
    let acknowledged = acknowledged.expect("WAIT is answered");
    assert_eq!(acknowledged.as_int(), Some(1));
}

fn error(reply: &Reply) -> &str {
    reply.as_error().unwrap_or_else(|| panic!("{reply}"))
}

#[test]
fn a_started_cluster_serves_every_slot_and_replicates() {
    let cluster = ClusterSetup::start();
    let [one, two, three, _, _, last] = cluster.nodes() else {
        panic!("six nodes")
    };
    for (slot, node) in [(0, one), (5_461, two), (10_922, three), (16_383, three)] {
        assert_eq!(port(cluster.node_of_slot(slot)), port(node), "{slot}");
    }
    // Known from the specification.
    assert_eq!(cluster.slot_of("123456789"), 12_739);
    write(&cluster, "123456789");
    assert_eq!(port(cluster.replica_of(three)), port(last));
    assert_eq!(last.cli(&["DBSIZE"]), "1");
    for node in cluster.nodes() {
        assert!(
            node.cli(&["CLUSTER", "INFO"])
                .contains("cluster_state:ok\r\n")
        );
    }
    let mut client = RespConn::open(cluster.addrs()[0]).unwrap();
    let moved = client.command(&["GET", "123456789"]).unwrap();
    assert_eq!(
        error(&moved),
        format!("MOVED 12739 127.0.0.1:{}", port(three))
    );
    assert_eq!(cluster.cli("123456789", &["GET", "123456789"]), "value");
    assert_eq!(cluster.urls()[0], format!("redis://{}", one.addr()));
}

#[test]
fn a_primary_is_replaced_however_it_goes_and_comes_back_as_a_replica() {
    type Fate = (
        &'static str,
        fn(&ClusterSetup, &RedisServer),
        fn(&RedisServer),
    );
    let fates: [Fate; 3] = [
        ("killed", |_, old| old.kill(), RedisServer::restart),
        ("paused", |_, old| old.pause(), RedisServer::resume),
        (
            "asked",
            |cluster, old| cluster.failover(cluster.replica_of(old)),
            |_| {},
        ),
    ];
    let cluster = ClusterSetup::start();
    let slot = cluster.slot_of("key");
    for (fate, end, bring_back) in fates {
        write(&cluster, "key");
        let old = cluster.primary_of("key");
        let heir = cluster.replica_of(old);
        end(&cluster, old);
        let new = cluster.await_new_primary(slot, old);
        assert_eq!(port(new), port(heir), "{fate}");
        assert_eq!(cluster.cli("key", &["GET", "key"]), "value", "{fate}");
        bring_back(old);
        cluster.await_settled();
        assert_eq!(port(cluster.replica_of(new)), port(old), "{fate}");
        assert_eq!(port(cluster.primary_of("key")), port(new), "{fate}");
        let moved = old.reply(&["GET", "key"]);
        assert!(error(&moved).starts_with("MOVED"), "{fate}: {moved}");
    }
}

#[test]
fn a_killed_replica_comes_back() {
    let cluster = ClusterSetup::start();
    let primary = cluster.node_of_slot(0);
    let replica = cluster.replica_of(primary);
    replica.kill();
    primary.cli(&["SET", "{06S}", "value"]);
    replica.restart();
    cluster.await_settled();
    assert_eq!(port(cluster.replica_of(primary)), port(replica));
    assert_eq!(replica.cli(&["DBSIZE"]), "1");
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = ClusterSetup::start();
    let keys: Vec<_> = (0..250)
        .map(|number| format!("{{slot}}:{number}"))
        .collect();
    for key in &keys {
        assert_eq!(cluster.primary_of("{slot}").cli(&["SET", key, key]), "OK");
    }
    let (slot, old) = (cluster.slot_of("{slot}"), cluster.primary_of("{slot}"));
    let mut nodes = cluster.nodes()[..3].iter();
    let target = nodes.find(|node| port(node) != port(old)).unwrap();
    cluster.migrate_slot(slot, target);
    assert_eq!(port(cluster.node_of_slot(slot)), port(target));
    for key in &keys {
        assert_eq!(target.cli(&["GET", key]), *key);
        let moved = old.reply(&["GET", key]);
        assert_eq!(
            error(&moved),
            format!("MOVED {slot} 127.0.0.1:{}", port(target))
        );
    }
    // And back again.
    cluster.migrate_slot(slot, old);
    assert_eq!(old.cli(&["DBSIZE"]), "250");
    assert_eq!(target.cli(&["DBSIZE"]), "0");
}

#[test]
fn a_migrating_slot_answers_for_its_keys_and_redirects_the_rest() {
    let cluster = ClusterSetup::builder()
        .nodes(|node| node.password("p@ss"))
        .start();
    let (slot, source) = (cluster.slot_of("{k}"), cluster.primary_of("{k}"));
    for key in ["{k}:1", "{k}:2", "{k}:3"] {
        source.cli(&["SET", key, key, "PX", "60000"]);
    }
    let mut nodes = cluster.nodes()[..3].iter();
    let target = nodes.find(|node| port(node) != port(source)).unwrap();
    let migration = cluster.begin_migration(slot, target);
    assert_eq!(port(migration.source()), port(source));
    assert_eq!(port(migration.target()), port(target));
    migration.move_key("{k}:2");
    let ask = format!("ASK {slot} 127.0.0.1:{}", port(target));
    for gone in ["{k}:2", "{k}:new"] {
        assert_eq!(error(&source.reply(&["GET", gone])), ask);
    }
    for here in ["{k}:1", "{k}:3"] {
        assert_eq!(source.cli(&["GET", here]), here);
    }
    let split = source.reply(&["MGET", "{k}:1", "{k}:2"]);
    // Redis 6.2 sends a client to the target here.
    let split = error(&split);
    assert!(split.starts_with("TRYAGAIN") || split == ask, "{split}");
    // The owner is still the source, and commands find their way.
    assert_eq!(port(cluster.node_of_slot(slot)), port(source));
    assert_eq!(cluster.cli("{k}", &["GET", "{k}:2"]), "{k}:2");
    assert_eq!(
        cluster.cli("{k}", &["SET", "{k}:new", "1", "PX", "60000"]),
        "OK"
    );
    assert_eq!(target.cli(&["DBSIZE"]), "2");
    // Time moves on both sides.
    assert_eq!(cluster.advance(Duration::from_secs(30), "{k}:"), 4);
    for key in ["{k}:1", "{k}:2"] {
        let left: u64 = cluster.cli("{k}", &["PTTL", key]).parse().unwrap();
        assert!((1..=30_000).contains(&left), "{key}: {left}");
    }
    assert_eq!(migration.move_keys(1), 1);
    assert_eq!(source.cli(&["DBSIZE"]), "1");
    migration.finish();
    assert_eq!(port(cluster.node_of_slot(slot)), port(target));
    assert_eq!(target.cli(&["DBSIZE"]), "4");
}

/// Two nodes that take a slot at the same moment claim it with the same epoch, and the node that resolves this takes
/// back a slot of the other one.
#[test]
fn slots_that_move_at_the_same_time_all_arrive() {
    let cluster = ClusterSetup::start();
    let primaries = &cluster.nodes()[..3];
    thread::scope(|scope| {
        for slot in [100, 6_000, 12_000] {
            let round = primaries.iter().cycle();
            let stops = round.skip_while(|node| port(node) != port(cluster.node_of_slot(slot)));
            let stops = stops.skip(1).take(12).collect::<Vec<_>>();
            let cluster = &cluster;
            scope.spawn(move || {
                for target in stops {
                    cluster.migrate_slot(slot, target);
                    assert_eq!(port(cluster.node_of_slot(slot)), port(target));
                }
            });
        }
    });
}

#[test]
fn time_moves_on_all_primaries() {
    let cluster = ClusterSetup::start();
    for number in 0..30 {
        let key = format!("k:{number}");
        let ttl = if number % 2 == 0 { "5000" } else { "60000" };
        cluster.cli(&key, &["SET", &key, "1", "PX", ttl]);
    }
    cluster.cli("other", &["SET", "other", "1", "PX", "5000"]);
    assert_eq!(cluster.advance(Duration::from_secs(10), "k:"), 30);
    let sizes = cluster.nodes()[..3]
        .iter()
        .map(|node| node.cli(&["DBSIZE"]));
    let sizes: Vec<usize> = sizes.map(|size| size.parse().unwrap()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 16);
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
}

#[test]
fn nodes_have_the_settings_that_were_asked_for() {
    let cluster = ClusterSetup::builder()
        .nodes(|node| {
            node.acl_user("app", "on >secret ~app:* +get +set")
                .acl_user("default", "off")
                .append_only_always()
        })
        .node_timeout(Duration::from_secs(3))
        .start();
    for node in cluster.nodes() {
        let mut client = RespConn::open(node.addr()).unwrap();
        let refused = client.command(&["GET", "app:1"]).unwrap();
        assert!(error(&refused).starts_with("NOAUTH"), "{refused}");
        let reply = client.command(&["AUTH", "app", "secret"]).unwrap();
        assert_eq!(reply.to_string(), "OK");
        assert_eq!(
            node.cli(&["CONFIG", "GET", "cluster-node-timeout"]),
            "cluster-node-timeout\n3000"
        );
    }
    write(&cluster, "app:1");
}
