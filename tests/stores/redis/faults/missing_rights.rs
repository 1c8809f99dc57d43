//! The start-up check for users with few rights: it names each missing right, and has no side effects.

use std::collections::BTreeSet;

use crate::prelude::*;
use crate::start_up_report::{facts, healthy, store, user};

const PROBE: &str = include_str!("../../../../idem-runtime/src/store/redis/probe/probe.lua");

#[tokio::test]
async fn each_missing_right_is_named() {
    let rights = DOCUMENTED.split(' ').filter(|right| right.starts_with('+'));
    let server = healthy().start();
    for right in rights {
        let rules = format!("{} ", ample()).replace(&format!("{right} "), "");
        let url = user(&server, &rules);
        let store = store(&url).await;
        // Redis 7 permits `HELLO` to every user.
        if right == "+hello" {
            assert_eq!(store.warnings(), [""; 0]);
            continue;
        }
        let [warning] = store.warnings().try_into().expect(right);
        let (names, costs) = match right {
            "+info" => ("INFO is not allowed", "lets its body run again"),
            "+publish" | "+subscribe" | "+unsubscribe" => (right, "waiting calls poll"),
            _ => (right, "calls are refused"),
        };
        assert!(
            warning.contains(names) && warning.contains(costs),
            "{warning}"
        );
    }
    for (rules, saving) in [
        (DOCUMENTED.to_owned(), "+mget +rename"),
        (ample().replace(" +mget", ""), "+mget"),
    ] {
        let store = store(&user(&server, &rules)).await;
        let expected =
            format!("all that idem needs under `idem:`; `{saving}` would reduce the server's load");
        assert_eq!(facts(&store, "rights"), [expected]);
        assert_eq!(store.warnings(), [""; 0]);
    }
    // The check queries the rights of a user; only `INFO` and `EVAL` are executed.
    let log = server.cli(&["ACL", "LOG"]);
    let denied: BTreeSet<_> = objects(&log).collect();
    assert_eq!(denied, BTreeSet::from(["eval", "info"]), "{log}");
}

/// The documented rights, `+mget` and `+rename`.
fn ample() -> String {
    format!("{DOCUMENTED} +mget +rename")
}

/// The refused objects in the entries of an ACL log.
fn objects(log: &str) -> impl Iterator<Item = &str> {
    let mut lines = log.lines();
    std::iter::from_fn(move || {
        lines.find(|line| *line == "object")?;
        lines.next()
    })
}

#[tokio::test]
async fn keys_and_channels_out_of_reach_are_named() {
    let server = healthy().start();
    for (wrong, lacks) in [
        (
            ample().replace("~idem:*", "~other:*"),
            "lacks ~idem:* under `idem:`",
        ),
        (
            ample().replace("&idem:*", "resetchannels"),
            "lacks &idem:* +publish +subscribe",
        ),
        ("-@all +hello +info".to_owned(), "lacks +eval under `idem:`"),
        (
            ample().replace("~idem:*", "%R~idem:*"),
            "lacks +set +pexpire under `idem:`",
        ),
    ] {
        let store = store(&user(&server, &wrong)).await;
        assert_eq!(facts(&store, "rights"), [lacks]);
    }
    let url = user(&server, &ample().replace("idem:*", "shop:*"));
    let builder = patient(RedisStore::builder(&url)).checked_prefix("shop");
    let store = builder.connect().await.unwrap();
    assert_eq!(
        facts(&store, "rights"),
        ["all that idem needs under `shop:`"]
    );
    let warnings = self::store(&url).await.warnings();
    assert!(warnings[0].contains("checked_prefix"), "{warnings:?}");
}

#[tokio::test]
async fn in_a_cluster_the_rights_of_a_shard_are_looked_at() {
    let server = healthy().arg("--cluster-enabled", "yes").start();
    // The slot of the tag is served, and another is not.
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "1", "16383"]);
    until("the cluster has noticed", || {
        let told = server.cli(&["CLUSTER", "INFO"]);
        told.contains("cluster_slots_assigned:16383")
    })
    .await;
    let builder = patient(RedisStore::builder(server.url())).checked_prefix("{a}");
    let warnings = builder.connect().await.unwrap().warnings();
    assert!(warnings[0].contains("its cluster is down"), "{warnings:?}");
    server.cli(&["CLUSTER", "ADDSLOTS", "0"]);
    until("the cluster is up", || {
        let told = server.cli(&["CLUSTER", "INFO"]);
        told.contains("cluster_state:ok")
    })
    .await;
    assert_eq!(store(&server.url()).await.warnings(), [""; 0]);
    let url = user(&server, DOCUMENTED);
    // Without a map of the cluster there is no store.
    let (_, message) = refused(RedisStore::builder(&url)).await;
    assert!(message.contains("lacks a right"), "{message}");
    let user = |rights: &str| user(&server, &format!("{DOCUMENTED} +cluster|slots {rights}"));
    let lacks = [
        "lacks +asking under `idem:`",
        "lacks &idem:* +spublish +ssubscribe +sunsubscribe",
    ];
    let store = store(&user("")).await;
    assert_eq!(facts(&store, "rights"), lacks);
    let all = user("+asking +spublish +ssubscribe +sunsubscribe");
    assert_eq!(self::store(&all).await.warnings(), [""; 0]);
}

/// Rights that a server cannot report are tried, with the same outcome.
#[tokio::test]
async fn a_server_that_cannot_be_asked_is_tried() {
    let server = healthy().start();
    // Redis 6 has no such function.
    let older = PROBE.replacen(
        "redis.acl_check_cmd",
        "({pcall = redis.pcall}).acl_check_cmd",
        1,
    );
    assert_ne!(older, PROBE);
    // `MGET` and `RENAME` are not tried, because idem does not send them to such a server.
    let probe = |rules: &str, script: &str| {
        user(&server, rules);
        let mut app = server.connect();
        assert_eq!(
            app.command(&["AUTH", "app", PASSWORD]).unwrap().as_error(),
            None
        );
        let names = ["idem:probe", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"];
        let reply = app.command(&[&["EVAL", script, "0"], &names[..]].concat());
        let Reply::Array(parts) = reply.unwrap() else {
            panic!("the script answers with a list")
        };
        let parts = parts.iter().map(ToString::to_string);
        let is_untried = |part: &String| matches!(&**part, "MGET" | "RENAME");
        parts
            .filter(|part| script != PROBE || !is_untried(part))
            .collect::<Vec<_>>()
    };
    for right in [
        "+get",
        "+getrange",
        "+set",
        "+time",
        "+pttl",
        "+pexpire",
        "+strlen",
        "+exists",
        "+publish",
    ] {
        let rules = DOCUMENTED.replace(&format!("{right} "), "");
        let (asked, tried) = (probe(&rules, PROBE), probe(&rules, &older));
        assert_eq!((&*asked[0], &*tried[0]), ("asked", "tried"));
        assert_eq!(asked[3..], tried[3..], "{right}");
        assert_eq!(asked[3..], [right[1..].to_uppercase()]);
    }
    for rules in [
        DOCUMENTED.to_owned(),
        DOCUMENTED.replace("~idem:*", "~other:*"),
    ] {
        let (asked, tried) = (probe(&rules, PROBE), probe(&rules, &older));
        assert_eq!(asked[3..], tried[3..], "{rules}");
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for script in [PROBE, &older] {
        let told = probe(DOCUMENTED, script);
        assert!(told[1].starts_with("OOM"), "{told:?}");
        assert_eq!(told.len(), 3, "a full memory is no missing right: {told:?}");
    }
}
