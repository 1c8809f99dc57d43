//! Direct access to the table, for tests.

use std::time::Duration;

use super::argument::SqlArgument;
use super::backend::Backend;
use super::columns::{HeaderColumns, displayed_operation, life_us};
use super::primary_key::primary_key;
use super::queue::Priority;
use super::state::SqlStore;
use super::statement::{Statement, StatementReply};
use super::statement_texts;
use crate::identity::operation::RecordKey;
use crate::record::{Fence, HEADER, Header, Owner, State};
use crate::store::StoreError;

/// The header of bytes that are no record.
const NO_HEADER: Header = Header::new(
    State::Released,
    Owner::from_bytes([0; 16]),
    Fence::new(0),
    Duration::ZERO,
);

impl<B: Backend> SqlStore<B> {
    async fn send(
        &self,
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> Result<StatementReply, StoreError> {
        let purpose = ("a test", Priority::Other);
        self.0.pool.run(purpose, statement, arguments).await
    }

    /// Makes every record older by `by`. For tests, because a database's clock cannot be moved.
    ///
    /// # Errors
    ///
    /// As the store's operations.
    pub async fn age(&self, by: Duration) -> Result<(), StoreError> {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let statement = statement_texts::age(B::DIALECT, &self.0.table);
        self.send(&statement, &[SqlArgument::Int(by)])
            .await
            .map(drop)
    }

    /// Stores raw bytes under a key, past the store.
    ///
    /// # Errors
    ///
    /// As the store's operations.
    pub async fn plant(
        &self,
        key: &RecordKey,
        bytes: &[u8],
        life: Duration,
    ) -> Result<(), StoreError> {
        let (primary_key, shown) = (primary_key(key), displayed_operation(key));
        let (key, shown) = (SqlArgument::Bytes(&primary_key), SqlArgument::Text(&shown));
        let forget = statement_texts::forget(B::DIALECT, &self.0.table);
        self.send(&forget, &[key]).await?;
        let header = Header::decode(bytes);
        let body = header.as_ref().map_or(bytes, |_| &bytes[HEADER..]);
        let columns = HeaderColumns::new(header.as_ref().unwrap_or(&NO_HEADER));
        let [layout, state, owner, fence, attempts, detail, retain, print] = columns.all();
        let layout = header.map_or(SqlArgument::Int(0), |_| layout);
        let (body, life) = (SqlArgument::Bytes(body), SqlArgument::Int(life_us(life)));
        let arguments = [
            key, shown, layout, state, owner, fence, attempts, detail, retain, print, body, life,
        ];
        let insert = &self.0.statements.insert;
        self.send(insert, &arguments).await.map(drop)
    }

    /// The raw bytes under a key, past the store, if alive.
    ///
    /// # Errors
    ///
    /// As the store's operations.
    pub async fn peek(&self, key: &RecordKey) -> Result<Option<Vec<u8>>, StoreError> {
        let key = primary_key(key);
        let read = &self.0.statements.read;
        let row = self.send(read, &[SqlArgument::Bytes(&key)]).await?.row;
        Ok(row.and_then(|row| row.bytes().map(|bytes| bytes.to_vec())))
    }
}
