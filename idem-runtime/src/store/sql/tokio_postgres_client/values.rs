//! Arguments as parameters of tokio-postgres, and the values of its rows.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Row, SimpleQueryRow};

use crate::store::sql::argument::SqlArgument;
use crate::store::sql::bytea::bytea;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::SqlRow;

/// An argument as a parameter. `Debug` does not show its value: the client logs the parameters of a named statement.
#[derive(Debug)]
pub(super) struct Parameter<'a>(SqlArgument<'a>);

impl<'a> Parameter<'a> {
    /// With its type, for which the client need not query the server.
    pub(super) fn typed(argument: SqlArgument<'a>) -> (Self, Type) {
        let of = match argument {
            SqlArgument::Bytes(_) | SqlArgument::Null => Type::BYTEA,
            SqlArgument::Int(_) => Type::INT8,
            SqlArgument::Text(_) => Type::TEXT,
            SqlArgument::Array(array) => match array.elements().next() {
                Some(SqlArgument::Int(_)) => Type::INT8_ARRAY,
                Some(SqlArgument::Text(_)) => Type::TEXT_ARRAY,
                _ => Type::BYTEA_ARRAY,
            },
        };
        (Self(argument), of)
    }
}

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            SqlArgument::Null => Ok(IsNull::Yes),
            SqlArgument::Bytes(bytes) => bytes.to_sql(of, out),
            SqlArgument::Int(number) => number.to_sql(of, out),
            SqlArgument::Text(text) => text.to_sql(of, out),
            SqlArgument::Array(array) => {
                let elements: Vec<_> = array.elements().map(Parameter).collect();
                elements.to_sql(of, out)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A row of a statement, whose values have types.
pub(super) struct TypedRow<'r>(pub(super) &'r Row);

impl SqlRow for TypedRow<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        self.0.try_get(column).map_err(SqlError::client)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        let text = self.0.try_get::<_, Option<&str>>(column);
        Ok(text.map_err(SqlError::client)?.map(Cow::Borrowed))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        let bytes = self.0.try_get::<_, Option<&[u8]>>(column);
        Ok(bytes.map_err(SqlError::client)?.map(Cow::Borrowed))
    }
}

/// A row of a script, whose values are texts.
pub(super) struct TextRow<'r>(pub(super) &'r SimpleQueryRow);

impl TextRow<'_> {
    fn value(&self, column: usize) -> Result<Option<&str>, SqlError> {
        self.0.try_get(column).map_err(SqlError::client)
    }
}

impl SqlRow for TextRow<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        let number = self.value(column)?.map(str::parse).transpose();
        number.map_err(|_| SqlError::client("a text is no number"))
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        Ok(self.value(column)?.map(Cow::Borrowed))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        let Some(text) = self.value(column)? else {
            return Ok(None);
        };
        let bytes = bytea(text).ok_or_else(|| SqlError::client("a text is no bytes"))?;
        Ok(Some(Cow::Owned(bytes)))
    }
}
