//! A queued statement of a group commit.

use std::sync::Arc;

use sqlx::Arguments as _;
use sqlx::sqlite::SqliteArguments;
use tokio::sync::oneshot;

use crate::store::sql::backend::{Argument, Text};
use crate::store::sql::pool::Outcome;
use crate::store::sql::sqlite::group_commit::multi_row::Many;
use crate::store::sql::statement::Statement;

/// A queued statement.
pub(in crate::store::sql) struct Job {
    pub(in crate::store::sql) what: &'static str,
    pub(in crate::store::sql) text: Text,
    pub(in crate::store::sql) order: Arc<[usize]>,
    pub(in crate::store::sql) many: Option<Arc<Many>>,
    arguments: Vec<Value>,
    told: oneshot::Sender<Outcome>,
}

/// An [`Argument`] that outlives its caller.
enum Value {
    Bytes(Vec<u8>),
    Int(i64),
    // Shared with the driver, without a copy.
    Text(Arc<str>),
    Null,
}

impl Job {
    pub(in crate::store::sql) fn new(
        what: &'static str,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> (Self, oneshot::Receiver<Outcome>) {
        let (told, hears) = oneshot::channel();
        let value = |argument: &Argument<'_>| match *argument {
            Argument::Bytes(bytes) | Argument::Body(Some(bytes)) => Value::Bytes(bytes.to_vec()),
            // Places are only read, and reads are not queued here.
            Argument::Body(None) | Argument::Places(_) => Value::Null,
            Argument::Int(number) => Value::Int(number),
            Argument::Text(text) => Value::Text(text.into()),
        };
        let job = Self {
            what,
            text: Arc::clone(&statement.text),
            order: Arc::clone(&statement.order),
            many: statement.many.clone(),
            arguments: arguments.iter().map(value).collect(),
            told,
        };
        (job, hears)
    }

    /// Whether its caller has given up.
    pub(in crate::store::sql) fn is_left(&self) -> bool {
        self.told.is_closed()
    }

    /// Sends the outcome. Its caller may have given up.
    pub(in crate::store::sql) fn tell(self, outcome: Outcome) {
        let _ = self.told.send(outcome);
    }

    /// Adds the arguments of the statement; the index after the last one is the time.
    pub(in crate::store::sql) fn bind(
        &self,
        all: &mut SqliteArguments,
        order: &[usize],
        now: i64,
    ) -> Result<(), sqlx::Error> {
        for &index in order {
            let added = match self.arguments.get(index) {
                Some(Value::Bytes(bytes)) => all.add(&bytes[..]),
                Some(Value::Int(number)) => all.add(*number),
                Some(Value::Text(text)) => all.add(Arc::clone(text)),
                Some(Value::Null) => all.add(None::<i64>),
                None => all.add(now),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        Ok(())
    }
}
