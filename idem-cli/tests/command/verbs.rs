//! Every verb on a store: its text, its JSON, its exit code, and its effect on the next call.

use std::collections::{BTreeSet, HashMap};

use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder};
use idem_runtime::key::{KeyDigest, ToKey};
use serde_json::{Value, json};

use crate::answers;
use crate::filled::{PAY, Site};
use crate::story::Story;

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/stories.txt");

pub(crate) async fn all(site: Site) {
    let held = site.fill().await;
    doctor(&site);
    pages(&site);
    digests(&site);
    let mut story = Story {
        site: &site,
        held: HashMap::from([([PAY, "o-run"].map(str::to_owned), held)]),
        abandoned: HashMap::new(),
    };
    story.tell(&std::fs::read_to_string(STORIES).unwrap()).await;
    oldest(&site);
    answers::responses(&site).await;
    answers::derived_keys(&site).await;
    let expired = site.done("purge --expired --yes");
    assert!(
        expired.contains("deleted") || expired.contains("nothing to do"),
        "{expired}"
    );
}

fn digest<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    let digest = KeyBuilder::new(PAY, DEFAULT_MAX_KEY_BYTES).key(key);
    digest.unwrap()
}

fn doctor(site: &Site) {
    let text = site.done("doctor");
    for part in ["latency", "listing", "the guarantee holds"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let document = site.json("doctor");
    assert_eq!(document["fail"], 0, "{document:#}");
    assert!(document["ok"].as_u64().unwrap() >= 5, "{document:#}");
}

fn entries(page: &mut Value) -> Vec<Value> {
    let Value::Array(entries) = page["entries"].take() else {
        panic!("{page:#}");
    };
    entries
}

/// The digests of a listing, page by page.
fn listed(site: &Site, filters: &str) -> BTreeSet<String> {
    let (mut digests, mut after) = (BTreeSet::new(), String::new());
    loop {
        let mut page = site.json(format!("ls {filters} {after}"));
        let entries = entries(&mut page).into_iter();
        digests.extend(entries.map(|entry| entry["digest"].as_str().unwrap().to_owned()));
        match page["cursor"].as_str() {
            Some(next) => after = format!("--after {next}"),
            None => return digests,
        }
    }
}

fn pages(site: &Site) {
    let whole = listed(site, "");
    assert_eq!(whole.len(), 10);
    assert_eq!(listed(site, "--limit 2"), whole);
    let unknown = listed(site, "payments.pay --state unknown");
    assert!(unknown.contains(&digest("o-3").to_string()));
    for (filters, key) in [
        ("payments.pay --state error", "o-2"),
        ("--max-attempts 1 --state exhausted", "o-gone"),
    ] {
        assert_eq!(listed(site, filters), [digest(key).to_string()].into());
    }
}

/// Finds a key by text that differs from the Rust value's.
fn digests(site: &Site) {
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
    let missing = site.idem(r#"show payments.pay --key "o-99""#);
    missing.refused(1, &digest("o-99").to_string());
}

fn oldest(site: &Site) {
    let ages = |line: &str| -> Vec<u64> {
        let entries = entries(&mut site.json(line)).into_iter();
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
}
