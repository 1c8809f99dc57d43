//! `SECURITY.md` names a test for each attack, and each test is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rows of the table of attackers: its cells.
fn rows() -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("it is there");
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| attacker"))
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    table.skip(2).map(cells).collect()
}

/// What stands in backquotes with `::` in it.
fn named(cell: &str) -> Vec<(&str, &str)> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter_map(|name| name.split_once("::")).collect()
}

#[test]
fn every_attack_is_shown_by_tests_that_are_there() {
    let rows = rows();
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let [attacker, gets, protection, left, shown] = row.as_slice() else {
            panic!("a row has five cells: {row:?}");
        };
        for cell in [attacker, gets, protection, left] {
            assert!(!cell.is_empty(), "{row:?}");
        }
        let tests = named(shown);
        assert!(!tests.is_empty(), "no test shows: {gets}");
        for (file, test) in tests {
            let place = if file.starts_with("idem-") {
                root().join(file)
            } else {
                root().join("tests").join(file)
            };
            let text = fs::read_to_string(&place)
                .unwrap_or_else(|error| panic!("{}: {error}", place.display()));
            let is_there = [format!("fn {test}("), format!("fn {test}<")]
                .iter()
                .any(|start| text.contains(start));
            assert!(is_there, "{file} has no test {test}");
        }
    }
}

#[test]
fn a_row_is_read_as_it_is_written() {
    let cell = "`http/a.rs::one`, and `idem-runtime/src/b.rs::two`, not `three`";
    let wanted = [("http/a.rs", "one"), ("idem-runtime/src/b.rs", "two")];
    assert_eq!(named(cell), wanted);
}

#[test]
fn every_dependency_has_a_checksum_of_its_registry() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("it is there");
    let mut foreign = 0;
    for package in lock.split("[[package]]").skip(1) {
        let Some(source) = package.lines().find(|line| line.starts_with("source = ")) else {
            // A crate of this workspace.
            assert!(package.contains("name = \"idem-"), "{package}");
            continue;
        };
        assert!(source.starts_with("source = \"registry+"), "{package}");
        assert!(package.contains("\nchecksum = \""), "{package}");
        foreign += 1;
    }
    assert!(foreign > 50, "{foreign} dependencies");
}
