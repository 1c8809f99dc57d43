//! `sql_load`: each database, and each file.

use crate::row::{assert_names, rows};

/// Those that do not wait for the disk at every commit, which is not what is looked at here, and the file that does.
const STORES: [&str; 4] = [
    "sqlite_full",
    "sqlite_normal",
    "postgres_nosync",
    "mysql_nosync",
];

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

#[test]
fn every_case_is_measured_beside_the_same_statements() {
    let words = format!("--store {} --size 200 --concurrency 2", STORES.join(","));
    let rows = rows("sql_load", &words);
    let mut wanted = Vec::new();
    for store in STORES {
        // idem always waits until a file is on the disk.
        let by_idem = IDEM.iter().filter(|_| store != "sqlite_normal");
        for (made_by, case) in RAW.into_iter().chain(by_idem.map(|case| ("idem", *case))) {
            wanted.push((made_by.into(), case.into(), store.into(), 2, 200));
        }
    }
    assert_names(&rows, wanted);
    for row in &rows {
        assert_eq!(row.commands, None, "{:?}", row.line);
        // Read from `/proc`. A file has no server.
        let has_server = !row.store.starts_with("sqlite") && cfg!(target_os = "linux");
        let is_there = row.server_cpu.is_some();
        assert_eq!(
            is_there,
            has_server && !row.is_of_waiting(),
            "{:?}",
            row.line
        );
    }
}
