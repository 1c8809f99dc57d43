//! Findings about a PostgreSQL server.

use crate::store::Finding;
use crate::store::sql::error::SqlError;
use crate::store::sql::findings::{clock_ahead_us, micros_since_1970, of_isolation};
use crate::store::sql::session::{SqlSession, row, rows};

const SETTINGS: &str = "SELECT current_setting('server_version'), current_setting('fsync'), \
    current_setting('synchronous_commit'), current_setting('full_page_writes'), \
    current_setting('synchronous_standby_names'), current_setting('default_transaction_isolation'), \
    pg_is_in_recovery()::int::text, current_setting('default_transaction_read_only')";

pub(super) async fn findings(session: &mut dyn SqlSession) -> Result<Vec<Finding>, SqlError> {
    let settings = row(session, SETTINGS, |row| {
        let text = |column| row.string(column);
        Ok([
            text(0)?,
            text(1)?,
            text(2)?,
            text(3)?,
            text(4)?,
            text(5)?,
            text(6)?,
            text(7)?,
        ])
    })
    .await?;
    let [
        version,
        fsync,
        commit,
        pages,
        standbys,
        isolation,
        standby,
        read_only,
    ] = settings;
    let asked = micros_since_1970();
    let now = "SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint";
    let now = row(session, now, |row| row.number(0)).await?;
    let ahead = clock_ahead_us(asked, now);
    // A user without rights sees the rows, and not their state.
    let replicas =
        "SELECT (extract(epoch FROM replay_lag) * 1000)::bigint FROM pg_stat_replication";
    let replicas = rows(session, replicas, |row| row.int(0)).await;
    let replicas = replicas.unwrap_or_default();
    Ok(vec![
        of_version(&version),
        of_role(standby == "1", read_only == "on"),
        of_durability(&fsync, &commit, &pages),
        of_replicas(&replicas, &standbys),
        of_isolation(&isolation),
        Finding::of_clock(Some(ahead)),
    ])
}

fn of_version(version: &str) -> Finding {
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    let fact = format!("PostgreSQL {version}");
    match major {
        Some(0..12) => Finding::warn("version", fact).remedy("update it to 12 or newer"),
        _ => Finding::ok("version", fact),
    }
}

fn of_role(standby: bool, read_only: bool) -> Finding {
    if standby {
        return Finding::fail("role", "standby, which only reads")
            .means("no call runs")
            .remedy("give idem the primary (`target_session_attrs=read-write`)");
    }
    if read_only {
        return Finding::fail("role", "primary; `default_transaction_read_only` is on")
            .means("no call runs")
            .remedy("switch it off for this user");
    }
    Finding::ok("role", "primary")
}

fn of_durability(fsync: &str, commit: &str, pages: &str) -> Finding {
    let fact = format!("fsync {fsync}, synchronous_commit {commit}, full_page_writes {pages}");
    if fsync == "off" {
        return Finding::fail("durability", fact)
            .means(
                "a crash of the machine forgets acknowledged records, and may damage the database",
            )
            .remedy("set `fsync = on`");
    }
    if commit == "off" {
        return Finding::fail("durability", fact)
            .means("a crash of the server forgets the last acknowledged records, and their bodies run again")
            .remedy("set `synchronous_commit = on`, for the user of idem at least");
    }
    if pages == "off" {
        return Finding::warn("durability", fact)
            .means("a power loss may leave damaged pages")
            .remedy("set `full_page_writes = on`, unless the file system writes pages whole");
    }
    Finding::ok("durability", fact).means("an acknowledged record survives a crash of the server")
}

fn of_replicas(lags: &[Option<i64>], synchronous: &str) -> Finding {
    if lags.is_empty() {
        return Finding::ok("replicas", "none, or none that this user may see");
    }
    let lag = lags.iter().flatten().max();
    let lag = lag.map_or_else(String::new, |lag| format!(", replay lag up to {lag} ms"));
    let fact = format!("{}{lag}", lags.len());
    if synchronous.is_empty() {
        return Finding::ok("replicas", format!("{fact}, asynchronous"))
            .means("a failover forgets the last commits, and those bodies run again")
            .remedy("`synchronous_standby_names` where a second start is not acceptable");
    }
    Finding::ok(
        "replicas",
        format!("{fact}, synchronous_standby_names is set"),
    )
}
