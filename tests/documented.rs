//! Tables of the documentation that name tests: the tests exist, and no row is missing.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Cells of the table whose head begins with this text.
fn rows(file: &str, head: &str) -> Vec<Vec<String>> {
    let text = read(file);
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    table.skip(2).map(cells).collect()
}

/// The names in backquotes with `::` in them.
fn named(cell: &str) -> Vec<(&str, &str)> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter_map(|name| name.split_once("::")).collect()
}

/// Panics unless the cell names tests, and each is in its file.
fn assert_there(cell: &str) {
    let tests = named(cell);
    assert!(!tests.is_empty(), "no test is named: {cell}");
    for (file, test) in tests {
        let text = if file.starts_with("idem-") {
            read(file)
        } else {
            read(&format!("tests/{file}"))
        };
        let is_there = [format!("fn {test}("), format!("fn {test}<")]
            .iter()
            .any(|start| text.contains(start));
        assert!(is_there, "{file} has no test {test}");
    }
}

#[test]
fn every_attack_is_shown_by_tests_that_are_there() {
    let rows = rows("SECURITY.md", "| attacker");
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let [attacker, gets, protection, left, shown] = row.as_slice() else {
            panic!("a row has five cells: {row:?}");
        };
        for cell in [attacker, gets, protection, left] {
            assert!(!cell.is_empty(), "{row:?}");
        }
        assert_there(shown);
    }
}

#[test]
fn every_promise_is_held_by_tests_that_are_there() {
    let rows = rows("docs/guarantees.md", "| promise");
    let guarantee = read("idem-runtime/src/docs/guide/guarantee.md");
    let (promised, not) = guarantee
        .split_once("What you do not get")
        .expect("two parts");
    let numbers = (1..).take_while(|number| promised.contains(&format!("\n{number}. **")));
    let numbers: Vec<_> = numbers.map(|number: u32| number.to_string()).collect();
    assert!(numbers.len() >= 7, "{numbers:?}");
    let limits = not.lines().filter(|line| line.starts_with("- ")).count();
    let of_limits = rows.iter().filter(|row| row[0].starts_with("not: "));
    assert_eq!(
        of_limits.count(),
        limits,
        "a row for each point that is not promised"
    );
    let of_promises = rows.iter().map(|row| row[0].clone());
    let of_promises: Vec<_> = of_promises
        .filter(|name| !name.starts_with("not: "))
        .collect();
    assert_eq!(of_promises, numbers);
    for row in &rows {
        let [promise, in_short, tests] = row.as_slice() else {
            panic!("a row has three cells: {row:?}");
        };
        assert!(!in_short.is_empty(), "{row:?}");
        // The reason follows.
        let is_untested = promise.starts_with("not: ") && tests.starts_with("none: ");
        if !is_untested {
            assert_there(tests);
        }
    }
}

/// The promises of a text by number and title: `1. **One at a time.`
fn promises(text: &str) -> Vec<&str> {
    let is_promise = |line: &&str| {
        let number = line.split_once(". **").map(|(number, _)| number);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let lines = text.lines().filter(is_promise);
    lines
        .map(|line| line.rsplit_once("**").expect("a title").0)
        .collect()
}

#[test]
fn promises_have_the_same_numbers_everywhere() {
    let (readme, guarantee) = (
        read("README.md"),
        read("idem-runtime/src/docs/guide/guarantee.md"),
    );
    let of_guide = promises(&guarantee);
    assert_eq!(promises(&readme), of_guide);
    // `idem why` names them by number; `every_promise_is_held_by_tests_that_are_there` has those of the table.
    let named = ["idem-runtime/src/record/attempt.rs", "idem-cli/src/why.rs"]
        .map(read)
        .concat();
    let numbers = named.split("(promise").skip(1).flat_map(|rest| {
        let inside = rest.split(')').next().expect("before the first one");
        let words = inside.split(|c: char| !c.is_ascii_digit());
        words.filter_map(|word| word.parse::<usize>().ok())
    });
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.len() >= 8, "{numbers:?}");
    for number in numbers {
        assert!((1..=of_guide.len()).contains(&number), "promise {number}");
    }
}

#[test]
fn every_argument_of_the_attribute_is_in_the_guide() {
    let source = read("idem-macros/src/args.rs");
    let (_, names) = source.split_once("const NAMES").expect("the list");
    let (names, _) = names.split_once("];").expect("its end");
    let mut wanted: Vec<_> = names.split('"').skip(1).step_by(2).collect();
    assert!(wanted.len() >= 25, "{wanted:?}");
    let rows = rows(
        "idem-runtime/src/docs/guide/arguments.md",
        "| argument | values",
    );
    let listed = rows.iter().flat_map(|row| {
        let quoted = row[0].split('`').skip(1).step_by(2);
        quoted.map(|name| name.split('(').next().expect("a first part").to_owned())
    });
    let mut listed: Vec<_> = listed.filter(|name| !name.starts_with('#')).collect();
    wanted.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, wanted);
}

#[test]
fn errors_about_another_sqlx_name_ours() {
    let manifest = read("Cargo.toml");
    let (_, version) = manifest
        .split_once("\nsqlx = { version = \"")
        .expect("the dependency");
    let (version, _) = version.split_once('"').expect("its version");
    for file in ["source.rs", "transaction.rs"] {
        let text = read(&format!("idem-runtime/src/store/sql/{file}"));
        let (_, message) = text.split_once("on_unimplemented(").expect("a message");
        let (message, _) = message.split_once(")]").expect("its end");
        let named = format!("sqlx {version}");
        assert!(message.contains(&named), "{file} does not name {named}");
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

/// Features of a client are those of the whole build: with one for TLS, the redis crate would connect the application's
/// own clients over rustls in place of native TLS, without the authorities of the machine.
#[test]
fn the_store_leaves_the_tls_of_redis_to_the_application() {
    assert!(!read("idem-runtime/Cargo.toml").contains("\"redis/"));
}
