//! A statement with its arguments, as diesel takes it.

use std::fmt;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Binary, HasSqlType, Nullable, Text, Untyped};

use crate::store::sql::argument::{SqlArgument, SqlArray, TypedElements};
use crate::store::sql::session::SqlStatement;

/// A text with parameters, and their arguments.
pub(super) struct DieselQuery<'a> {
    text: &'a str,
    /// Whether the connection keeps it prepared. It never forgets one, so that no text with literals is kept.
    is_kept: bool,
    arguments: Vec<Argument<'a>>,
}

enum Argument<'a> {
    Bytes(Hidden<Option<&'a [u8]>>),
    Int(Hidden<i64>),
    Text(Hidden<&'a str>),
    Array(Array<'a>),
}

/// An argument of each of several calls.
#[cfg_attr(
    not(feature = "diesel-async-postgres"),
    allow(dead_code, reason = "of PostgreSQL")
)]
pub(super) enum Array<'a> {
    Bytes(Hidden<Vec<Option<&'a [u8]>>>),
    Ints(Hidden<Vec<Option<i64>>>),
    Texts(Hidden<Vec<Option<&'a str>>>),
}

/// A value that no instrumentation of diesel shows: it may be an answer.
pub(super) struct Hidden<T>(T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl<T: ToSql<ST, DB>, ST, DB: Backend> ToSql<ST, DB> for Hidden<T> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.0.to_sql(out)
    }
}

impl<'a> DieselQuery<'a> {
    pub(super) fn new(statement: &SqlStatement<'a>) -> Self {
        Self {
            text: statement.text(),
            is_kept: statement.is_named(),
            arguments: statement.arguments().map(Argument::new).collect(),
        }
    }

    /// A statement without parameters.
    pub(super) fn of_text(text: &'a str) -> Self {
        Self {
            text,
            is_kept: false,
            arguments: Vec::new(),
        }
    }
}

impl<'a> Argument<'a> {
    fn new(argument: SqlArgument<'a>) -> Self {
        match argument {
            SqlArgument::Null => Self::Bytes(Hidden(None)),
            SqlArgument::Bytes(bytes) => Self::Bytes(Hidden(Some(bytes))),
            SqlArgument::Int(number) => Self::Int(Hidden(number)),
            SqlArgument::Text(text) => Self::Text(Hidden(text)),
            SqlArgument::Array(array) => Self::Array(Array::new(array)),
        }
    }
}

impl<'a> Array<'a> {
    fn new(array: SqlArray<'a>) -> Self {
        match array.typed() {
            TypedElements::Bytes(all) => Self::Bytes(Hidden(all)),
            TypedElements::Ints(all) => Self::Ints(Hidden(all)),
            TypedElements::Texts(all) => Self::Texts(Hidden(all)),
        }
    }
}

/// A database of diesel that has arrays, or refuses them.
pub(super) trait DieselArrays: Backend {
    /// Adds an array.
    fn push_array<'b>(out: &mut AstPass<'_, 'b, Self>, array: &'b Array<'_>) -> QueryResult<()>;
}

impl<DB> QueryFragment<DB> for DieselQuery<'_>
where
    DB: DieselArrays + HasSqlType<Binary> + HasSqlType<BigInt> + HasSqlType<Text>,
    [u8]: ToSql<Binary, DB>,
    i64: ToSql<BigInt, DB>,
    str: ToSql<Text, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if !self.is_kept {
            out.unsafe_to_cache_prepared();
        }
        out.push_sql(self.text);
        for argument in &self.arguments {
            match argument {
                Argument::Bytes(bytes) => {
                    out.push_bind_param_value_only::<Nullable<Binary>, _>(bytes)?;
                }
                Argument::Int(number) => out.push_bind_param_value_only::<BigInt, _>(number)?,
                Argument::Text(text) => out.push_bind_param_value_only::<Text, _>(text)?,
                Argument::Array(array) => DB::push_array(&mut out, array)?,
            }
        }
        Ok(())
    }
}

impl Query for DieselQuery<'_> {
    type SqlType = Untyped;
}

impl QueryId for DieselQuery<'_> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}
