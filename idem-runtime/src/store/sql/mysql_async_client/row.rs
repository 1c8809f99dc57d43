//! A row of `mysql_async`.

use std::borrow::Cow;

use mysql_async::{Row, Value};

use crate::store::sql::error::SqlError;
use crate::store::sql::session::SqlRow;

/// A row, whose numbers are texts in the reply to a script.
pub(super) struct MySqlAsyncRow<'r>(pub(super) &'r Row);

impl MySqlAsyncRow<'_> {
    fn value(&self, column: usize) -> Result<&Value, SqlError> {
        let value = self.0.as_ref(column);
        value.ok_or_else(|| SqlError::client("a column is missing"))
    }
}

impl SqlRow for MySqlAsyncRow<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        let number = match self.value(column)? {
            Value::NULL => return Ok(None),
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bytes(text) => str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let number = number.ok_or_else(|| SqlError::client("this is no number of 64 bits"))?;
        Ok(Some(number))
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        let Some(Cow::Borrowed(bytes)) = self.bytes(column)? else {
            return Ok(None);
        };
        let text = str::from_utf8(bytes).map_err(|_| SqlError::client("this is no text"))?;
        Ok(Some(Cow::Borrowed(text)))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        match self.value(column)? {
            Value::NULL => Ok(None),
            Value::Bytes(bytes) => Ok(Some(Cow::Borrowed(bytes))),
            _ => Err(SqlError::client("these are no bytes")),
        }
    }
}
