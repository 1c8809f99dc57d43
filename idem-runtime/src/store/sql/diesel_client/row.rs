//! The rows of diesel-async.

use std::borrow::Cow;
use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use diesel::row::{Field, Row};
use diesel::sql_types::{BigInt, Binary, Text};

use super::query::DieselArrays;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::SqlRow;

/// The values of a database.
pub(super) trait DieselValues: DieselArrays {
    fn int(value: Self::RawValue<'_>) -> deserialize::Result<i64>;
    fn text(value: Self::RawValue<'_>) -> deserialize::Result<String>;
    fn bytes(value: Self::RawValue<'_>) -> deserialize::Result<Vec<u8>>;
}

impl<DB: DieselArrays> DieselValues for DB
where
    i64: FromSql<BigInt, DB>,
    String: FromSql<Text, DB>,
    Vec<u8>: FromSql<Binary, DB>,
{
    fn int(value: Self::RawValue<'_>) -> deserialize::Result<i64> {
        FromSql::from_sql(value)
    }

    fn text(value: Self::RawValue<'_>) -> deserialize::Result<String> {
        FromSql::from_sql(value)
    }

    fn bytes(value: Self::RawValue<'_>) -> deserialize::Result<Vec<u8>> {
        FromSql::from_sql(value)
    }
}

/// A row.
pub(super) struct DieselRow<'r, 'c, R, DB>(&'r R, PhantomData<&'c DB>);

impl<'r, 'c, R: Row<'c, DB>, DB: Backend> DieselRow<'r, 'c, R, DB> {
    pub(super) fn new(row: &'r R) -> Self {
        Self(row, PhantomData)
    }

    fn value<T>(
        &self,
        column: usize,
        read: impl Fn(DB::RawValue<'_>) -> deserialize::Result<T>,
    ) -> Result<Option<T>, SqlError> {
        let field = self.0.get(column);
        let field = field.ok_or_else(|| SqlError::client("a column is missing"))?;
        // The text of the error may quote the value.
        let of_another_type = |_| SqlError::client("a value is of another type");
        field.value().map(read).transpose().map_err(of_another_type)
    }
}

impl<'c, R: Row<'c, DB>, DB: DieselValues> SqlRow for DieselRow<'_, 'c, R, DB> {
    fn columns(&self) -> usize {
        self.0.field_count()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        self.value(column, DB::int)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        Ok(self.value(column, DB::text)?.map(Cow::Owned))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        Ok(self.value(column, DB::bytes)?.map(Cow::Owned))
    }
}
