//! Creates the table.

use super::argument::Argument;
use super::backend::{Backend, SqlDriver};
use super::collision::{collided, pause};
use super::failure::{not_created, not_usable};
use super::primary_key::PRIMARY_KEY_LEN;
use super::priority::Priority;
use super::state::{SqlStore, SqlStoreState};
use super::statement_texts;
use crate::store::StoreError;

impl<B: Backend> SqlStore<B> {
    /// Creates the table, unless it exists.
    ///
    /// Any number of processes may do so at once, also one that may not create tables, if another has.
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
        self.0.migrate().await
    }

    /// The plain SQL of the table, with the configured name.
    #[must_use]
    pub fn schema(&self) -> String {
        schema::<B>(&self.0.name)
    }
}

impl<B: SqlDriver> SqlStoreState<B> {
    async fn migrate(&self) -> Result<(), StoreError> {
        const WHAT: &str = "creating the table";
        let nowhere = [Argument::Bytes(&[0; PRIMARY_KEY_LEN])];
        let probe = statement_texts::probe::<B>(&self.table);
        let schema = schema::<B>(&self.table);
        for collisions in 1.. {
            if self
                .pool
                .run((WHAT, Priority::Ending), &probe, &nowhere)
                .await
                .is_ok()
            {
                return Ok(());
            }
            let mut conn = self.pool.open(WHAT).await?;
            match B::migrate(&mut conn, &schema).await {
                Err(error) if collided::<B>(&error, collisions) => {
                    pause(collisions).await;
                    continue;
                }
                created => created.map_err(|error| not_created::<B>(WHAT, error))?,
            }
            // The table may have existed with other columns.
            let probe = self.pool.run_on(&mut conn, &probe, &nowhere).await;
            probe.map_err(|error| not_usable::<B>(WHAT, error))?;
            break;
        }
        Ok(())
    }
}

/// The SQL of the table.
///
/// Its index is named after the table, without the schema, which is the table's anyway.
fn schema<B: SqlDriver>(table: &str) -> String {
    let name = table.rsplit('.').next().unwrap_or(table);
    (B::SCHEMA)
        .replace("idem_records_expires", &format!("{name}_expires"))
        .replace("EXISTS idem_records ", &format!("EXISTS {table} "))
        .replace("ON idem_records ", &format!("ON {table} "))
}
