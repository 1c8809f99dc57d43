//! Findings of the doctor on servers with bad settings.

use idem_harness::{PostgresServer, RedisServer, TestDir};
use serde_json::Value;

use crate::command::idem_with;

/// The finding about this topic, and the exit code.
fn finding(url: &str, topic: &str) -> (Value, i32) {
    let ran = idem_with(&[], &format!("--store {url} doctor --json"));
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["topic"] == topic);
    let found = found.unwrap_or_else(|| panic!("{topic}: {document:#}"));
    (found.clone(), ran.code)
}

#[track_caller]
fn assert_found(url: &str, topic: &str, level: &str, remedy: &str) {
    let (finding, code) = finding(url, topic);
    assert_eq!(finding["level"], level, "{finding:#}");
    assert!(
        finding["remedy"].as_str().unwrap().contains(remedy),
        "{finding:#}"
    );
    assert_eq!(code, i32::from(level == "fail"), "{finding:#}");
}

#[test]
fn an_evicting_redis_fails() {
    let server = RedisServer::builder();
    let server = server.arg("--maxmemory", "100mb");
    let server = server.arg("--maxmemory-policy", "allkeys-lru").start();
    assert_found(&server.url(), "eviction", "fail", "noeviction");
}

#[test]
fn missing_rights_are_named() {
    let server = RedisServer::builder();
    let rules = "on >x ~idem:* &idem:* +@all -scan -@dangerous +info +evalsha +eval -pexpire";
    let server = server.acl_user("clerk", rules).start();
    let url = server.url_as("clerk", "x");
    assert_found(&url, "rights", "fail", "+pexpire");
    let (listing, _) = finding(&url, "listing");
    assert!(
        listing["remedy"].as_str().unwrap().contains("+scan"),
        "{listing:#}"
    );
}

#[test]
fn a_database_without_table_or_durable_commits_fails() {
    let server = PostgresServer::builder().durable().start();
    assert_found(&server.url(), "table", "fail", "migrate");
    server.execute("ALTER ROLE idem SET synchronous_commit = off");
    assert_found(
        &server.url(),
        "durability",
        "fail",
        "synchronous_commit = on",
    );
}

#[test]
fn a_file_that_is_missing_is_not_created() {
    let dir = TestDir::new("command").unwrap();
    let file = dir.path().join("none.db");
    let url = format!("sqlite://{}", file.display());
    idem_with(&[], &format!("--store {url} doctor")).refused(3, "there is no file");
    assert!(!file.exists());
}
