//! The list of mutants, and their places in a copy of the sources.

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
    "lifecycle",
    "call",
    "http",
    "store/memory",
    "store/redis",
    "store/sql",
    "store/layered",
];

/// A mutant, by what does not change as lines move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) number: usize,
    pub(crate) file: String,
    /// What cargo-mutants calls it, without its place: `replace == with != in f`.
    pub(crate) change: String,
    /// Its position among the equal changes of the file, from 1.
    pub(crate) ordinal: usize,
    /// Of a mutant that no test finds: whether it is equivalent, or which case is missing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) judged: String,
}

impl Mutant {
    /// The path of the module, as in the names of its unit tests.
    pub(crate) fn module(&self) -> String {
        let file = self.file.trim_start_matches("idem-runtime/src/");
        file.trim_end_matches(".rs")
            .trim_end_matches("/mod")
            .replace('/', "::")
            + "::"
    }

    pub(crate) fn folder(&self) -> &'static str {
        let rest = self.file.strip_prefix("idem-runtime/src/");
        let rest = rest.expect("a file of idem-runtime");
        let here = |folder: &&&str| rest.starts_with(&format!("{folder}/"));
        FOLDERS.iter().find(here).expect("a folder of the list")
    }
}

/// A mutant and its place in the sources of today.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) mutant: Mutant,
    pub(crate) genre: String,
    pub(crate) replacement: String,
    /// Line and column, both from 1.
    pub(crate) start: (u64, u64),
}

/// All mutants that cargo-mutants lists in the folders of a copy.
pub(crate) fn all(dir: &Path) -> Vec<Located> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["mutants", "--list", "--json", "--no-config", "--dir"])
        .arg(dir);
    for folder in FOLDERS {
        cargo.args(["--file", &format!("idem-runtime/src/{folder}/**/*.rs")]);
    }
    let output = cargo.output().expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo-mutants: {text}");
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON of cargo-mutants");
    let mut seen = HashMap::new();
    let located = |listed: &Value| {
        let text = |field: &str| listed[field].as_str().expect("a text").to_owned();
        let place = |field: &str| listed["span"]["start"][field].as_u64().expect("a number");
        // The name begins with file, line and column.
        let (_, change) = listed["name"]
            .as_str()
            .and_then(|name| name.split_once(": "))
            .expect("a change");
        let ordinal = seen.entry((text("file"), change.to_owned())).or_insert(0);
        *ordinal += 1;
        let mutant = Mutant {
            number: 0,
            file: text("file"),
            change: change.to_owned(),
            ordinal: *ordinal,
            judged: String::new(),
        };
        let start = (place("line"), place("column"));
        Located {
            mutant,
            genre: text("genre"),
            replacement: text("replacement"),
            start,
        }
    };
    listed.iter().map(located).collect()
}

pub(crate) struct List {
    pub(crate) mutants: Vec<Mutant>,
}

impl List {
    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("list.jsonl")
    }

    pub(crate) fn read() -> Self {
        let text = fs::read_to_string(Self::path()).expect("the list, which `draw` writes");
        let mutant = |line| serde_json::from_str(line).expect("a mutant");
        Self {
            mutants: text.lines().map(mutant).collect(),
        }
    }

    pub(crate) fn write(&self) {
        let line = |mutant| serde_json::to_string(mutant).expect("JSON") + "\n";
        let text: String = self.mutants.iter().map(line).collect();
        fs::write(Self::path(), text).expect("the list is written");
    }

    /// The mutants in a copy. A mutant whose file has moved is found by its change, if no other file has the same.
    pub(crate) fn located(&self, dir: &Path) -> Vec<Located> {
        let all = all(dir);
        let mut found = Vec::new();
        for mutant in &self.mutants {
            let same = |other: &&Located| {
                other.mutant.change == mutant.change && other.mutant.ordinal == mutant.ordinal
            };
            let here = |other: &&Located| same(other) && other.mutant.file == mutant.file;
            let mut moved = all.iter().filter(same);
            let place = all
                .iter()
                .find(here)
                .or_else(|| moved.next().filter(|_| moved.next().is_none()));
            if let Some(place) = place {
                let mut place = place.clone();
                place.mutant.number = mutant.number;
                found.push(place);
            } else {
                println!("gone: {} {}: {}", mutant.number, mutant.file, mutant.change);
            }
        }
        found
    }
}
