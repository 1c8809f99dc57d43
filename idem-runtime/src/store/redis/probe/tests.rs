//! Reports and warnings of shortened server replies; the tests of `redis_faults` have real ones.

use redis::Value;

use super::acl::{MissingRights, NoWrites, Rights};
use super::info::parse_version;
use super::*;
use crate::store::redis::Durability;

fn server(info: &str) -> Server {
    let mut server = Server::default();
    server.info(&Value::BulkString(info.replace('\n', "\r\n").into_bytes()));
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
    server.settings(Value::Array(settings.collect()));
    server
}

#[track_caller]
fn assert_report(server: &Server, expected: &[&str]) {
    let report = server.to_string();
    assert_eq!(report.lines().collect::<Vec<_>>(), expected, "{report}");
}

#[test]
fn redis_6_2_with_replicas_and_an_append_only_file() {
    let settings = [
        "save",
        "3600 1 300 100",
        "appendfsync",
        "everysec",
        "min-replicas-to-write",
        "1",
    ];
    assert_report(
        &allowed(include_str!("info/redis-6-2.txt"), &settings),
        &[
            "Redis 6.2.14, standalone, primary",
            "  memory        12.2 MiB of 1.0 GiB, noeviction",
            "  persistence   append-only file (to disk once a second; a power loss can cost the \
             last one), snapshots",
            "  replicas      2: online (lag 0 s), online (lag 1 s); a write needs 1; a failover can \
             forget the last writes",
            "  rights        all that idem needs under `idem:`",
            "  warnings      none",
        ],
    );
}

#[test]
fn redis_7_0_without_a_primary_and_without_settings() {
    assert_report(
        &allowed(include_str!("info/redis-7-0.txt"), &[]),
        &[
            "Redis 7.0.15, standalone, replica",
            "  memory        895.4 KiB, no limit, allkeys-lru",
            "  persistence   no append-only file, whether snapshots is not told (the last failed)",
            "  replicas      this is one; its link to the primary is down",
            "  rights        all that idem needs under `idem:`",
            "  warnings      Redis has `maxmemory-policy allkeys-lru`, which will evict records as \
             soon as a `maxmemory` is set; set `noeviction`",
            "                this Redis is a replica, and its link to the primary is down: claims \
             are refused as long as it is read-only; connect to the primary",
            "                Redis has no append-only file: a crash forgets the claims and answers \
             since its last snapshot, if it makes any, and their bodies run again; set \
             `appendonly yes`",
            "                Redis could not write its last snapshot, and may soon refuse writes; \
             look at its disk and its log",
        ],
    );
}

#[test]
fn redis_8_2_in_a_cluster_with_a_failing_disk() {
    let mut server = allowed(
        include_str!("info/redis-8-2.txt"),
        &["save", "", "appendfsync", "always"],
    );
    server.no_writes = Some(NoWrites::Disk);
    assert_report(
        &server,
        &[
            "Redis 8.2.1, cluster, primary",
            "  memory        972.7 MiB of 1.0 GiB, noeviction",
            "  persistence   append-only file (on disk before each reply; the last write failed), \
             no snapshots",
            "  replicas      1: wait_bgsave; a failover can forget the last writes",
            "  rights        all that idem needs under `idem:`",
            "  warnings      Redis could not write its append-only file and refuses writes \
             (MISCONF): claims are refused until it can; look at its disk and its log",
        ],
    );
    // The same server a minute later.
    server.no_writes = None;
    server.persistence.append_failed = false;
    let warnings = server.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("uses 94 % of its `maxmemory`"),
        "{warnings:?}"
    );
}

#[test]
fn valkey_8_1_without_anything_on_disk() {
    assert_report(
        &allowed(include_str!("info/valkey-8-1.txt"), &["save", ""]),
        &[
            "Valkey 8.1.3, standalone, primary",
            "  memory        1.8 MiB, no limit, noeviction",
            "  persistence   no append-only file, no snapshots",
            "  replicas      none",
            "  rights        all that idem needs under `idem:`",
            "  warnings      Redis keeps nothing on disk: a restart forgets every claim and answer, \
             and their bodies run again; set `appendonly yes`",
        ],
    );
}

#[test]
fn valkey_9_0_that_evicts_while_it_loads() {
    let mut server = server(include_str!("info/valkey-9-0.txt"));
    assert!(server.refuse(false).is_err());
    server.rights = Rights::Unknown("LOADING".to_owned());
    assert_report(
        &server,
        &[
            "Valkey 9.0.0, cluster, primary",
            "  memory        1.8 MiB of 100.0 MiB, volatile-ttl",
            "  persistence   append-only file (how soon on disk is not told), whether snapshots is \
             not told; loading",
            "  replicas      6: online (lag 0 s), online (lag 1 s), online (lag 0 s), online (lag 1 \
             s), 2 more; a failover can forget the last writes",
            "  rights        not known (LOADING)",
            "  warnings      Redis evicts keys when its memory is full (`maxmemory-policy \
             volatile-ttl`): the guarantee ends there",
            "                Redis is loading its data: calls are refused until it has; wait, and \
             look at its log if it takes long",
        ],
    );
    assert_eq!(server.publish(), "SPUBLISH");
}

/// What it loses costs a cache time only, and it has no claims to refuse.
#[test]
fn a_cache_warns_of_what_it_cannot_copy_and_of_no_loss() {
    let [evicting, forgetting] = [
        allowed(include_str!("info/valkey-9-0.txt"), &[]),
        allowed(include_str!("info/valkey-8-1.txt"), &["save", ""]),
    ];
    for mut server in [evicting, forgetting] {
        server.persistence.loading = false;
        server.durability = Durability::Replicated(9);
        assert!(!server.warnings().is_empty());
        assert_eq!(server.warnings_as(Use::Cache), [""; 0]);
    }
    let replica = allowed(include_str!("info/redis-7-0.txt"), &[]);
    let mut full = allowed(include_str!("info/redis-8-2.txt"), &[]);
    full.persistence.append_failed = false;
    let mut loading = server(include_str!("info/valkey-9-0.txt"));
    loading.rights = Rights::Unknown("LOADING".to_owned());
    let mut lacking = full.clone();
    lacking.memory.used = None;
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
        let warnings = server.warnings_as(Use::Cache);
        assert!(!warnings.is_empty(), "{server}");
        for warning in &warnings {
            let is_of_a_store = ["claim", "call", "run again", "guarantee"];
            let is_of_a_store = is_of_a_store.iter().any(|word| warning.contains(word));
            assert!(!is_of_a_store, "{warning}");
        }
        assert!(warnings[0].contains("cop"), "{warnings:?}");
    }
}

#[test]
fn a_server_without_facts_is_unknown_line_by_line() {
    let report = Server::default().to_string();
    let mut lines = report.lines();
    assert_eq!(
        lines.next(),
        Some("Redis of unknown version, mode unknown, role unknown")
    );
    for name in ["memory", "persistence", "replicas"] {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("  {name:<13} unknown")), "{line}");
    }
    assert_eq!(lines.next(), Some("  rights        not tried"));
    assert_eq!(Server::default().warnings().len(), 2, "policy and version");
}

#[test]
fn hello_is_read_in_both_protocols_and_info_knows_valkey_better() {
    let texts = [
        "server",
        "redis",
        "version",
        "7.2.4",
        "role",
        "replica",
        "mode",
        "standalone",
    ];
    let texts = texts.map(|text| Value::BulkString(text.as_bytes().to_vec()));
    let mut flat = Server::default();
    flat.hello(Value::Array(texts.to_vec()));
    let pairs = texts
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    let mut map = Server::default();
    map.hello(Value::Map(pairs.collect()));
    assert_eq!(flat, map);
    assert_eq!(flat.name(), "Redis 7.2.4");
    assert_eq!(
        (flat.role(), flat.mode()),
        (Some("replica"), Some("standalone"))
    );
    flat.info(&Value::SimpleString(
        include_str!("info/valkey-8-1.txt").to_owned(),
    ));
    assert_eq!(flat.name(), "Valkey 8.1.3");
    assert_eq!(flat.version(), Some((8, 1, 3)));
}

#[test]
fn versions_are_read_in_every_form() {
    assert_eq!(parse_version("7.0.15"), Some((7, 0, 15)));
    assert_eq!(parse_version("8.2-rc1"), Some((8, 2, 0)));
    assert_eq!(parse_version("6.2"), Some((6, 2, 0)));
    assert_eq!(parse_version("unstable"), None);
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
fn an_evicting_server_is_refused_unless_allowed() {
    let evicting = server("maxmemory:100\nmaxmemory_policy:volatile-lru\n");
    let error = evicting.refuse(false).unwrap_err();
    assert!(error.to_string().contains("maxmemory-policy volatile-lru"));
    assert!(evicting.refuse(true).is_ok());
    assert!(evicting.warnings()[0].contains("guarantee ends"));
}

#[test]
fn a_policy_without_a_limit_is_only_warned_about() {
    let idle = server("redis_version:7.0.15\nmaxmemory:0\nmaxmemory_policy:allkeys-lru\n");
    assert!(idle.refuse(false).is_ok());
    assert_eq!(idle.warnings().len(), 1);
}

#[test]
fn an_old_server_is_refused() {
    let old = server("redis_version:6.0.16\n");
    let error = old.refuse(true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Redis 6.0.16 is too old; 6.2 or newer is needed"
    );
}

#[test]
fn a_sentinel_is_refused() {
    let error = server("redis_version:7.0.15\nredis_mode:sentinel\n").refuse(true);
    assert!(error.unwrap_err().to_string().contains("Sentinel"));
}

#[test]
fn missing_rights_are_reported_by_their_effect() {
    let mut server = allowed("redis_version:7.2.4\nmaxmemory_policy:noeviction\n", &[]);
    assert_eq!(server.warnings(), [""; 0]);
    let notifying = ["&idem:*", "+publish", "+subscribe"].map(str::to_owned);
    server.rights = Rights::Known(MissingRights {
        prefix: "idem".to_owned(),
        needed: vec!["+set".to_owned()],
        notifying: notifying.to_vec(),
        saving: Vec::new(),
        subscribing_untried: true,
    });
    let [needed, notifying] = server.warnings().try_into().unwrap();
    assert!(
        needed.contains("lacks +set for keys under `idem:`"),
        "{needed}"
    );
    assert!(
        notifying.contains("lacks &idem:* +publish +subscribe for channels"),
        "{notifying}"
    );
    let report = server.to_string();
    let line = "rights        lacks +set &idem:* +publish +subscribe; subscribing was not tried";
    assert!(report.contains(line), "{report}");
}

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
