//! Direct access to the table, for tests.

use std::time::Duration;

use super::argument::Argument;
use super::backend::Backend;
use super::columns::{HeaderColumns, displayed_operation, life_us};
use super::primary_key::primary_key;
use super::priority::Priority;
use super::state::SqlStore;
use super::statement_texts;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::operation::RecordKey;
use crate::record::{AnswerTypes, Fence, HEADER, Header, JournalKind, Owner, State};
use crate::store::StoreError;

const WHAT: &str = "a test";

impl<B: Backend> SqlStore<B> {
    /// Makes every record older by `by`. For tests, because a database's clock cannot be moved.
    ///
    /// # Errors
    ///
    /// As the store's operations.
    pub async fn age(&self, by: Duration) -> Result<(), StoreError> {
        let by = [Argument::Int(
            i64::try_from(by.as_micros()).unwrap_or(i64::MAX),
        )];
        let statement = statement_texts::age::<B>(&self.0.table);
        self.0
            .pool
            .run((WHAT, Priority::Other), &statement, &by)
            .await?;
        Ok(())
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
        let primary_key = primary_key(key);
        let here = [Argument::Bytes(&primary_key)];
        let statement = statement_texts::forget::<B>(&self.0.table);
        self.0
            .pool
            .run((WHAT, Priority::Other), &statement, &here)
            .await?;
        let (columns, body) = match Header::decode(bytes) {
            Ok(header) => (HeaderColumns::new(&header), &bytes[HEADER..]),
            Err(_) => (HeaderColumns::new(&no_header()), bytes),
        };
        let layout = match Header::decode(bytes) {
            Ok(_) => columns.layout(),
            Err(_) => Argument::Int(0),
        };
        let arguments = [
            Argument::Bytes(&primary_key),
            Argument::Text(&displayed_operation(key)),
            layout,
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            Argument::Body(Some(body)),
            Argument::Int(life_us(life)),
        ];
        let statement = &self.0.statements.insert;
        self.0
            .pool
            .run((WHAT, Priority::Other), statement, &arguments)
            .await?;
        Ok(())
    }

    /// The raw bytes under a key, past the store, if alive.
    ///
    /// # Errors
    ///
    /// As the store's operations.
    pub async fn peek(&self, key: &RecordKey) -> Result<Option<Vec<u8>>, StoreError> {
        let primary_key = primary_key(key);
        let here = [Argument::Bytes(&primary_key)];
        let answer = self
            .0
            .pool
            .run((WHAT, Priority::Other), &self.0.statements.read, &here)
            .await?;
        Ok(answer
            .row
            .and_then(|row| row.bytes().map(|bytes| bytes.to_vec())))
    }
}

/// The header of bytes that are no record.
fn no_header() -> Header {
    Header {
        state: State::Released,
        owner: Owner::from_bytes([0; 16]),
        fence: Fence::default(),
        attempts: 0,
        retain: Duration::ZERO,
        fingerprint: Fingerprint::NONE,
        types: AnswerTypes::UNKNOWN,
        journal: JournalKind::None,
    }
}
