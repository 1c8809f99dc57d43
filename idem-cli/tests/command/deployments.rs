//! The command over Sentinel, Cluster and TLS, with servers down.

use std::fs;
use std::sync::Arc;

use idem_harness::{
    Certificates, ClusterSetup, PostgresServer, RedisServer, RedisServerBuilder, SentinelSetup,
    TestDir,
};
use idem_runtime::store::redis::RedisStore;
use serde_json::Value;

use crate::command::{Ran, idem_with};
use crate::filled::{PAY, PREFIX, PayError, Site, receipt, redis};
use crate::verbs;

const PASSWORD: &str = "s3cr3t-of-the-store";
const SENTINEL_PASSWORD: &str = "an0ther-of-the-sentinels";

fn list(addrs: &[std::net::SocketAddr]) -> String {
    let hosts: Vec<_> = addrs.iter().map(ToString::to_string).collect();
    hosts.join(",")
}

/// Sentinels and servers with passwords, and their URL without them.
fn guarded_group() -> (SentinelSetup, String) {
    let group = SentinelSetup::builder()
        .servers(|server| server.password(PASSWORD))
        .sentinels(|sentinel| sentinel.password(SENTINEL_PASSWORD))
        .start();
    let hosts = list(&group.sentinel_addrs());
    let url = format!("redis+sentinel://{hosts}/{}", SentinelSetup::NAME);
    (group, url)
}

/// Runs the command with both passwords, and asserts that it prints neither.
fn silent(variables: &[(&str, &str)], line: &str) -> Ran {
    let prefix = [("IDEM_PREFIX", PREFIX)];
    let ran = idem_with(&[&prefix[..], variables].concat(), line);
    for secret in [PASSWORD, SENTINEL_PASSWORD] {
        assert!(!format!("{ran:?}").contains(secret), "{ran:?}");
    }
    ran
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_through_sentinels_before_and_after_a_failover() {
    let (group, url) = guarded_group();
    let store = RedisStore::builder(url.replace("://", &format!("://:{PASSWORD}@")))
        .sentinel_credentials(None, SENTINEL_PASSWORD);
    let store = redis(store).await;
    let site = Site::new(url, Arc::new(store)).with(&[
        ("IDEM_PASSWORD", PASSWORD),
        ("IDEM_SENTINEL_PASSWORD", SENTINEL_PASSWORD),
    ]);
    site.shows("doctor", "connected_slaves 2");
    for key in ["f-1", "f-2"] {
        site.pay(key, Err(PayError::NoReply)).await.unwrap_err();
    }
    site.pay("f-3", Ok(receipt("r-3"))).await.unwrap();
    // No replica lacks a record: the losses of a failover are not this test's subject.
    group.primary().cli(&["WAIT", "2", "10000"]);

    let old = group.kill_primary();
    let new = group.await_new_primary(old);
    assert_ne!(new.port(), old.port());

    let report = site.json("doctor");
    assert_eq!(report["fail"], 0, "{report:#}");
    for (line, part) in [
        ("ls", "unknown"),
        ("ls", "answered"),
        ("show --key \"f-1\"", "unknown"),
        ("why --key \"f-1\"", " 1. started "),
    ] {
        let text = site.done(format!("{line} {PAY}"));
        assert!(text.contains(part), "{text}");
    }
    let value = serde_json::to_string(&receipt("r-f-1")).unwrap();
    let resolve = format!("resolve {PAY} --key \"f-1\" --yes --unchecked --value {value}");
    site.shows(resolve, "state now answered");
    let counts = site.json("stats");
    assert_eq!(counts["total"]["records"], 3, "{counts:#}");
    let replayed = site.pay("f-1", Err(PayError::Down)).await;
    assert_eq!(replayed, Ok(receipt("r-f-1")));

    // All of the verbs on the new primary, while the old one is back as its replica.
    old.restart();
    group.await_replica(old);
    site.done(format!("purge {PAY} --state unknown --yes"));
    site.done(format!("purge {PAY} --yes"));
    new.cli(&["FLUSHALL"]);
    verbs::all(site).await;
}

#[test]
fn sentinels_that_do_not_help_are_named() {
    let (group, url) = guarded_group();
    let both = [
        ("IDEM_STORE", &*url),
        ("IDEM_PASSWORD", PASSWORD),
        ("IDEM_SENTINEL_PASSWORD", SENTINEL_PASSWORD),
    ];
    silent(&both, "ls").done();
    silent(&both[..2], "ls").refused(3, "IDEM_SENTINEL_PASSWORD");
    silent(&[both[0], both[2]], "ls").refused(3, "password");
    let wrong = format!("{SENTINEL_PASSWORD}-wrong");
    let wrong = [both[0], both[1], ("IDEM_SENTINEL_PASSWORD", &wrong)];
    silent(&wrong, "ls").refused(3, "sentinel");
    let other = url.replace(&format!("/{}", SentinelSetup::NAME), "/orders");
    let other = [("IDEM_STORE", &*other), both[1], both[2]];
    silent(&other, "ls").refused(3, "`orders`");
    let sentinel = format!("redis://{}", group.sentinel_addrs()[0]);
    let sentinel = [
        ("IDEM_STORE", &*sentinel),
        ("IDEM_PASSWORD", SENTINEL_PASSWORD),
    ];
    silent(&sentinel, "doctor").refused(3, "redis+sentinel://");

    // Two of three are enough, and so is one; none is not.
    group.sentinels()[0].kill();
    silent(&both, "doctor").done();
    group.sentinels()[1].kill();
    silent(&both, "stats").done();
    group.sentinels()[2].kill();
    silent(&both, "--timeout 1s doctor").refused(3, "sentinel");
}

/// The primary is down, and the sentinels have not yet elected another.
#[test]
fn a_primary_that_is_down_is_named_until_the_election() {
    let group = SentinelSetup::builder()
        .servers(|server| server.password(PASSWORD))
        .down_after(std::time::Duration::from_secs(600))
        .start();
    let hosts = list(&group.sentinel_addrs());
    let url = format!("redis+sentinel://{hosts}/{}", SentinelSetup::NAME);
    let store = [("IDEM_STORE", &*url), ("IDEM_PASSWORD", PASSWORD)];
    let primary = group.kill_primary();
    let ran = silent(&store, "--timeout 2s doctor");
    ran.refused(3, &primary.addr().to_string());
}

fn topics<'a>(report: &'a Value, topic: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["topic"] == topic)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_is_down_is_a_finding() {
    let cluster = ClusterSetup::builder()
        .nodes(|node| node.password(PASSWORD))
        // No failover while the node is down.
        .node_timeout(std::time::Duration::from_secs(600))
        .start();
    let url = format!("redis+cluster://{}", list(&cluster.addrs()));
    let store = RedisStore::builder(url.replace("://", &format!("://:{PASSWORD}@")));
    let site = Site::new(url, Arc::new(redis(store).await));
    let site = site.with(&[("IDEM_PASSWORD", PASSWORD)]);
    let whole = site.json("doctor");
    assert_eq!(whole["fail"], 0, "{whole:#}");
    assert_eq!(topics(&whole, "version").len(), 3, "{whole:#}");
    // Enough keys that each node has some.
    let keys: Vec<_> = (0..40).map(|number| format!("o-{number}")).collect();
    for key in &keys {
        site.pay(key, Ok(receipt("r"))).await.unwrap();
    }

    let down = &cluster.nodes()[0];
    down.kill();
    let ran = site.idem("--timeout 2s doctor");
    assert_eq!(ran.code, 1, "{ran:?}");
    let ran = site.idem("--timeout 2s doctor --json");
    assert_eq!(ran.code, 1, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let [node] = topics(&report, "node")[..] else {
        panic!("one node is down: {report:#}");
    };
    assert_eq!(node["level"], "fail", "{node:#}");
    assert_eq!(node["node"], down.addr().to_string(), "{node:#}");
    assert_eq!(topics(&report, "version").len(), 2, "{report:#}");

    // Records of the other nodes can be shown, and a listing that would lack some is refused.
    let codes = keys.iter().map(|key| {
        let ran = site.idem(format!("--timeout 2s show {PAY} --key {key:?}"));
        if ran.code != 0 {
            assert!(!ran.err.contains("claim"), "{ran:?}");
            ran.refused(3, &down.addr().to_string());
            return 3;
        }
        0
    });
    let codes: Vec<_> = codes.collect();
    assert!(codes.contains(&0) && codes.contains(&3), "{codes:?}");
    for verb in ["ls", "stats", "purge payments.pay --yes"] {
        let ran = site.idem(format!("--timeout 2s {verb}"));
        ran.refused(3, &down.addr().to_string());
    }
}

/// A file of an authority or a client.
fn write(dir: &TestDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn server(set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder) -> RedisServer {
    set(RedisServer::builder().password(PASSWORD)).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_over_tls() {
    let server = server(RedisServerBuilder::tls);
    let dir = TestDir::new("command-tls").unwrap();
    let ca = write(&dir, "ca.pem", server.certificates().ca_pem());
    let store = RedisStore::builder(server.tls_url());
    let store = redis(store.root_certificate(server.certificates().ca_pem())).await;
    let url = format!("rediss://{}", server.tls_addr());
    let site = Site::new(url, Arc::new(store));
    let site = site.with(&[("IDEM_PASSWORD", PASSWORD), ("IDEM_CA", &ca)]);
    verbs::all(site).await;
}

#[test]
fn what_is_wrong_with_tls_is_named() {
    let server = server(RedisServerBuilder::tls);
    let dir = TestDir::new("command-tls").unwrap();
    let ca = write(&dir, "ca.pem", server.certificates().ca_pem());
    let other = write(&dir, "other.pem", Certificates::new().ca_pem());
    let text = write(&dir, "text.pem", "no certificate");
    let missing = dir.path().join("missing.pem").display().to_string();
    let url = format!("rediss://{}", server.tls_addr());
    let store = [("IDEM_STORE", &*url), ("IDEM_PASSWORD", PASSWORD)];
    silent(&store, &format!("--ca {ca} ls")).done();
    silent(&store, "doctor").refused(3, "--ca");
    for (ca, code, says) in [
        (&other, 3, "--ca"),
        (&text, 3, "no PEM of a certificate"),
        (&missing, 2, "missing.pem"),
    ] {
        silent(&store, &format!("--ca {ca} doctor")).refused(code, says);
    }

    let plain = format!("rediss://{}", server.addr());
    let plain = [("IDEM_STORE", &*plain), ("IDEM_PASSWORD", PASSWORD)];
    let ran = silent(&plain, &format!("--timeout 2s --ca {ca} doctor"));
    ran.refused(3, "`redis://`");
    let without = format!("redis://{}", server.tls_addr());
    let without = [("IDEM_STORE", &*without), ("IDEM_PASSWORD", PASSWORD)];
    silent(&without, "--timeout 2s doctor").refused(3, "`rediss://`");
}

/// The tests are built without sqlx's TLS; their servers have none.
#[test]
fn tls_to_a_database_names_the_feature() {
    let server = PostgresServer::start();
    let url = format!("{}?sslmode=require", server.url());
    let ran = silent(&[("IDEM_STORE", &url)], "--timeout 2s doctor");
    ran.refused(3, "sqlx/tls-rustls-ring");
    // Those of Redis would be ignored.
    let ran = silent(&[("IDEM_STORE", &url), ("IDEM_CA", "ca.pem")], "doctor");
    ran.refused(2, "sslrootcert");
}

#[test]
fn a_certificate_of_the_client_is_presented() {
    let server = server(RedisServerBuilder::tls_client_auth);
    let certificates = server.certificates();
    let dir = TestDir::new("command-tls").unwrap();
    let ca = write(&dir, "ca.pem", certificates.ca_pem());
    let cert = write(&dir, "client.pem", certificates.client_cert_pem());
    let key = write(&dir, "client.key", certificates.client_key_pem());
    let url = format!("rediss://{}", server.tls_addr());
    let store = [
        ("IDEM_STORE", &*url),
        ("IDEM_PASSWORD", PASSWORD),
        ("IDEM_CA", &ca),
    ];
    silent(&store, &format!("--cert {cert} --cert-key {key} doctor")).done();
    silent(&store, "doctor").refused(3, "--cert");
    silent(&store, &format!("--cert {cert} doctor")).refused(2, "--cert-key");
    let strange = Certificates::new();
    let cert = write(&dir, "strange.pem", strange.client_cert_pem());
    let key = write(&dir, "strange.key", strange.client_key_pem());
    silent(&store, &format!("--cert {cert} --cert-key {key} doctor")).refused(3, "--cert");
}
