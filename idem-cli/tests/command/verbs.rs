//! Every verb on a store: its text, its JSON, its exit code, and its effect on the next call.

use std::collections::BTreeSet;

use idem_runtime::claim::Acquired;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, ToKey};
use idem_runtime::step;
use idem_runtime::store::CompleteReply;
use serde_json::json;

use crate::answers;
use crate::filled::{PAY, PayError, REFUND, Receipt, Site, engine, receipt};

pub(crate) async fn all(site: Site) {
    let held = site.fill().await;
    doctor(&site);
    ls(&site);
    show(&site);
    stats(&site);
    unconfirmed(&site);
    resolve(&site).await;
    reset(&site).await;
    release(&site, held).await;
    why(&site).await;
    acts(&site).await;
    unknown_step(&site).await;
    labels(&site).await;
    answers::unlike_stored_ones(&site).await;
    answers::responses(&site).await;
    answers::derived_keys(&site).await;
    purge(&site).await;
}

/// Asserts that the parts are in the text, in this order.
#[track_caller]
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let place = rest.find(part);
        rest = &rest[place.unwrap_or_else(|| panic!("{part}: {text}"))..];
    }
}

/// A call whose first process is gone, and whose second attempt failed.
async fn why(site: &Site) {
    const WHY: &str = "payments.why";
    let why = |key: &str| site.done(format!("why {WHY} --key {key:?}"));
    let pay = async |key: &str, end| {
        let call = site.engine.operation(WHY).key(key);
        call.run(|_| async { end }).await
    };
    site.abandon(WHY, "o-7").await;
    in_order(&why("o-7"), &["did not end: its process died"]);
    for end in [Err(PayError::Down), Ok(receipt("r-7")), Err(PayError::Down)] {
        drop(pay("o-7", end).await);
    }
    let text = why("o-7");
    let expected = [
        "answered: every call gets the stored value",
        " 1. started ",
        "lapsed after ",
        " 2. started ",
        "system-error after ",
        " 3. started ",
        "value after ",
        "Each start after the first is explained",
    ];
    in_order(&text, &expected);
    let pid = format!("pid {}", std::process::id());
    assert_eq!(text.matches(&pid).count(), 2, "{text}");
    let document = site.json(format!(r#"why {WHY} --key "o-7""#));
    let history = document["history"].as_array().unwrap();
    let attempts: Vec<_> = history.iter().map(|event| &event["attempt"]).collect();
    let ends: Vec<_> = attempts.iter().map(|attempt| &attempt["end"]).collect();
    assert_eq!(ends, ["lapsed", "system-error", "value"]);
    assert_eq!(attempts[2]["process"]["pid"], std::process::id());
    // A call that succeeded at once.
    pay("o-8", Ok(receipt("r-8"))).await.unwrap();
    in_order(&why("o-8"), &["The body was started once"]);
    // The first body succeeds after its successor, whose outcome is unknown.
    let (key, header) = site.abandon(WHY, "o-6").await;
    drop(pay("o-6", Err(PayError::NoReply)).await);
    let late = [&header.encode()[..], br#"{"number":"r-6","cents":6}"#].concat();
    let reply = site.store.complete(&key, &late.into()).await.unwrap();
    assert_eq!(reply, CompleteReply::Stored { late: true });
    let expected = ["counts 2 attempts and remembers 1", "succeeded late"];
    in_order(&why("o-6"), &expected);
    // An operator resets answers, of calls with and without earlier attempts.
    for (key, answers) in [("o-7", 1), ("o-8", 1), ("o-8", 2)] {
        site.done(format!("reset {WHY} --yes --key {key:?}"));
        let again = pay(key, Ok(receipt("r-9"))).await;
        assert_eq!(again, Ok(receipt("r-9")));
        let text = why(key);
        assert_eq!(text.matches("value after ").count(), answers + 1, "{text}");
        let resets = text.matches("reset by the operator Zoë").count();
        assert_eq!(resets, answers, "{text}");
    }
}

/// What operators did, in the order of the history. Finds a change that leaves no trace, or that takes the traces away.
async fn acts(site: &Site) {
    const ACTS: &str = "payments.acts";
    let why = |key: &str, parts: &[&str]| {
        let text = site.done(format!("why {ACTS} --key {key:?}"));
        in_order(&text, parts);
        for invented in ["remembers", "No attempt", "ago"] {
            assert!(!text.contains(invented), "{text}");
        }
    };
    let change = |verb: &str, key: &str| {
        site.done(format!("{verb} {ACTS} --yes --key {key:?}"));
    };
    let pay = async |key: &str, end| {
        let call = engine(&site.store).operation(ACTS).key(key);
        drop(call.run(|_| async { end }).await);
    };
    let pid = format!("pid {}", std::process::id());
    // The claim of a living process, and one whose outcome is not known; each with a second start.
    let held = site.engine.operation(ACTS).key("held").begin();
    let held = held.await.unwrap();
    change("release --force --reason 'stuck for an hour'", "held");
    let mut released = vec![
        " 1. started ",
        &pid,
        "ended-by-operator after ",
        "release by the operator Zoë 20",
        "reason: stuck for an hour",
    ];
    why("held", &released);
    pay("held", Ok(receipt("r-1"))).await;
    released.extend([" 2. started ", "value after "]);
    why("held", &released);
    drop(held);
    pay("unknown", Err(PayError::NoReply)).await;
    change("reset --reason 'the bank has no such payment'", "unknown");
    pay("unknown", Err(PayError::NoReply)).await;
    change(r#"resolve --value {"number":"r-2","cents":2}"#, "unknown");
    change(r#"resolve --unchecked --error "Down""#, "unknown");
    let twice = [
        " 1. started ",
        "unknown after ",
        "reset by the operator Zoë",
        "reason: the bank has no such payment",
        " 2. started ",
        "unknown after ",
        "resolve by the operator Zoë",
        "resolve-error by the operator Zoë",
    ];
    why("unknown", &twice);
    let history = site.json(format!(r#"why {ACTS} --key "unknown""#))["history"].take();
    let act = &history[1]["act"];
    assert_eq!(
        (&act["verb"], &act["operator"]),
        (&json!("reset"), &json!("Zoë"))
    );
    assert_eq!(act["reason"], "the bank has no such payment");
    // An answer, and a record of it that is removed; a call comes within its last 10 seconds.
    pay("answered", Ok(receipt("r-3"))).await;
    change("reset --drop-steps", "answered");
    let purged = site.json(format!("purge {ACTS} --yes --reason moved"));
    assert_eq!(purged["changed"], 0);
    pay("answered", Ok(receipt("r-4"))).await;
    let expected = ["purge by the operator Zoë", "reason: moved", " 1. started "];
    why("answered", &expected);
}

/// An order whose charge is unknown, and whose mail was sent. Finds a reset that leads to the same refusal.
async fn unknown_step(site: &Site) {
    const ORDER: &str = "payments.order";
    let pay = async |key: &str, charged: Result<Receipt, PayError>| {
        let call = site.engine.operation(ORDER).key(key).run(|_| async {
            let mailed = step("mail", async |_| Ok::<_, PayError>(receipt("mail")));
            mailed.await?;
            step("charge", async |_| charged).await
        });
        call.await
    };
    let no_reply = || Err(PayError::NoReply);
    assert_eq!(pay("o-1", no_reply()).await, no_reply());
    let show = |key: &str| site.done(format!("show {ORDER} --key {key:?}"));
    let why = |key: &str| site.done(format!("why {ORDER} --key {key:?}"));
    let reset = |how: &str, key| site.idem(format!("reset {ORDER} --yes --key {key:?} {how}"));
    in_order(&show("o-1"), &["idem reset --done STEP=JSON"]);
    for (how, refused) in [
        ("", "the step `charge` happened"),
        ("--not-done mail", "the step `charge` happened"),
        (
            "--not-done mail --not-done charge",
            "no step `mail` whose outcome is not known",
        ),
        ("--not-done ship", "no step `ship`; it has `charge`, `mail`"),
    ] {
        reset(how, "o-1").refused(1, refused);
    }
    // As a hook would, but there is none.
    reset("--reconciled", "o-1").done();
    let again = pay("o-1", Ok(receipt("r-1"))).await;
    assert!(matches!(again, Err(PayError::Idem(_))));
    reset("--not-done charge", "o-1").done();
    assert_eq!(pay("o-1", Ok(receipt("r-1"))).await, Ok(receipt("r-1")));
    in_order(&why("o-1"), &["steps: charge did not happen"]);
    // The charge of another order happened.
    assert_eq!(pay("o-2", no_reply()).await, no_reply());
    reset("--done charge=r-2", "o-2").refused(2, "is not JSON");
    reset("--done charge", "o-2").refused(2, "its value as JSON");
    reset("--done mail=1", "o-2").refused(1, "the step `charge` happened");
    reset(r#"--done charge={"number":"r-2","cents":1250}"#, "o-2").done();
    in_order(&show("o-2"), &["charge: finished"]);
    assert_eq!(pay("o-2", Err(PayError::Down)).await, Ok(receipt("r-2")));
    in_order(&why("o-2"), &["steps: charge happened"]);
}

/// The labels of calls that did not succeed at once.
async fn labels(site: &Site) {
    const LABELLED: &str = "payments.labelled";
    let text = site.done("ls");
    assert!(!text.contains("LABEL"), "no record has one: {text}");
    let ends = [
        ("o-1", Some("order …0001"), Err(PayError::NoReply)),
        ("o-2", Some("order …0002"), Err(PayError::Down)),
        ("o-2", None, Ok(receipt("r-2"))),
        ("o-3", Some("order …0003"), Err(PayError::Down)),
        ("o-4", Some("order …0004"), Ok(receipt("r-4"))),
        ("o-5", None, Err(PayError::Down)),
    ];
    for (key, label, end) in ends {
        let call = site.engine.operation(LABELLED).key(key);
        let call = match label {
            Some(label) => call.label(label),
            None => call,
        };
        drop(call.run(|_| async { end }).await);
    }
    let text = site.done(format!("ls {LABELLED}"));
    let rows: Vec<_> = text.lines().collect();
    in_order(rows[0], &["DIGEST", "LABEL"]);
    let row = |part: &str, state: &str| {
        let rows: Vec<_> = rows.iter().filter(|row| row.contains(part)).collect();
        assert!(
            matches!(rows[..], [row] if row.contains(state)),
            "{part}: {text}"
        );
    };
    row("order …0001", "unknown");
    row("order …0003", "released");
    // A listing does not read answers.
    assert_eq!(text.matches("order …").count(), 2, "{text}");
    let entries = |line: String| site.json(line)["entries"].take();
    let labels = |line| -> BTreeSet<String> {
        let entries = entries(line);
        let entries = entries.as_array().unwrap().iter();
        let labels = entries.filter_map(|entry| entry["label"].as_str());
        labels.map(str::to_owned).collect()
    };
    let expected = ["order …0001", "order …0003"].map(str::to_owned);
    assert_eq!(labels(format!("ls {LABELLED}")), expected.into());
    // One with an answer is read for it.
    let found = labels(format!("ls {LABELLED} --label 0002"));
    assert_eq!(found, ["order …0002".to_owned()].into());
    in_order(&site.done("ls --label 0007"), &["no such records"]);
    let ages = |line: &str| -> Vec<u64> {
        let entries = entries(line.to_owned());
        let entries = entries.as_array().unwrap().iter();
        entries
            .map(|entry| entry["age_ms"].as_u64().unwrap())
            .collect()
    };
    let all = ages("ls --oldest");
    assert!(all.len() > 10 && all.is_sorted_by(|a, b| a >= b), "{all:?}");
    // They have aged since.
    let oldest = ages("ls --oldest --limit 2");
    assert_eq!(oldest.len(), 2);
    assert!(oldest[0] >= all[0] && oldest[1] >= all[1], "{oldest:?}");
    for (key, label) in [
        ("o-1", Some("order …0001")),
        ("o-2", Some("order …0002")),
        ("o-3", Some("order …0003")),
        ("o-4", None),
        ("o-5", None),
    ] {
        for verb in ["show", "why"] {
            let line = format!("{verb} {LABELLED} --key {key:?}");
            let text = site.done(&line);
            let document = site.json(line);
            assert_eq!(document["label"].as_str(), label, "{document:#}");
            match label {
                Some(label) => assert!(text.contains(label), "{text}"),
                None => assert!(!text.contains("order …"), "{text}"),
            }
        }
    }
}

fn digest<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    let digest = KeyBuilder::new(PAY, DEFAULT_MAX_KEY_BYTES).key(key);
    digest.unwrap()
}

fn doctor(site: &Site) {
    let text = site.done("doctor");
    in_order(&text, &["latency", "listing", "the guarantee holds"]);
    let document = site.json("doctor");
    assert_eq!(document["fail"], 0, "{document:#}");
    assert!(document["ok"].as_u64().unwrap() >= 5, "{document:#}");
}

/// The digests of a listing, page by page.
fn listed(site: &Site, filters: &str) -> BTreeSet<String> {
    let (mut digests, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = site.json(format!("ls {filters} {after}"));
        let entries = page["entries"].as_array().unwrap().iter();
        digests.extend(entries.map(|entry| entry["digest"].as_str().unwrap().to_owned()));
        match page["cursor"].as_str() {
            Some(next) => after = format!("--after {next}"),
            None => return digests,
        }
    }
}

fn ls(site: &Site) {
    let text = site.done("ls");
    for part in ["OPERATION", PAY, REFUND] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for state in [
        "running",
        "abandoned",
        "unknown",
        "answered",
        "error",
        "released",
    ] {
        assert!(text.contains(state), "{state}: {text}");
    }
    let whole = listed(site, "");
    assert_eq!(whole.len(), 10);
    assert_eq!(listed(site, "--limit 2"), whole);
    let unknown = listed(site, "payments.pay --state unknown");
    assert_eq!(unknown.len(), 4);
    assert!(unknown.contains(&digest("o-3").to_string()));
    for (filters, key) in [
        ("payments.pay --state error", "o-2"),
        ("--max-attempts 1 --state exhausted", "o-gone"),
    ] {
        assert_eq!(listed(site, filters), [digest(key).to_string()].into());
    }
    for (filters, count) in [
        ("payments.pay --state answered", 2),
        ("payments.pay --state pending", 1),
        (REFUND, 1),
        ("--older-than 1h", 0),
    ] {
        assert_eq!(listed(site, filters).len(), count, "{filters}");
    }
    site.idem("ls --older-than soon").refused(2, "no duration");
    site.idem("ls --after nonsense").refused(2, "cursor");
}

fn show(site: &Site) {
    for (key, of) in [
        (r#""o-3""#, digest("o-3")),
        (r#"["m-1",7]"#, digest(&("m-1", 7_u32))),
    ] {
        let shown = site.json(format!("show payments.pay --key {key}"));
        assert_eq!(shown["digest"], of.to_string());
        assert_eq!(shown["state"], "unknown");
    }
    let scoped = site.json(r#"show payments.pay --scope "tenant-7" --key "o-1""#);
    assert_eq!(scoped["state"], "unknown");
    let known = digest("o-1");
    let bytes = known.as_bytes().iter();
    let hex = bytes.fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    for digest in [known.to_string(), hex.to_uppercase(), hex] {
        let shown = site.done(format!("show payments.pay --digest {digest}"));
        assert!(shown.contains("not shown without --value"), "{shown}");
        assert!(!shown.contains("r-1"), "{shown}");
        let shown = site.json(format!("show payments.pay --value --digest {digest}"));
        assert_eq!(shown["answer"], json!({ "number": "r-1", "cents": 1_250 }));
    }
    let stepped = site.done(r#"show payments.pay --key "o-steps""#);
    assert!(stepped.contains("charge: finished"), "{stepped}");
    assert!(!stepped.contains("r-9"), "{stepped}");
    let missing = site.idem(r#"show payments.pay --key "o-99""#);
    missing.refused(1, &digest("o-99").to_string());
    for (key, refused) in [
        ("--key o-1", "is not JSON"),
        ("--key 1.5", "--digest"),
        ("--digest xyz", "43 characters"),
        ("", "--key"),
    ] {
        site.idem(format!("show payments.pay {key}"))
            .refused(2, refused);
    }
}

fn stats(site: &Site) {
    site.shows("stats", "total");
    let document = site.json("stats");
    let mut operations = document["operations"].as_array().unwrap().iter();
    let pay = operations
        .find(|counts| counts["operation"] == PAY)
        .unwrap();
    let expected = json!({
        "records": 9, "running": 1, "abandoned": 1, "exhausted": 0, "released": 1, "values": 1, "errors": 1,
        "not_stored": 0, "unknown": 4,
    });
    for (name, number) in expected.as_object().unwrap() {
        assert_eq!(&pay[name], number, "{name}: {pay:#}");
    }
    assert_eq!(document["total"]["records"], 10);
}

/// Without a terminal and `--yes` nothing is changed.
fn unconfirmed(site: &Site) {
    for line in [
        r#"resolve payments.pay --key "o-3" --unchecked --value 1"#,
        r#"reset payments.pay --key "o-3""#,
        "purge payments.pay",
        r#"release payments.pay --key "o-gone""#,
    ] {
        site.idem(line).refused(2, "--yes");
    }
    let total = site.json("stats")["total"].take();
    assert_eq!(
        (&total["unknown"], &total["records"]),
        (&json!(4), &json!(10))
    );
}

async fn resolve(site: &Site) {
    let value = serde_json::to_string(&receipt("r-3")).unwrap();
    let resolve = |key: &str, answer: &str| {
        site.idem(format!("resolve payments.pay --key {key:?} --yes {answer}"))
    };
    let text = resolve("o-3", &format!("--value {value}")).done();
    assert!(text.contains("state now answered"), "{text}");
    let replayed = site.pay("o-3", Err(PayError::Down)).await;
    assert_eq!(replayed, Ok(receipt("r-3")));
    // An answer by hand may be corrected, that of a body is not.
    let error = r#"--error '{"Declined": {"reason": "refused at the bank"}}'"#;
    let corrected = resolve("o-3", &format!("{error} --json"));
    assert_eq!(corrected.json()["after"]["state"], "error");
    let long = "x".repeat(257);
    for (key, answer, code, refused) in [
        (
            "o-1",
            format!("--value {value}"),
            1,
            "which its body has written",
        ),
        ("o-3", "--value r-3".to_owned(), 2, "not JSON"),
        (
            "o-3",
            format!("--reason {long} --value {value}"),
            2,
            "257 bytes",
        ),
        ("o-run", format!("--value {value}"), 1, "idem release"),
    ] {
        resolve(key, &answer).refused(code, refused);
    }
    resolve("o-5", error).done();
    let replayed = site.pay("o-5", Ok(receipt("r-5"))).await;
    assert!(
        matches!(replayed, Err(PayError::Declined { .. })),
        "{replayed:?}"
    );
}

async fn reset(site: &Site) {
    site.shows(
        r#"reset payments.pay --key ["m-1",7] --yes"#,
        "as a first attempt",
    );
    let ran = site.pay(&("m-1", 7_u32), Ok(receipt("r-7"))).await;
    assert_eq!(ran, Ok(receipt("r-7")));
    for (drop_steps, left) in [("", 1), ("--drop-steps", 0)] {
        site.done(format!(
            r#"reset payments.pay --key "o-steps" --yes {drop_steps}"#
        ));
        let shown = site.done(r#"show payments.pay --key "o-steps""#);
        assert_eq!(shown.matches("charge").count(), left, "{shown}");
    }
}

async fn release(site: &Site, held: Acquired) {
    let release = |key: &str| site.idem(format!("release payments.pay --yes --key {key}"));
    release(r#""o-run""#).refused(1, "--force");
    let document = release(r#""o-run" --force --json"#).json();
    assert_eq!(document["before"]["state"], "running");
    assert_eq!(document["after"]["state"], "released");
    // In the process of the first owner a call would wait for it.
    let call = engine(&site.store).operation(PAY).key("o-run");
    let ran = call.run(|_| async { Ok::<_, PayError>(receipt("r-run")) });
    assert_eq!(ran.await, Ok(receipt("r-run")));
    // The first owner comes back, and changes nothing.
    drop(held);
    let replayed = site.pay("o-run", Err(PayError::Down)).await;
    assert_eq!(replayed, Ok(receipt("r-run")));
    assert!(release(r#""o-gone""#).done().contains("released"));
    release(r#""o-1""#).refused(1, "no claim is held or abandoned");
}

async fn purge(site: &Site) {
    let late = site.pay("o-late", Err(PayError::NoReply)).await;
    late.unwrap_err();
    site.shows("purge payments.refund --dry-run", "1 record of");
    let old = site.json("purge payments.refund --older-than 1h --yes");
    assert_eq!(old["removed"], 0);
    site.shows("purge payments.refund --yes", "1 record removed");
    // What is unfinished stays, unless it is named.
    assert_eq!(site.json("purge payments.pay --yes")["changed"], 0);
    let left = site.json("stats payments.pay");
    assert_eq!(left["total"]["values"], 0, "{left:#}");
    assert_eq!(left["total"]["unknown"], 2, "{left:#}");
    let unknown = site.json("purge payments.pay --state unknown --yes");
    assert_eq!(unknown["removed"], 2);
    let ran = site.pay("o-late", Ok(receipt("r-late"))).await;
    assert_eq!(ran, Ok(receipt("r-late")));
    let expired = site.done("purge --expired --yes");
    assert!(
        expired.contains("deleted") || expired.contains("nothing to do"),
        "{expired}"
    );
}
