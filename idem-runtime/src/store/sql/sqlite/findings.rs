//! Findings about a SQLite file.

use crate::store::Finding;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlSession, row};

pub(super) async fn findings(session: &mut dyn SqlSession) -> Result<Vec<Finding>, SqlError> {
    let version = row(session, "SELECT sqlite_version()", |row| row.string(0)).await?;
    let mode = row(session, "PRAGMA journal_mode", |row| row.string(0)).await?;
    let synchronous = row(session, "PRAGMA synchronous", |row| row.number(0)).await?;
    let journal = if mode == "wal" {
        Finding::ok("journal", "wal")
    } else {
        Finding::warn("journal", mode)
            .means("readers and writers wait for each other, and an answer may be late")
            .remedy("`PRAGMA journal_mode = wal`; never on a network drive")
    };
    let durability = format!("synchronous {synchronous}");
    let durability = if synchronous >= 2 {
        Finding::ok("durability", durability).means("an acknowledged record survives a power loss")
    } else {
        Finding::fail("durability", durability)
            .means("a power loss forgets acknowledged records, and their bodies run again")
            .remedy("`PRAGMA synchronous = FULL`")
    };
    let clock = Finding::ok("clock", "that of this machine")
        .means("a step of it ends leases early or prolongs them: let NTP slew it");
    Ok(vec![
        Finding::ok("version", format!("SQLite {version}")),
        journal,
        durability,
        clock,
    ])
}
