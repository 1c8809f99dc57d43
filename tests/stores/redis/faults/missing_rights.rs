//! The start-up check for users with few rights: it names each missing right, and has no side effects.

use std::collections::BTreeSet;

use idem_tests::shop::{assert_starts, cluster_is_up};

use crate::prelude::*;
use crate::start_up_report::{facts, healthy, store, user};

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
            _ => (right, "what needs them is refused"),
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
    for (right, other, lacks) in [
        ("~idem:*", "~other:*", "lacks ~idem:* under `idem:`"),
        ("~idem:*", "%R~idem:*", "lacks +set +pexpire under `idem:`"),
        (
            "&idem:*",
            "resetchannels",
            "lacks &idem:* +publish +subscribe",
        ),
    ] {
        let store = store(&user(&server, &ample().replace(right, other))).await;
        assert_eq!(facts(&store, "rights"), [lacks]);
    }
    let url = user(&server, &ample().replace("idem:*", "shop:*"));
    let builder = patient(RedisStore::builder(&url)).checked_prefix("shop");
    assert_eq!(builder.connect().await.unwrap().warnings(), [""; 0]);
    let warnings = store(&url).await.warnings();
    assert!(warnings[0].contains("checked_prefix"), "{warnings:?}");
}

#[tokio::test]
async fn in_a_cluster_the_rights_of_a_shard_are_looked_at() {
    let server = healthy().arg("--cluster-enabled", "yes").start();
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    cluster_is_up(&server).await;
    assert_eq!(store(&server.url()).await.warnings(), [""; 0]);
    let user = |rights: &str| user(&server, &format!("{DOCUMENTED} +cluster|slots {rights}"));
    let lacks = [
        "lacks +asking under `idem:`",
        "lacks &idem:* +spublish +ssubscribe +sunsubscribe",
    ];
    assert_eq!(facts(&store(&user("")).await, "rights"), lacks);
    let all = user("+asking +spublish +ssubscribe +sunsubscribe");
    assert_eq!(store(&all).await.warnings(), [""; 0]);
}

/// Redis 6 has no function that reports rights: they are tried, with the same outcome.
#[tokio::test]
async fn a_server_that_cannot_be_asked_is_tried() {
    let server = healthy().version(Edition::Redis62).start();
    let warnings = async |rules: &str| store(&user(&server, rules)).await.warnings();
    let tried = "+get +getrange +set +time +pttl +pexpire +strlen +exists +publish";
    for right in tried.split(' ') {
        let rules = DOCUMENTED.replace(&format!("{right} "), "");
        let [warning] = warnings(&rules).await.try_into().expect(right);
        let start = "Redis rights: lacks ";
        assert!(
            warning.starts_with(start) && warning.contains(right),
            "{warning}"
        );
    }
    let [warning] = warnings(&DOCUMENTED.replace("~idem:*", "~other:*"))
        .await
        .try_into()
        .unwrap();
    assert_starts(&warning, "Redis rights: lacks ~idem:* under `idem:`");
    assert_eq!(warnings(DOCUMENTED).await, [""; 0]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let [warning] = warnings(DOCUMENTED)
        .await
        .try_into()
        .expect("no missing right");
    assert_starts(&warning, "Redis writes: out of memory");
}
