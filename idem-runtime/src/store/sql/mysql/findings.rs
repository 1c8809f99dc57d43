//! Findings about a MySQL or MariaDB server.

use crate::store::Finding;
use crate::store::sql::error::SqlError;
use crate::store::sql::findings::{clock_ahead_us, micros_since_1970, of_isolation};
use crate::store::sql::session::{SqlSession, row};

pub(super) async fn findings(session: &mut dyn SqlSession) -> Result<Vec<Finding>, SqlError> {
    let settings = "SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), CAST(@@sync_binlog AS SIGNED), \
                    CAST(@@log_bin AS SIGNED), CAST(@@read_only AS SIGNED), CAST(@@version AS CHAR)";
    let (numbers, version) = row(session, settings, |row| {
        let number = |column| row.number(column);
        let numbers = [number(0)?, number(1)?, number(2)?, number(3)?];
        Ok((numbers, row.string(4)?))
    })
    .await?;
    let [flush, sync, binlog, read_only] = numbers;
    let isolation = setting(session, ["transaction_isolation", "tx_isolation"]).await;
    let transactions = setting(session, ["transaction_read_only", "tx_read_only"]).await;
    let asked = micros_since_1970();
    let now = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
    let now = row(session, now, |row| row.number(0)).await?;
    let ahead = clock_ahead_us(asked, now);
    Ok(vec![
        Finding::ok("version", version),
        of_role(
            read_only != 0,
            matches!(transactions.as_deref(), Some("1" | "ON")),
        ),
        of_durability(flush, sync, binlog != 0),
        of_isolation(isolation.as_deref().unwrap_or("not shown to this user")),
        Finding::of_clock(Some(ahead)),
    ])
}

/// A setting with two names: MySQL 8 and newer versions of MariaDB have the one, older ones the other.
async fn setting(session: &mut dyn SqlSession, names: [&str; 2]) -> Option<String> {
    for name in names {
        let query = format!("SELECT CAST(@@{name} AS CHAR)");
        if let Ok(value) = row(session, query, |row| row.string(0)).await {
            return Some(value);
        }
    }
    None
}

fn of_role(read_only: bool, transactions: bool) -> Finding {
    if read_only {
        return Finding::fail("role", "read-only")
            .means("no call runs")
            .remedy("give idem the primary");
    }
    if transactions {
        return Finding::fail("role", "writes; `tx_read_only` is on")
            .means("no call runs")
            .remedy("switch it off (MySQL 8: `transaction_read_only`)");
    }
    Finding::ok("role", "writes")
}

fn of_durability(flush: i64, sync: i64, binlog: bool) -> Finding {
    let log = if binlog {
        format!("sync_binlog {sync}")
    } else {
        "no binary log".to_owned()
    };
    let fact = format!("innodb_flush_log_at_trx_commit {flush}, {log}");
    if flush != 1 {
        return Finding::fail("durability", fact)
            .means("a crash of the server forgets acknowledged records, and their bodies run again")
            .remedy("set `innodb_flush_log_at_trx_commit = 1`");
    }
    if binlog && sync != 1 {
        return Finding::warn("durability", fact)
            .means("after a crash, replicas may lack records that the primary has, or the other way round")
            .remedy("set `sync_binlog = 1`");
    }
    Finding::ok("durability", fact).means("an acknowledged record survives a crash of the server")
}
