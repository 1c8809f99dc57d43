//! The folders of `idem-runtime/src` import each other one way, as `CONTRIBUTING.md` draws it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest: each imports only from the layers before it.
const LAYERS: [&str; 13] = [
    "error",
    "identity",
    "record",
    "outcome",
    "policy",
    "env",
    "store",
    "local",
    "lifecycle",
    "engine",
    "call",
    "http",
    "conformance",
];

/// Modules that may import any layer, and that no layer imports: the crate's own front, and its documentation.
const FRONT: [&str; 4] = ["lib", "__private", "guide", "docs"];

/// An import against the order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wrong {
    file: String,
    line: usize,
    import: String,
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The folder, or the file, at the root that a path within the crate begins with.
fn root(path: &str) -> &str {
    let first = path.split(['/', ':']).next().unwrap_or(path);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The imports of a file against the order. Tests within it may import anything.
fn wrong(file: &str, source: &str) -> BTreeSet<Wrong> {
    let mut wrong = BTreeSet::new();
    let here = root(file);
    if FRONT.contains(&here) || file.contains("/tests") {
        return wrong;
    }
    let layer = |name| LAYERS.iter().position(|layer| *layer == name);
    let mine = layer(here).unwrap_or_else(|| panic!("{file}: no place for {here} in the order"));
    let code = source.split("#[cfg(test)]\nmod tests").next();
    for (number, line) in code.unwrap_or(source).lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for import in line.split("crate::").skip(1) {
            let there = root(import);
            let there = there
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            // A name of the root is that of an item, such as `crate::Error` in a macro.
            let is_higher = there.and_then(layer).is_some_and(|there| there > mine);
            if is_higher {
                wrong.insert(Wrong {
                    file: file.to_owned(),
                    line: number + 1,
                    import: format!("crate::{import}"),
                });
            }
        }
    }
    wrong
}

#[test]
fn imports_point_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../idem-runtime/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    let mut all = BTreeSet::new();
    for path in files {
        let file = path.strip_prefix(&src).expect("a file of the crate");
        let source = fs::read_to_string(&path).expect("a source");
        all.extend(wrong(&file.to_string_lossy(), &source));
    }
    assert!(
        all.is_empty(),
        "imports against the order {LAYERS:?}: {all:#?}"
    );
}

#[test]
fn an_import_against_the_order_is_found() {
    let source = "use crate::record::Record;\nuse crate::lifecycle::lease::Lease;\n";
    let found = wrong("local/singleflight.rs", source);
    let [one] = found
        .into_iter()
        .collect::<Vec<_>>()
        .try_into()
        .expect("one");
    let Wrong { line, import, .. } = one;
    assert_eq!(
        (line, import.as_str()),
        (2, "crate::lifecycle::lease::Lease;")
    );
    // A path in code, outside of comments and tests.
    assert_eq!(
        wrong("record/mod.rs", "let x = crate::store::x();\n").len(),
        1
    );
    assert!(
        wrong(
            "record/mod.rs",
            "// crate::store\n#[cfg(test)]\nmod tests { use crate::store; }"
        )
        .is_empty()
    );
    assert!(wrong("record/tests.rs", "use crate::store;").is_empty());
}
