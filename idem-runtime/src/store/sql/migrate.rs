//! Creates the table.

use super::argument::{Arguments, SqlArgument};
use super::backend::Backend;
use super::collision::{collided, pause};
use super::dialect::Dialect;
use super::failure::{not_created, not_usable};
use super::primary_key::PRIMARY_KEY_LEN;
use super::queue::Priority;
use super::session::execute;
use super::state::SqlStore;
use super::statement_texts;
use crate::store::StoreError;

impl<B: Backend> SqlStore<B> {
    /// Creates the table, unless it exists.
    ///
    /// Any number of processes may do so at once; a process without the right to create tables may, if another has.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Refused`](crate::store::StoreErrorKind::Refused) if this user may not create a table: then a
    /// user with that right runs the file in `migrations`. `Unavailable` if the server is.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves open whether the table was created. Call it again.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        const WHAT: &str = "creating the table";
        let nowhere = [SqlArgument::Bytes(&[0; PRIMARY_KEY_LEN])];
        let (pool, table) = (&self.0.pool, &self.0.table);
        let probe = statement_texts::probe(B::DIALECT, table);
        let (begin, end) = B::DIALECT.migration;
        let script = format!("{begin}{}{end}", schema(B::DIALECT, table));
        for collisions in 1.. {
            let found = pool.run((WHAT, Priority::Ending), &probe, &nowhere);
            if found.await.is_ok() {
                break;
            }
            let mut conn = pool.open(WHAT).await?;
            match execute(&mut *conn, script.clone()).await {
                Err(error) if collided(&error, collisions) => {
                    pause(collisions).await;
                    continue;
                }
                Err(error) => return Err(not_created(B::DIALECT, WHAT, error)),
                Ok(()) => {}
            }
            // The table may have existed with other columns.
            let probe = pool
                .run_on(&mut *conn, &probe, Arguments::One(&nowhere))
                .await;
            probe.map_err(|error| not_usable(B::DIALECT, WHAT, error))?;
            break;
        }
        Ok(())
    }

    /// The plain SQL of the table, with the configured name.
    #[must_use]
    pub fn schema(&self) -> String {
        schema(B::DIALECT, &self.0.name)
    }
}

/// The SQL of the table.
///
/// Its index is named after the table, without the schema, which is the table's anyway.
fn schema(dialect: &Dialect, table: &str) -> String {
    let name = table.rsplit('.').next().unwrap_or(table);
    (dialect.schema)
        .replace("idem_records_expires", &format!("{name}_expires"))
        .replace("EXISTS idem_records ", &format!("EXISTS {table} "))
        .replace("ON idem_records ", &format!("ON {table} "))
}
