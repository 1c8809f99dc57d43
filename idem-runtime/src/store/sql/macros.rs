//! Macros with the code that the three drivers share.
//!
//! Macros, because the types of sqlx have nothing in common.

/// The query of a prepared statement, with its arguments.
macro_rules! bound {
    ($db:ty, $statement:ident, $arguments:ident, $named:expr) => {{
        let text = sqlx::AssertSqlSafe(std::sync::Arc::clone(&$statement.text));
        let mut query = sqlx::query::<$db>(text).persistent($named);
        if let [Argument::Calls(calls)] = $arguments {
            // Each call is a key, and surplus parameters repeat the last one.
            for index in 0..$statement.order.len() {
                query = query.bind(calls[index.min(calls.len() - 1)][0].bytes());
            }
        } else {
            let all = 0..$arguments.len();
            let order: &mut dyn Iterator<Item = usize> = if $statement.order.is_empty() {
                &mut all.into_iter()
            } else {
                &mut $statement.order.iter().copied()
            };
            for index in order {
                query = match $arguments[index] {
                    Argument::Bytes(bytes) => query.bind(bytes),
                    Argument::Null => query.bind(None::<&[u8]>),
                    Argument::Int(number) => query.bind(number),
                    Argument::Text(text) => query.bind(text),
                    Argument::Calls(_) => query,
                };
            }
        }
        query
    }};
}

/// Sends a query, and reads the reply to a statement of its kind.
///
/// By the connection's own methods, because those of a query keep a copy of it in the future.
macro_rules! reply {
    ($conn:ident, $statement:ident, $query:expr) => {{
        use sqlx::Row as _;
        match $statement.kind {
            StatementKind::Execute => {
                let done = (&mut *$conn).execute($query).await?;
                Ok(StatementReply {
                    affected: done.rows_affected(),
                    granted: Self::returned_number(&done),
                    ..StatementReply::default()
                })
            }
            kind if kind.returns_a_row() => {
                let row = (&mut *$conn).fetch_optional($query).await?;
                let row = match &row {
                    Some(row) => Some(crate::store::sql::macros::seen!($statement, row)),
                    None => None,
                };
                Ok(StatementReply {
                    row,
                    ..StatementReply::default()
                })
            }
            kind => {
                // To the end, not only to the row, because the row arrives before the commit.
                let rows = (&mut *$conn).fetch_all($query).await?;
                let mut reply = StatementReply {
                    affected: rows.len() as u64,
                    ..StatementReply::default()
                };
                // An invalid key matches no record and no call.
                let invalid = [0; crate::store::sql::primary_key::PRIMARY_KEY_LEN];
                let key = |key: &[u8]| key.try_into().unwrap_or(invalid);
                for row in &rows {
                    match kind {
                        StatementKind::Grant => reply.granted = Some(row.try_get(0)?),
                        StatementKind::Grants => {
                            (reply.grants).push((key(row.try_get(0)?), row.try_get(1)?));
                        }
                        StatementKind::Several => {
                            let record = crate::store::sql::macros::seen!($statement, row);
                            reply.rows.push((key(row.try_get(13)?), record));
                        }
                        // The last two columns are behind those of a row.
                        _ => {
                            let record = crate::store::sql::macros::row!(row, &[u8], try_get);
                            let place = row.len() - 2;
                            let key = key(row.try_get(place)?);
                            (reply.block).push((key, row.try_get(place + 1)?, record));
                        }
                    }
                }
                Ok(reply)
            }
        }
    }};
}

/// The parts of a [`SqlDriver`](super::backend::SqlDriver) that differ by types only.
///
/// `$bytes` is the type of bytes in the result of a script.
macro_rules! common {
    ($name:ident, $conn:ident, $bytes:ty) => {
        type Db = sqlx::$name;

        const DIALECT: &'static Dialect = &DIALECT;

        fn connection(conn: SqlConnection<'_>) -> Option<&mut $conn> {
            match conn {
                SqlConnection::$name(conn) => Some(conn),
                #[allow(unreachable_patterns, reason = "other databases are features")]
                _ => None,
            }
        }

        async fn findings(conn: &mut $conn) -> Result<Vec<Finding>, sqlx::Error> {
            findings::findings(conn).await
        }

        async fn fetch_script(
            conn: &mut $conn,
            script: String,
        ) -> Result<StatementReply, sqlx::Error> {
            use sqlx::Row as _;
            let script = sqlx::raw_sql(sqlx::AssertSqlSafe(script));
            let rows = conn.fetch_all(script).await?;
            // Other statements of it may return rows as well; those of the table have more columns.
            let row = match rows.iter().find(|row| row.len() > 3) {
                Some(row) => Some(crate::store::sql::macros::row!(row, $bytes, try_get)),
                None => None,
            };
            Ok(StatementReply {
                row,
                ..StatementReply::default()
            })
        }

        async fn execute_script(conn: &mut $conn, script: String) -> Result<u64, sqlx::Error> {
            let script = sqlx::raw_sql(sqlx::AssertSqlSafe(script));
            Ok(conn.execute(script).await?.rows_affected())
        }
    };
}

/// The columns of a row of a prepared statement.
///
/// Their types are checked only once, because the check is expensive.
macro_rules! seen {
    ($statement:ident, $row:expr) => {
        if Self::DIALECT.typed
            && $statement
                .is_known
                .load(std::sync::atomic::Ordering::Relaxed)
        {
            crate::store::sql::macros::row!($row, &[u8], try_get_unchecked)
        } else {
            let row = crate::store::sql::macros::row!($row, &[u8], try_get);
            ($statement.is_known).store(true, std::sync::atomic::Ordering::Relaxed);
            row
        }
    };
}

/// The columns of a row of sqlx.
macro_rules! row {
    ($row:expr, $bytes:ty, $get:ident) => {{
        let row = $row;
        let owner: $bytes = row.$get(2)?;
        let fingerprint: $bytes = row.$get(7)?;
        let body: Option<$bytes> = row.$get(8)?;
        crate::store::sql::row::Row::new(&crate::store::sql::row::RowColumns {
            layout: row.$get(0)?,
            state: row.$get(1)?,
            owner: &owner[..],
            fence: row.$get(3)?,
            attempts: row.$get(4)?,
            detail: row.$get(5)?,
            retain_ms: row.$get(6)?,
            fingerprint: &fingerprint[..],
            body: body.as_deref(),
            left_us: row.$get(9)?,
            now_us: row.$get(10)?,
            version: row.$get(11)?,
            body_bytes: row.$get(12)?,
        })
    }};
}

pub(crate) use bound;
pub(crate) use common;
pub(crate) use reply;
pub(crate) use row;
pub(crate) use seen;
