//! Findings about a SQLite file.

use sqlx::SqliteConnection;

use crate::store::Finding;

pub(super) async fn findings(conn: &mut SqliteConnection) -> Result<Vec<Finding>, sqlx::Error> {
    let version: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut *conn)
        .await?;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&mut *conn)
        .await?;
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&mut *conn)
        .await?;
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
