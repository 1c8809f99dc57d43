//! Every verb on a store: its text, its JSON, its exit code, and its effect on the next call.

use std::collections::BTreeSet;

use idem_runtime::claim::Acquired;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, ToKey};
use idem_runtime::step;
use idem_runtime::store::CompleteReply;
use serde_json::{Value, json};

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

/// A call whose first process is gone, and whose second attempt failed.
async fn why(site: &Site) {
    const WHY: &str = "payments.why";
    let of = ["--key", r#""o-7""#];
    site.abandon(WHY, "o-7").await;
    let text = site.idem(&[&["why", WHY], &of[..]].concat()).done();
    assert!(text.contains("did not end: its process died"), "{text}");
    let ends = [Err(PayError::Down), Ok(receipt("r-7")), Err(PayError::Down)];
    for end in ends {
        let call = site.engine.operation(WHY).key("o-7");
        drop(call.run(|_| async { end }).await);
    }
    let text = site.idem(&[&["why", WHY], &of[..]].concat()).done();
    let places = [
        "answered: every call gets the stored value",
        " 1. started ",
        "lapsed after ",
        " 2. started ",
        "system-error after ",
        " 3. started ",
        "value after ",
        "Each start after the first is explained",
    ]
    .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
    assert!(places.is_sorted(), "{text}");
    let pid = format!("pid {}", std::process::id());
    assert_eq!(text.matches(&pid).count(), 2, "{text}");
    let document = site
        .idem(&[&["--json", "why", WHY], &of[..]].concat())
        .json();
    let history = document["history"].as_array().unwrap();
    let attempts: Vec<_> = history.iter().map(|event| &event["attempt"]).collect();
    let ends: Vec<_> = attempts.iter().map(|attempt| &attempt["end"]).collect();
    assert_eq!(ends, ["lapsed", "system-error", "value"]);
    assert_eq!(attempts[2]["process"]["pid"], std::process::id());
    // A call that succeeded at once.
    let once = site.engine.operation(WHY).key("o-8");
    once.run(|_| async { Ok::<_, PayError>(receipt("r-8")) })
        .await
        .unwrap();
    let text = site.idem(&["why", WHY, "--key", r#""o-8""#]).done();
    assert!(text.contains("The body was started once"), "{text}");
    // The first body succeeds after its successor, whose outcome is unknown.
    let (key, header) = site.abandon(WHY, "o-6").await;
    let call = site.engine.operation(WHY).key("o-6");
    drop(
        call.run(|_| async { Err::<Receipt, _>(PayError::NoReply) })
            .await,
    );
    let late = [&header.encode()[..], br#"{"number":"r-6","cents":6}"#].concat();
    let reply = site.store.complete(&key, &late.into()).await.unwrap();
    assert!(
        matches!(reply, CompleteReply::Stored { late: true }),
        "{reply:?}"
    );
    let text = site.idem(&["why", WHY, "--key", r#""o-6""#]).done();
    assert!(text.contains("counts 2 attempts and remembers 1"), "{text}");
    assert!(text.contains("succeeded late"), "{text}");
    // An operator resets answers, of calls with and without earlier attempts.
    for (key, answers) in [("o-7", 1), ("o-8", 1), ("o-8", 2)] {
        let of = ["--key", &format!("{key:?}")];
        site.idem(&[&["reset", WHY, "--yes"], &of[..]].concat())
            .done();
        let call = site.engine.operation(WHY).key(key);
        let again = call.run(|_| async { Ok::<_, PayError>(receipt("r-9")) });
        assert_eq!(again.await, Ok(receipt("r-9")));
        let text = site.idem(&[&["why", WHY], &of[..]].concat()).done();
        assert_eq!(text.matches("value after ").count(), answers + 1, "{text}");
        assert_eq!(
            text.matches("reset by the operator Zoë").count(),
            answers,
            "{text}"
        );
    }
}

/// What operators did, in the order of the history. Finds a change that leaves no trace, or that takes the traces away.
async fn acts(site: &Site) {
    const ACTS: &str = "payments.acts";
    let why = |key: &str, parts: &[&str]| {
        let text = site.idem(&["why", ACTS, "--key", &format!("{key:?}")]);
        let text = text.done();
        let mut rest = &text[..];
        for part in parts {
            let place = rest.find(part);
            rest = &rest[place.unwrap_or_else(|| panic!("{part}: {text}"))..];
        }
        for invented in ["remembers", "No attempt", "ago"] {
            assert!(!text.contains(invented), "{text}");
        }
    };
    let change = |verb: &[&str], key: &str| {
        let of = [ACTS, "--yes", "--key", &format!("{key:?}")];
        site.idem(&[verb, &of[..]].concat()).done();
    };
    let pay = async |key: &str, end| {
        let call = engine(&site.store)
            .operation(ACTS)
            .key(key)
            .run(|_| async { end });
        drop(call.await);
    };
    let pid = format!("pid {}", std::process::id());
    // The claim of a living process, and one whose outcome is not known; each with a second start.
    let held = site
        .engine
        .operation(ACTS)
        .key("held")
        .begin()
        .await
        .unwrap();
    let stuck = ["--reason", "stuck for an hour"];
    change(&[&["release", "--force"], &stuck[..]].concat(), "held");
    let released = [
        " 1. started ",
        &pid,
        "ended-by-operator after ",
        "release by the operator Zoë 20",
        "reason: stuck for an hour",
    ];
    why("held", &released);
    pay("held", Ok(receipt("r-1"))).await;
    why(
        "held",
        &[&released[..], &[" 2. started ", "value after "]].concat(),
    );
    drop(held);
    pay("unknown", Err(PayError::NoReply)).await;
    change(
        &["reset", "--reason", "the bank has no such payment"],
        "unknown",
    );
    pay("unknown", Err(PayError::NoReply)).await;
    change(
        &["resolve", "--value", r#"{"number":"r-2","cents":2}"#],
        "unknown",
    );
    change(
        &["resolve", "--unchecked", "--error", r#""Down""#],
        "unknown",
    );
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
    let of = ["--json", "why", ACTS, "--key", r#""unknown""#];
    let history = site.idem(&of).json()["history"].take();
    let act = &history[1]["act"];
    assert_eq!(
        (&act["verb"], &act["operator"]),
        (&json!("reset"), &json!("Zoë"))
    );
    assert_eq!(act["reason"], "the bank has no such payment");
    // An answer, and a record of it that is removed; a call comes within its last 10 seconds.
    pay("answered", Ok(receipt("r-3"))).await;
    change(&["reset", "--drop-steps"], "answered");
    let purge = ["purge", ACTS, "--yes", "--reason", "moved"];
    assert_eq!(
        site.idem(&[&purge[..], &["--json"]].concat()).json()["changed"],
        0
    );
    pay("answered", Ok(receipt("r-4"))).await;
    why(
        "answered",
        &["purge by the operator Zoë", "reason: moved", " 1. started "],
    );
}

/// An order whose charge is unknown, and whose mail was sent. Finds a reset that leads to the same refusal.
async fn unknown_step(site: &Site) {
    const ORDER: &str = "payments.order";
    let pay_of = async |key: &str, charged: Result<Receipt, PayError>| {
        let call = site.engine.operation(ORDER).key(key).run(|_| async {
            let mailed = step("mail", async |_| Ok::<_, PayError>(receipt("mail")));
            mailed.await?;
            step("charge", async |_| charged).await
        });
        call.await
    };
    let pay = |charged| pay_of("o-1", charged);
    assert_eq!(pay(Err(PayError::NoReply)).await, Err(PayError::NoReply));
    let of = [ORDER, "--key", r#""o-1""#];
    let shown = site.idem(&[&["show"], &of[..]].concat()).done();
    assert!(shown.contains("idem reset --done STEP=JSON"), "{shown}");
    let reset = [&["reset", "--yes"], &of[..]].concat();
    site.idem(&reset).refused(1, "the step `charge` happened");
    let other = [&reset[..], &["--not-done", "mail"]].concat();
    site.idem(&other).refused(1, "the step `charge` happened");
    let both = [&reset[..], &["--not-done", "mail", "--not-done", "charge"]].concat();
    site.idem(&both)
        .refused(1, "no step `mail` whose outcome is not known");
    let missing = [&reset[..], &["--not-done", "ship"]].concat();
    site.idem(&missing)
        .refused(1, "no step `ship`; it has `charge`, `mail`");
    // As a hook would, but there is none.
    site.idem(&[&reset[..], &["--reconciled"]].concat()).done();
    assert!(matches!(
        pay(Ok(receipt("r-1"))).await,
        Err(PayError::Idem(_))
    ));
    site.idem(&[&reset[..], &["--not-done", "charge"]].concat())
        .done();
    assert_eq!(pay(Ok(receipt("r-1"))).await, Ok(receipt("r-1")));
    let why = site.idem(&[&["why"], &of[..]].concat()).done();
    assert!(why.contains("steps: charge did not happen"), "{why}");
    // The charge of another order happened.
    let unknown = pay_of("o-2", Err(PayError::NoReply)).await;
    assert_eq!(unknown, Err(PayError::NoReply));
    let of = [ORDER, "--key", r#""o-2""#];
    let reset = [&["reset", "--yes", "--done"], &of[..]].concat();
    let done = |step: &str| site.idem(&[&reset[..3], &[step], &reset[3..]].concat());
    done("charge=r-2").refused(2, "is not JSON");
    done("charge").refused(2, "its value as JSON");
    done("mail=1").refused(1, "the step `charge` happened");
    done(r#"charge={"number":"r-2","cents":2}"#).done();
    let shown = site.idem(&[&["show"], &of[..]].concat()).done();
    assert!(shown.contains("charge: finished"), "{shown}");
    let given = Receipt {
        number: "r-2".to_owned(),
        cents: 2,
    };
    assert_eq!(pay_of("o-2", Err(PayError::Down)).await, Ok(given));
    let why = site.idem(&[&["why"], &of[..]].concat()).done();
    assert!(why.contains("steps: charge happened"), "{why}");
}

/// The labels of calls that did not succeed at once.
async fn labels(site: &Site) {
    const LABELLED: &str = "payments.labelled";
    let text = site.idem(&["ls"]).done();
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
    let text = site.idem(&["ls", LABELLED]).done();
    let rows: Vec<_> = text.lines().collect();
    assert!(
        rows[0].contains("DIGEST") && rows[0].contains("LABEL"),
        "{text}"
    );
    let row = |part: &str| {
        let mut rows = rows.iter().filter(|row| row.contains(part));
        let row = rows.next().unwrap_or_else(|| panic!("{part}: {text}"));
        assert_eq!(rows.next(), None, "{part}: {text}");
        *row
    };
    assert!(row("order …0001").contains("unknown"), "{text}");
    assert!(row("order …0003").contains("released"), "{text}");
    // A listing does not read answers.
    assert_eq!(text.matches("order …").count(), 2, "{text}");
    let page = site.idem(&["--json", "ls", LABELLED]).json();
    let labels = |page: &Value| -> BTreeSet<String> {
        let entries = page["entries"].as_array().unwrap().iter();
        let labels = entries.filter_map(|entry| entry["label"].as_str());
        labels.map(str::to_owned).collect()
    };
    let expected = ["order …0001", "order …0003"].map(str::to_owned);
    assert_eq!(labels(&page), expected.into());
    // One with an answer is read for it.
    let found = site.idem(&["--json", "ls", LABELLED, "--label", "0002"]);
    assert_eq!(labels(&found.json()), ["order …0002".to_owned()].into());
    let none = site.idem(&["ls", "--label", "0007"]).done();
    assert!(none.contains("no such records"), "{none}");
    let ages = |arguments: &[&str]| -> Vec<u64> {
        let page = site.idem(&[&["--json", "ls"], arguments].concat()).json();
        let entries = page["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| entry["age_ms"].as_u64().unwrap())
            .collect()
    };
    let all = ages(&["--oldest"]);
    assert!(all.len() > 10 && all.is_sorted_by(|a, b| a >= b), "{all:?}");
    let oldest = ages(&["--oldest", "--limit", "2"]);
    // They have aged since.
    assert!(
        oldest.len() == 2 && oldest[0] >= all[0] && oldest[1] >= all[1],
        "{oldest:?}"
    );
    for (key, label) in [
        (r#""o-1""#, Some("order …0001")),
        (r#""o-2""#, Some("order …0002")),
        (r#""o-3""#, Some("order …0003")),
        (r#""o-4""#, None),
        (r#""o-5""#, None),
    ] {
        let of = [LABELLED, "--key", key];
        for verb in ["show", "why"] {
            let text = site.idem(&[&[verb], &of[..]].concat()).done();
            let document = site.idem(&[&["--json", verb], &of[..]].concat()).json();
            assert_eq!(document["label"].as_str(), label, "{document:#}");
            match label {
                Some(label) => assert!(text.contains(label), "{text}"),
                None => assert!(!text.contains("order …"), "{text}"),
            }
        }
    }
}

fn digest<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    KeyBuilder::new(PAY, DEFAULT_MAX_KEY_BYTES)
        .key(key)
        .unwrap()
}

fn doctor(site: &Site) {
    let text = site.idem(&["doctor"]).done();
    for part in [
        "version",
        "persistence",
        "durability",
        "journal",
        "clock",
        "latency",
        "listing",
    ] {
        let is_there = text.contains(part);
        assert!(is_there || part != "latency", "{text}");
    }
    let document = site.idem(&["--json", "doctor"]).json();
    assert_eq!(document["fail"], 0, "{document:#}");
    assert!(document["ok"].as_u64().unwrap() >= 5, "{document:#}");
}

/// The digests of a listing, page by page.
fn listed(site: &Site, arguments: &[&str]) -> BTreeSet<String> {
    let mut digests = BTreeSet::new();
    let mut cursor = None;
    loop {
        let mut all = vec!["ls", "--json"];
        all.extend(arguments);
        let after = cursor
            .take()
            .map(|cursor: String| ["--after".to_owned(), cursor]);
        all.extend(after.iter().flatten().map(String::as_str));
        let page = site.idem(&all).json();
        let entries = page["entries"].as_array().unwrap();
        digests.extend(
            entries
                .iter()
                .map(|entry| entry["digest"].as_str().unwrap().to_owned()),
        );
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return digests,
        }
    }
}

fn ls(site: &Site) {
    let text = site.idem(&["ls"]).done();
    for part in [
        "OPERATION",
        PAY,
        REFUND,
        "running",
        "abandoned",
        "unknown",
        "answered",
        "error",
        "released",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let whole = listed(site, &[]);
    assert_eq!(whole.len(), 10);
    assert_eq!(listed(site, &["--limit", "2"]), whole);
    let unknown = listed(site, &[PAY, "--state", "unknown"]);
    assert_eq!(unknown.len(), 4);
    assert_eq!(
        listed(site, &[PAY, "--state", "error"]),
        [digest("o-2").to_string()].into()
    );
    assert_eq!(listed(site, &[PAY, "--state", "answered"]).len(), 2);
    assert!(unknown.contains(&digest("o-3").to_string()));
    assert_eq!(listed(site, &[PAY, "--state", "pending"]).len(), 1);
    assert_eq!(listed(site, &[REFUND]).len(), 1);
    assert_eq!(listed(site, &["--older-than", "1h"]).len(), 0);
    let exhausted = ["--max-attempts", "1", "--state", "exhausted"];
    assert_eq!(
        listed(site, &exhausted),
        [digest("o-gone").to_string()].into()
    );
    site.idem(&["ls", "--older-than", "soon"])
        .refused(2, "no duration");
    site.idem(&["ls", "--after", "nonsense"])
        .refused(2, "cursor");
}

fn show(site: &Site) {
    let by_key = |key: &str| site.idem(&["show", PAY, "--json", "--key", key]).json();
    let (text, tuple) = (by_key("\"o-3\""), by_key("[\"m-1\", 7]"));
    assert_eq!(text["digest"], digest("o-3").to_string());
    assert_eq!(tuple["digest"], digest(&("m-1", 7_u32)).to_string());
    assert_eq!(
        (&text["state"], &tuple["state"]),
        (&json!("unknown"), &json!("unknown"))
    );
    let scoped = site.idem(&[
        "show",
        PAY,
        "--json",
        "--scope",
        "\"tenant-7\"",
        "--key",
        "\"o-1\"",
    ]);
    assert_eq!(scoped.json()["state"], "unknown");
    let known = digest("o-1");
    let hex = known
        .as_bytes()
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    for digest in [known.to_string(), hex] {
        let shown = site.idem(&["show", PAY, "--digest", &digest]).done();
        assert!(shown.contains("not shown without --value"), "{shown}");
        assert!(!shown.contains("r-1"), "{shown}");
        let shown = site
            .idem(&["show", PAY, "--value", "--json", "--digest", &digest])
            .json();
        assert_eq!(shown["answer"], json!({ "number": "r-1", "cents": 1_250 }));
    }
    let stepped = site.idem(&["show", PAY, "--key", "\"o-steps\""]).done();
    assert!(stepped.contains("charge: finished"), "{stepped}");
    assert!(!stepped.contains("r-9"), "{stepped}");
    let missing = site.idem(&["show", PAY, "--key", "\"o-99\""]);
    missing.refused(1, &digest("o-99").to_string());
    site.idem(&["show", PAY, "--key", "o-1"])
        .refused(2, "is not JSON");
    site.idem(&["show", PAY, "--key", "1.5"])
        .refused(2, "--digest");
    site.idem(&["show", PAY]).refused(2, "--key");
}

fn stats(site: &Site) {
    let text = site.idem(&["stats"]).done();
    assert!(text.contains("total"), "{text}");
    let document = site.idem(&["stats", "--json"]).json();
    let operations = document["operations"].as_array().unwrap();
    let pay = operations
        .iter()
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
    let key = ["--key", "\"o-3\""];
    for verb in [
        &["resolve", PAY, "--unchecked", "--value", "1"][..],
        &["reset", PAY],
        &["purge", PAY],
    ] {
        let mut arguments = verb.to_vec();
        if verb[0] != "purge" {
            arguments.extend(key);
        }
        site.idem(&arguments).refused(2, "--yes");
    }
    site.idem(&["release", PAY, "--key", "\"o-gone\""])
        .refused(2, "--yes");
    let counted = site.idem(&["stats", "--json"]).json();
    assert_eq!(counted["total"]["unknown"], 4);
    assert_eq!(counted["total"]["records"], 10);
}

async fn resolve(site: &Site) {
    let value = serde_json::to_string(&receipt("r-3")).unwrap();
    let resolve = ["resolve", PAY, "--key", "\"o-3\"", "--yes"];
    let text = site
        .idem(&[&resolve[..], &["--value", &value]].concat())
        .done();
    assert!(text.contains("state now answered"), "{text}");
    let replayed = site.pay("o-3", Err(PayError::Down)).await;
    assert_eq!(replayed, Ok(receipt("r-3")));
    // An answer by hand may be corrected, that of a body is not.
    let error = [
        "--error",
        r#"{"Declined": {"reason": "refused at the bank"}}"#,
        "--json",
    ];
    let document = site.idem(&[&resolve[..], &error].concat()).json();
    assert_eq!(document["after"]["state"], "error");
    let of_body = [
        "resolve", PAY, "--key", "\"o-1\"", "--yes", "--value", &value,
    ];
    site.idem(&of_body).refused(1, "which its body has written");
    site.idem(&[&resolve[..], &["--value", "r-3"]].concat())
        .refused(2, "not JSON");
    let long = "x".repeat(257);
    site.idem(&[&resolve[..], &["--reason", &long, "--value", &value]].concat())
        .refused(2, "257 bytes");
    let running = [
        "resolve",
        PAY,
        "--key",
        "\"o-run\"",
        "--yes",
        "--value",
        &value,
    ];
    site.idem(&running).refused(1, "idem release");
    let with_error = [
        "resolve", PAY, "--key", "\"o-5\"", "--yes", error[0], error[1],
    ];
    site.idem(&with_error).done();
    let replayed = site.pay("o-5", Ok(receipt("r-5"))).await;
    assert!(
        matches!(replayed, Err(PayError::Declined { .. })),
        "{replayed:?}"
    );
}

async fn reset(site: &Site) {
    let key = ["--key", "[\"m-1\",7]", "--yes"];
    let text = site.idem(&[&["reset", PAY][..], &key].concat()).done();
    assert!(text.contains("as a first attempt"), "{text}");
    let ran = site.pay(&("m-1", 7_u32), Ok(receipt("r-7"))).await;
    assert_eq!(ran, Ok(receipt("r-7")));
    let steps = |text: &str| text.matches("charge").count();
    let stepped = ["reset", PAY, "--key", "\"o-steps\"", "--yes"];
    site.idem(&stepped).done();
    let shown = site.idem(&["show", PAY, "--key", "\"o-steps\""]).done();
    assert_eq!(steps(&shown), 1, "{shown}");
    site.idem(&[&stepped[..], &["--drop-steps"]].concat())
        .done();
    let shown = site.idem(&["show", PAY, "--key", "\"o-steps\""]).done();
    assert_eq!(steps(&shown), 0, "{shown}");
}

async fn release(site: &Site, held: Acquired) {
    let running = ["release", PAY, "--key", "\"o-run\"", "--yes"];
    site.idem(&running).refused(1, "--force");
    let document = site
        .idem(&[&running[..], &["--force", "--json"]].concat())
        .json();
    assert_eq!(document["before"]["state"], "running");
    assert_eq!(document["after"]["state"], "released");
    // In the process of the first owner a call would wait for it.
    let other = engine(&site.store);
    let call = other.operation(PAY).key("o-run");
    let ran = call
        .run(|_| async { Ok::<_, PayError>(receipt("r-run")) })
        .await;
    assert_eq!(ran, Ok(receipt("r-run")));
    // The first owner comes back, and changes nothing.
    drop(held);
    assert_eq!(
        site.pay("o-run", Err(PayError::Down)).await,
        Ok(receipt("r-run"))
    );
    let text = site
        .idem(&["release", PAY, "--key", "\"o-gone\"", "--yes"])
        .done();
    assert!(text.contains("released"), "{text}");
    let answered = ["release", PAY, "--key", "\"o-1\"", "--yes"];
    site.idem(&answered)
        .refused(1, "no claim is held or abandoned");
}

async fn purge(site: &Site) {
    site.pay("o-late", Err(PayError::NoReply))
        .await
        .unwrap_err();
    let dry = site.idem(&["purge", REFUND, "--dry-run"]).done();
    assert!(dry.contains("1 record of"), "{dry}");
    let old = ["purge", REFUND, "--older-than", "1h", "--yes", "--json"];
    assert_eq!(site.idem(&old).json()["removed"], 0);
    let text = site.idem(&["purge", REFUND, "--yes"]).done();
    assert!(text.contains("1 record removed"), "{text}");
    // What is unfinished stays, unless it is named.
    let all = site.idem(&["purge", PAY, "--yes", "--json"]).json();
    assert_eq!(all["changed"], 0);
    let left = site.idem(&["stats", PAY, "--json"]).json();
    assert_eq!(left["total"]["values"], 0, "{left:#}");
    assert_eq!(left["total"]["unknown"], 2, "{left:#}");
    let unknown = ["purge", PAY, "--state", "unknown", "--yes", "--json"];
    assert_eq!(site.idem(&unknown).json()["removed"], 2);
    let ran = site.pay("o-late", Ok(receipt("r-late"))).await;
    assert_eq!(ran, Ok(receipt("r-late")));
    let expired = site.idem(&["purge", "--expired", "--yes"]).done();
    assert!(
        expired.contains("deleted") || expired.contains("nothing to do"),
        "{expired}"
    );
}
