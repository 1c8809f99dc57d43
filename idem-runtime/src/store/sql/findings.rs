//! Checks a database for an operator.

#[cfg(any(feature = "_mysql", feature = "_postgres"))]
use std::time::SystemTime;

use tokio::time::timeout;

use super::argument::{Arguments, SqlArgument};
use super::backend::Backend;
use super::failure::store_error;
use super::primary_key::PRIMARY_KEY_LEN;
use super::state::SqlStore;
use super::statement_texts;
use crate::store::{Finding, StoreError};

impl<B: Backend> SqlStore<B> {
    /// Checks the database, and returns the findings.
    ///
    /// Version, role, durability of a commit, isolation, clock and table, on a connection of its own. The table is
    /// read, and nothing is written.
    ///
    /// # Errors
    ///
    /// As the store's operations. A missing table is a finding.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn findings(&self) -> Result<Vec<Finding>, StoreError> {
        const WHAT: &str = "checking the database";
        let (pool, table) = (&self.0.pool, &self.0.table);
        let mut conn = pool.open(WHAT).await?;
        let patience = pool.patience();
        let mut findings = match timeout(patience, B::findings(&mut *conn)).await {
            Ok(found) => found.map_err(|error| store_error(B::DIALECT, WHAT, error))?,
            Err(_) => return Err(pool.silence(WHAT)),
        };
        let probe = statement_texts::probe(B::DIALECT, table);
        let nowhere = [SqlArgument::Bytes(&[0; PRIMARY_KEY_LEN])];
        let readable = timeout(
            patience,
            pool.run_on(&mut *conn, &probe, Arguments::One(&nowhere)),
        )
        .await;
        let readable = match readable {
            Ok(reply) => reply.map_err(|error| store_error(B::DIALECT, WHAT, error)),
            Err(_) => Err(pool.silence(WHAT)),
        };
        findings.push(match readable {
            Ok(_) => Finding::ok("table", format!("`{table}` has the columns that idem reads")),
            Err(error) => Finding::fail("table", error.to_string())
                .means("calls are refused")
                .remedy(
                    "run `store.migrate()`, or the file in the folder `migrations` of idem-runtime; grant SELECT, \
                     INSERT, UPDATE and DELETE on it; name another table with `--table`",
                ),
        });
        Ok(findings)
    }
}

/// How far the server's clock is ahead of this machine, in microseconds. `asked`: when the query was sent.
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
pub(super) fn clock_ahead_us(asked: i64, server: i64) -> i64 {
    server - i64::midpoint(asked, micros_since_1970())
}

/// The time of this machine; 0 before 1970.
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
pub(super) fn micros_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// The finding about the isolation that the server gives to transactions.
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
pub(super) fn of_isolation(level: &str) -> Finding {
    Finding::ok("isolation", level).means(
        "the store's own statements are correct at every level; a call inside a transaction may be rolled back by \
         a conflict above `read committed`, and then runs again",
    )
}
