//! Findings about a MySQL or MariaDB server.

use sqlx::MySqlConnection;

use crate::store::Finding;
use crate::store::sql::findings::{clock_ahead_us, micros_since_1970, of_isolation};

pub(super) async fn findings(conn: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
    let settings = "SELECT CAST(@@version AS CHAR), CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), \
                    CAST(@@sync_binlog AS SIGNED), CAST(@@log_bin AS SIGNED), CAST(@@read_only AS SIGNED), \
                    CAST(@@autocommit AS SIGNED)";
    let (version, flush, sync, binlog, read_only, autocommit): (String, i64, i64, i64, i64, i64) =
        sqlx::query_as(settings).fetch_one(&mut *conn).await?;
    // MySQL 8 and newer versions of MariaDB have the one, older ones the other.
    let mut isolation = None;
    for name in ["transaction_isolation", "tx_isolation"] {
        let query = sqlx::AssertSqlSafe(format!("SELECT CAST(@@{name} AS CHAR)"));
        if let Ok(level) = sqlx::query_scalar::<_, String>(query)
            .fetch_one(&mut *conn)
            .await
        {
            isolation = Some(level);
            break;
        }
    }
    let asked = micros_since_1970();
    let now: i64 =
        sqlx::query_scalar("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)")
            .fetch_one(&mut *conn)
            .await?;
    let ahead = clock_ahead_us(asked, now);
    Ok(vec![
        Finding::ok("version", version),
        of_role(read_only != 0, autocommit != 0),
        of_durability(flush, sync, binlog != 0),
        of_isolation(isolation.as_deref().unwrap_or("not shown to this user")),
        Finding::of_clock(Some(ahead)),
    ])
}

fn of_role(read_only: bool, autocommit: bool) -> Finding {
    if read_only {
        return Finding::fail("role", "read-only")
            .means("no call runs")
            .remedy("give idem the primary");
    }
    if !autocommit {
        return Finding::fail("role", "sessions begin with autocommit off")
            .means("nothing would be committed, and the store refuses this server")
            .remedy("remove it from `init_connect`");
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
