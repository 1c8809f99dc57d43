//! `public-api.txt` of each published crate lists its public items, with all features.
//!
//! The JSON of rustdoc changes between releases, so the version of `public-api` is that for the compiler of
//! `rust-version`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use public_api::PublicItem;
use serde_json::Value;

/// Path of the JSON of a crate.
fn rustdoc_json(package: &str) -> PathBuf {
    static DOCUMENTED: LazyLock<PathBuf> = LazyLock::new(document);
    let name = package.replace('-', "_");
    DOCUMENTED.join(name).with_extension("json")
}

/// Documents all published libraries with the tests' features. Returns the directory of their JSON.
fn document() -> PathBuf {
    // By its name: rustup's `cargo` keeps the compilers of dependencies from following their own `rust-toolchain.toml`.
    let mut cargo = Command::new("cargo");
    // Build scripts of dependencies run again for other values of what cargo sets for this test.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rustdoc");
    let flags = format!("--output-format json --out-dir {}", json.display());
    let output = cargo
        .args([
            "test",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-features",
            "--doc",
        ])
        .current_dir(&root)
        .env("RUSTDOC", root.join("scripts/rustdoc"))
        .env("RUSTDOCFLAGS", flags)
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no documentation:\n{errors}");
    json
}

/// The derive macros with helper attributes: the end of their line, and the attributes.
fn derives(json: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(json).expect("rustdoc has written its JSON");
    let krate: Value = serde_json::from_str(&text).expect("rustdoc writes JSON");
    let items = krate["index"]
        .as_object()
        .expect("the crate has items")
        .values();
    let derives = items.filter_map(|item| {
        let helpers = item["inner"]["proc_macro"]["helpers"].as_array()?;
        let helpers: Vec<_> = helpers.iter().filter_map(Value::as_str).collect();
        let name = item["name"].as_str()?;
        (!helpers.is_empty()).then(|| {
            (
                format!("::#[derive({name})]"),
                format!(" attributes({})", helpers.join(", ")),
            )
        })
    });
    derives.collect()
}

/// Whether the line is the head of an implementation of a trait.
fn implements(line: &str) -> bool {
    line.starts_with("impl") && line.contains(" for ")
}

/// What lines are sorted by: the path of the item, or of the type that implements the trait.
fn path(line: &str) -> &str {
    let at = if line.starts_with("impl") {
        line.find(" for ").map(|at| at + " for ".len())
    } else {
        line.find("idem_")
    };
    &line[at.unwrap_or(0)..]
}

/// One line per item. A list that only an edit of the public surface changes: it leaves out the heads of inherent
/// implementations, which are as many as there are blocks, and the functions that a trait prescribes.
fn public_items(package: &str) -> Vec<String> {
    let json = rustdoc_json(package);
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .unwrap_or_else(|error| panic!("the JSON of this rustdoc cannot be read: {error}"));
    let all: Vec<&PublicItem> = api.items().collect();
    let heads: HashMap<_, _> = all
        .iter()
        .map(|item| (item.id(), item.to_string()))
        .collect();
    let derives = derives(&json);
    let listed = all.iter().filter_map(|item| {
        let mut line = item.to_string();
        let inherent = line.starts_with("impl") && !implements(&line);
        let head = item.parent_id().and_then(|parent| heads.get(&parent));
        let prescribed = line.contains("fn ") && head.is_some_and(|head| implements(head));
        if inherent || prescribed || line.contains("::StructuralPartialEq for ") {
            return None;
        }
        if let Some((_, helpers)) = derives.iter().find(|(end, _)| line.ends_with(end)) {
            line.push_str(helpers);
        }
        Some(line)
    });
    // An implementation for two public types is listed twice.
    let listed: BTreeSet<String> = listed.collect();
    let mut lines: Vec<String> = listed.into_iter().collect();
    let key = |line: &String| (path(line).to_owned(), implements(line), line.clone());
    lines.sort_by_cached_key(key);
    lines
}

fn assert_listed(package: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(package)
        .join("public-api.txt");
    let public = public_items(package);
    if std::env::var_os("IDEM_PUBLIC_API").is_some_and(|value| value == "overwrite") {
        fs::write(&file, public.join("\n") + "\n").expect("the list can be written");
        return;
    }
    let text = fs::read_to_string(&file).unwrap_or_default();
    let listed: BTreeSet<&str> = text.lines().collect();
    let gone = text
        .lines()
        .filter(|line| !public.iter().any(|item| item == line));
    let new = public.iter().filter(|line| !listed.contains(line.as_str()));
    let difference: Vec<String> = gone
        .map(|line| format!("-{line}"))
        .chain(new.map(|line| format!("+{line}")))
        .collect();
    assert!(
        difference.is_empty(),
        "{package}/public-api.txt (-) is not the public surface (+):\n{}\n\
        if this is intended, renew the file: IDEM_PUBLIC_API=overwrite cargo test -p idem-tests-api",
        difference.join("\n")
    );
}

#[test]
fn runtime_has_the_listed_items() {
    assert_listed("idem-runtime");
}

#[test]
fn conformance_has_the_listed_items() {
    assert_listed("idem-conformance");
}

#[test]
fn consumers_have_the_listed_items() {
    assert_listed("idem-consumers");
}

#[test]
fn macros_are_the_listed_ones() {
    assert_listed("idem-macros");
}
