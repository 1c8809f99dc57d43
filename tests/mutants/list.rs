//! The list of mutants, and their places in the sources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The folders that are mutated, below `idem-runtime/src`.
pub(crate) const FOLDERS: [&str; 10] = [
    "record",
    "identity",
    "outcome",
    "env",
    "call",
    "http",
    "store/memory",
    "store/redis",
    "store/sql",
    "store/layered",
];

/// A mutant, by what does not change as lines move.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) number: usize,
    pub(crate) file: String,
    /// What cargo-mutants calls it, without its place: `replace == with != in f`.
    pub(crate) change: String,
    /// Its position among the equal changes of the file, from 1.
    pub(crate) ordinal: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) found_by: Option<Finder>,
    /// Of a mutant that no test finds: whether it is equivalent, or which case is missing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) judged: String,
}

/// The test that fails with a mutant.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Finder {
    pub(crate) program: String,
    pub(crate) test: String,
}

impl Mutant {
    pub(crate) fn folder(&self) -> &'static str {
        let rest = self.file.strip_prefix("idem-runtime/src/");
        let rest = rest.expect("a file of idem-runtime");
        let here = |folder: &&&str| rest.starts_with(&format!("{folder}/"));
        FOLDERS.iter().find(here).expect("a folder of the list")
    }
}

/// The place of a mutant in the sources of today.
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) file: String,
    change: String,
    ordinal: usize,
    pub(crate) genre: String,
    pub(crate) replacement: String,
    /// Line and column, both from 1.
    pub(crate) start: (u64, u64),
}

/// All mutants that cargo-mutants lists in the folders.
fn all(root: &Path) -> Vec<Place> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["mutants", "--list", "--json", "--no-config", "--dir"])
        .arg(root);
    for folder in FOLDERS {
        cargo.args(["--file", &format!("idem-runtime/src/{folder}/**/*.rs")]);
    }
    let output = cargo.output().expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo-mutants: {text}");
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON of cargo-mutants");
    let mut seen = HashMap::new();
    let place = |listed: &Value| {
        let text = |field: &str| listed[field].as_str().expect("a text").to_owned();
        let start = |field: &str| listed["span"]["start"][field].as_u64().expect("a number");
        // The name begins with file, line and column.
        let (_, change) = listed["name"]
            .as_str()
            .and_then(|name| name.split_once(": "))
            .expect("a change");
        let ordinal = seen.entry((text("file"), change.to_owned())).or_insert(0);
        *ordinal += 1;
        Place {
            number: 0,
            file: text("file"),
            change: change.to_owned(),
            ordinal: *ordinal,
            genre: text("genre"),
            replacement: text("replacement"),
            start: (start("line"), start("column")),
        }
    };
    listed.iter().map(place).collect()
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("list.jsonl")
}

pub(crate) fn read() -> Vec<Mutant> {
    let text = fs::read_to_string(path()).expect("the list");
    let mutant = |line| serde_json::from_str(line).expect("a mutant");
    text.lines().map(mutant).collect()
}

pub(crate) fn write(mutants: &[Mutant]) {
    let line = |mutant| serde_json::to_string(mutant).expect("JSON") + "\n";
    let text: String = mutants.iter().map(line).collect();
    fs::write(path(), text).expect("the list is written");
}

/// The places of mutants. A mutant whose file has moved is found by its change, if no other file has the same.
pub(crate) fn places(root: &Path, mutants: &[Mutant]) -> Vec<Place> {
    let mut all = all(root);
    for mutant in mutants {
        let same = |other: &Place| {
            other.change == mutant.change && other.ordinal == mutant.ordinal && other.number == 0
        };
        let here = |other: &Place| same(other) && other.file == mutant.file;
        let mut moved = (0..all.len()).filter(|&index| same(&all[index]));
        let index = all.iter().position(here);
        let index = index.or_else(|| moved.next().filter(|_| moved.next().is_none()));
        if let Some(index) = index {
            all[index].number = mutant.number;
        } else {
            println!("gone: {} {}: {}", mutant.number, mutant.file, mutant.change);
        }
    }
    all.retain(|place| place.number != 0);
    all
}
