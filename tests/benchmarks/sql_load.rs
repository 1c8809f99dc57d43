//! `sql_load`: each database, and each file.

use crate::row::{assert_names, rows};

const RAW: [(&str, &str); 4] = [
    ("raw", "first"),
    ("raw_read_first", "first"),
    ("raw", "replay"),
    ("raw_claim", "replay"),
];

const IDEM: [&str; 7] = [
    "first",
    "replay",
    "business_error",
    "release",
    "first+replay",
    "wait",
    "wait_same_engine",
];

/// Just the rows of these stores, by idem as well if it `suits`.
fn check(store: &str, suits: bool) {
    let words = format!("--store {store} --size 200 --concurrency 2");
    let rows = rows("sql_load", &words);
    let by_idem = IDEM.iter().filter(|_| suits).map(|case| ("idem", *case));
    let named = |(made_by, case): (&str, &str)| (made_by.into(), case.into(), store.into(), 2, 200);
    assert_names(&rows, RAW.into_iter().chain(by_idem).map(named).collect());
    for row in &rows {
        assert_eq!(row.commands, None, "{:?}", row.line);
        // Read from `/proc`. A file has no server.
        let has_server = !store.starts_with("sqlite") && cfg!(target_os = "linux");
        let is_there = row.server_cpu.is_some();
        assert_eq!(
            is_there,
            has_server && !row.is_of_waiting(),
            "{:?}",
            row.line
        );
    }
}

#[test]
fn a_file_is_measured_beside_the_same_statements() {
    check("sqlite_full", true);
}

#[test]
fn a_file_that_may_lose_what_it_has_is_measured_without_idem() {
    check("sqlite_normal", false);
}

// Servers that do not wait for the disk at every commit: how long that takes is not what is looked at.

#[test]
fn postgres_is_measured_beside_the_same_statements() {
    check("postgres_nosync", true);
}

#[test]
fn mariadb_is_measured_beside_the_same_statements() {
    check("mysql_nosync", true);
}
