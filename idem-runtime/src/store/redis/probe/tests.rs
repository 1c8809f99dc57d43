//! Findings about shortened server replies; the tests of `redis_faults` have real ones.

use redis::Value;

use super::server::{MissingRights, NoWrites, Rights, parse_version};
use super::*;
use crate::store::redis::Durability;

fn server(info: &str) -> Server {
    let mut server = Server::default();
    server.add_info(&Value::BulkString(info.replace('\n', "\r\n").into_bytes()));
    server
}

/// A server with these settings, whose user has all rights.
fn allowed(info: &str, settings: &[&str]) -> Server {
    let mut server = server(info);
    server.rights = Rights::Known(MissingRights {
        prefix: "idem".to_owned(),
        ..MissingRights::default()
    });
    let settings = settings
        .iter()
        .map(|text| Value::BulkString(text.as_bytes().to_vec()));
    server.add_pairs(Value::Array(settings.collect()));
    server
}

/// The warnings, each cut after its state.
fn warnings(server: &Server) -> Vec<String> {
    let warnings = Report::of_server(server.clone())
        .warnings(|_| true)
        .into_iter();
    let cut = warnings.map(|text| text.split("; ").next().unwrap().to_owned());
    cut.collect()
}

#[test]
fn facts_of_each_product_become_warnings() {
    let mut failing = allowed(
        include_str!("info/redis-8-2.txt"),
        &["save", "", "appendfsync", "always"],
    );
    failing.no_writes = Some(NoWrites::Disk);
    let mut later = failing.clone();
    later.no_writes = None;
    later.facts.remove("aof_last_write_status");
    let mut loading = server(include_str!("info/valkey-9-0.txt"));
    loading.rights = Rights::Unknown("LOADING".to_owned());
    let append_only = ["save", "3600 1", "appendfsync", "everysec"];
    let cases: [(&str, Server, &[&str]); 6] = [
        (
            "Redis 6.2.14, standalone",
            allowed(include_str!("info/redis-6-2.txt"), &append_only),
            &[],
        ),
        (
            "Redis 7.0.15, standalone",
            allowed(include_str!("info/redis-7-0.txt"), &[]),
            &[
                "Redis role: replica, and its link to the primary is down",
                "Redis disk: rdb_last_bgsave_status err",
                "Redis eviction: `allkeys-lru`, without effect: no `maxmemory`",
                "Redis persistence: aof_enabled 0",
            ],
        ),
        (
            "Redis 8.2.1, cluster",
            failing,
            &[
                "Redis writes: refuses writes, because it could not write its disk (MISCONF)",
                "Redis memory: 972.80M of 1.00G (94 %)",
                "Redis replicas: connected_slaves 1, wait_bgsave lag 0",
            ],
        ),
        (
            "Redis 8.2.1, cluster",
            later,
            &[
                "Redis memory: 972.80M of 1.00G (94 %)",
                "Redis replicas: connected_slaves 1, wait_bgsave lag 0",
            ],
        ),
        (
            "Valkey 8.1.3, standalone",
            allowed(include_str!("info/valkey-8-1.txt"), &["save", ""]),
            &["Redis persistence: aof_enabled 0, save \"\""],
        ),
        (
            "Valkey 9.0.0, cluster",
            loading,
            &[
                "Redis state: loading its data",
                "Redis eviction: `volatile-ttl`",
            ],
        ),
    ];
    for (fact, mut server, expected) in cases {
        server.clock_ahead_us = Some(0);
        assert_eq!(server.findings()[0].fact, fact);
        assert_eq!(warnings(&server), expected, "{fact}");
    }
}

#[test]
fn a_report_has_a_line_for_each_finding() {
    let settings = ["save", "", "appendfsync", "everysec"];
    let mut server = allowed(include_str!("info/redis-6-2.txt"), &settings);
    server.clock_ahead_us = Some(2_500_000);
    let report = Report::of_server(server).to_string();
    let lines: Vec<_> = report
        .lines()
        .map(|line| line.split("; ").next().unwrap())
        .collect();
    let expected = [
        "ok   version: Redis 6.2.14, standalone",
        "ok   role: primary",
        "ok   memory: 12.30M of 1.00G (1 %)",
        "ok   eviction: noeviction",
        "warn persistence: aof_enabled 1, appendfsync everysec, save \"\"",
        "ok   replicas: connected_slaves 2, online lag 0, online lag 1",
        "warn clock: 2.500 s ahead of this machine",
        "ok   rights: all that idem needs under `idem:`",
    ];
    assert_eq!(lines, expected, "{report}");
}

/// A loss costs a cache time only, and it refuses no claims.
#[test]
fn a_cache_warns_of_what_it_cannot_copy_and_of_no_loss() {
    let cache = |server: &Server| {
        let report = Report::of_server(server.clone());
        report.warnings(concerns_a_cache)
    };
    let [evicting, forgetting] = [
        allowed(include_str!("info/valkey-9-0.txt"), &[]),
        allowed(include_str!("info/valkey-8-1.txt"), &["save", ""]),
    ];
    for mut server in [evicting, forgetting] {
        server.facts.remove("loading");
        server.durability = Durability::Replicated(9);
        assert!(!warnings(&server).is_empty());
        assert_eq!(cache(&server), [""; 0]);
    }
    let replica = allowed(include_str!("info/redis-7-0.txt"), &[]);
    let mut full = allowed(include_str!("info/redis-8-2.txt"), &[]);
    full.facts.remove("aof_last_write_status");
    let mut loading = server(include_str!("info/valkey-9-0.txt"));
    loading.rights = Rights::Unknown("LOADING".to_owned());
    let mut lacking = full.clone();
    lacking.facts.remove("used_memory");
    lacking.rights = Rights::Known(MissingRights {
        prefix: "idem".to_owned(),
        needed: vec!["+set".to_owned()],
        ..MissingRights::default()
    });
    let mut refusing = lacking.clone();
    refusing.rights = Rights::Untried;
    let refusals = [
        NoWrites::OutOfMemory,
        NoWrites::Disk,
        NoWrites::TooFewReplicas,
        NoWrites::NoPrimary,
    ];
    let refusing = refusals.map(|why| Server {
        no_writes: Some(why),
        ..refusing.clone()
    });
    for server in [replica, full, loading, lacking].iter().chain(&refusing) {
        let warnings = cache(server);
        assert!(!warnings.is_empty(), "{server:?}");
        for warning in &warnings {
            let is_of_a_store = ["claim", "call", "run again", "guarantee"];
            let is_of_a_store = is_of_a_store.iter().any(|word| warning.contains(word));
            assert!(!is_of_a_store, "{warning}");
        }
    }
}

/// A user without INFO.
#[test]
fn settings_that_are_not_shown_are_a_warning() {
    let topics: Vec<_> = warnings(&Server::default())
        .iter()
        .map(|warning| warning.split(':').next().unwrap().to_owned())
        .collect();
    let expected = ["version", "role", "settings"];
    assert_eq!(topics, expected.map(|topic| format!("Redis {topic}")));
}

#[test]
fn hello_is_read_in_both_protocols_and_info_knows_valkey_better() {
    let texts = "server redis version 7.2.4 role replica mode standalone".split(' ');
    let texts = texts.map(|text| Value::BulkString(text.into()));
    let texts: Vec<_> = texts.collect();
    let (mut flat, mut map) = (Server::default(), Server::default());
    let pairs = texts
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    map.add_pairs(Value::Map(pairs.collect()));
    flat.add_pairs(Value::Array(texts));
    assert_eq!(flat, map);
    assert_eq!(flat.name(), "Redis 7.2.4");
    let role = (flat.role(), flat.mode());
    assert_eq!(role, (Some("replica"), Some("standalone")));
    let info = include_str!("info/valkey-8-1.txt");
    flat.add_info(&Value::SimpleString(info.to_owned()));
    assert_eq!(flat.name(), "Valkey 8.1.3");
    assert_eq!(flat.version(), Some((8, 1, 3)));
}

#[test]
fn versions_are_read_in_every_form() {
    assert_eq!(parse_version("7.0.15"), Some((7, 0, 15)));
    assert_eq!(parse_version("8.2-rc1"), Some((8, 2, 0)));
    assert_eq!(parse_version("6.2"), Some((6, 2, 0)));
    assert_eq!(parse_version("unstable"), None);
    let kvrocks = server("version:2.13.0\nredis_version:7.0.0\n");
    assert_eq!(kvrocks.version(), Some((7, 0, 0)));
}

#[test]
fn only_a_cluster_that_can_publishes_in_the_shard() {
    for (info, command) in [
        ("redis_version:7.0.0\nredis_mode:cluster\n", "SPUBLISH"),
        ("redis_version:6.2.9\nredis_mode:cluster\n", "PUBLISH"),
        ("redis_version:7.0.0\nredis_mode:standalone\n", "PUBLISH"),
        ("redis_mode:cluster\n", "PUBLISH"),
        ("redis_version:7.0.0\n", "PUBLISH"),
    ] {
        assert_eq!(server(info).publish(), command, "{info}");
    }
}

#[test]
fn a_server_without_the_guarantee_is_refused() {
    for (info, eviction, refusal) in [
        (
            "redis_version:6.0.16\n",
            true,
            "Redis 6.0.16, mode unknown; it is too old",
        ),
        ("redis_mode:sentinel\n", true, "a Sentinel keeps no records"),
        (EVICTING, false, "eviction: `volatile-lru`"),
        (EVICTING, true, ""),
        ("maxmemory:0\nmaxmemory_policy:volatile-lru\n", false, ""),
    ] {
        let said = Report::of_server(server(info)).refuse(eviction).err();
        let said = said.map(|error| error.to_string()).unwrap_or_default();
        let is_right = said.contains(refusal) && said.is_empty() == refusal.is_empty();
        assert!(is_right, "{info}: {said}");
    }
}

const EVICTING: &str = "maxmemory:100\nmaxmemory_policy:volatile-lru\n";

#[test]
fn a_right_saves_work_where_completions_are_scripts_with_declarations() {
    let saves = |info: &str, durability| {
        let mut server = server(info);
        server.durability = durability;
        ["+mget", "+rename"].map(|right| server.saves(right))
    };
    let alone = Durability::Acknowledged;
    for (info, expected) in [
        ("redis_version:7.0.0\nredis_mode:standalone\n", [true, true]),
        ("redis_version:7.0.0\nredis_mode:cluster\n", [false, true]),
        (
            "redis_version:6.2.9\nredis_mode:standalone\n",
            [false, false],
        ),
        ("server_name:redis\nredis_version:8.4.0\n", [false, false]),
    ] {
        assert_eq!(saves(info, alone), expected, "{info}");
    }
    let replicated = Durability::Replicated(1);
    assert_eq!(saves("redis_version:7.0.0\n", replicated), [false, false]);
}
