//! Macros with the code that the three drivers share.
//!
//! Macros, because the types of sqlx have nothing in common.

/// [`SqlDriver::run`](super::backend::SqlDriver::run) for prepared statements: sends one, and reads at most one row.
macro_rules! prepared {
    ($db:ty, $conn:ident, $statement:ident, $arguments:ident, $named:expr) => {{
        // By the connection's own methods, because those of a query keep a copy of it in the future.
        let mut query =
            sqlx::query::<$db>(sqlx::AssertSqlSafe(std::sync::Arc::clone(&$statement.text)))
                .persistent($named);
        let all = 0..$arguments.len();
        let order: &mut dyn Iterator<Item = usize> = if $statement.order.is_empty() {
            &mut all.into_iter()
        } else {
            &mut $statement.order.iter().copied()
        };
        if let [Argument::Keys(primary_keys)] = $arguments {
            // Surplus parameters repeat the last key.
            for index in 0..$statement.order.len() {
                query = query.bind(&primary_keys[index.min(primary_keys.len() - 1)][..]);
            }
            return crate::store::sql::macros::several!($conn, $statement, query);
        }
        for index in order {
            query = match $arguments[index] {
                Argument::Bytes(bytes) => query.bind(bytes),
                Argument::Body(bytes) => query.bind(bytes),
                Argument::Int(number) => query.bind(number),
                Argument::Text(text) => query.bind(text),
                Argument::Keys(_) | Argument::Calls(_) => query,
            };
        }
        match $statement.kind {
            StatementKind::Block => {
                use sqlx::Row as _;
                let found = (&mut *$conn).fetch_all(query.persistent(false)).await?;
                let mut block = Vec::with_capacity(found.len());
                for found in &found {
                    // The last two columns, behind those of a row.
                    let (primary_key, operation) = (found.len() - 2, found.len() - 1);
                    let primary_key: &[u8] = found.try_get(primary_key)?;
                    let row = crate::store::sql::macros::row!(found, &[u8], try_get);
                    let operation: String = found.try_get(operation)?;
                    let invalid = [0; crate::store::sql::primary_key::PRIMARY_KEY_LEN];
                    block.push((primary_key.try_into().unwrap_or(invalid), operation, row));
                }
                Ok(StatementReply {
                    block,
                    ..StatementReply::default()
                })
            }
            StatementKind::Execute => {
                let done = (&mut *$conn).execute(query).await?;
                Ok(StatementReply {
                    affected: done.rows_affected(),
                    granted: Self::returned_number(&done),
                    ..StatementReply::default()
                })
            }
            StatementKind::Grant => {
                use sqlx::Row as _;
                // To the end, not only to the row, because the row arrives before the commit.
                let rows = (&mut *$conn).fetch_all(query).await?;
                let granted = rows.first().map(|row| row.try_get(0)).transpose()?;
                Ok(StatementReply {
                    affected: rows.len() as u64,
                    granted,
                    ..StatementReply::default()
                })
            }
            _ => {
                let row = (&mut *$conn).fetch_optional(query).await?;
                let row = match &row {
                    Some(row) => Some(crate::store::sql::macros::seen!($statement, row)),
                    None => None,
                };
                Ok(StatementReply {
                    row,
                    ..StatementReply::default()
                })
            }
        }
    }};
}

/// The rows of a query for several primary keys.
macro_rules! several {
    ($conn:ident, $statement:ident, $query:expr) => {{
        use sqlx::Row as _;
        let found = (&mut *$conn).fetch_all($query).await?;
        let mut rows = Vec::with_capacity(found.len());
        for found in &found {
            let primary_key: &[u8] = found.try_get(13)?;
            // An invalid key matches no read.
            let primary_key = primary_key
                .try_into()
                .unwrap_or([0; crate::store::sql::primary_key::PRIMARY_KEY_LEN]);
            let row = crate::store::sql::macros::seen!($statement, found);
            rows.push((primary_key, row));
        }
        Ok(StatementReply {
            rows,
            ..StatementReply::default()
        })
    }};
}

/// The reply to a statement for several calls.
#[cfg(any(feature = "mysql", feature = "postgres"))]
macro_rules! batched {
    ($conn:ident, $statement:ident, $query:expr) => {{
        use sqlx::Row as _;
        let query = $query;
        if $statement.kind == StatementKind::Execute {
            let done = (&mut *$conn).execute(query).await?;
            return Ok(StatementReply {
                affected: done.rows_affected(),
                ..StatementReply::default()
            });
        }
        // To the end, because the rows arrive before the commit.
        let found = (&mut *$conn).fetch_all(query).await?;
        let mut grants = Vec::with_capacity(found.len());
        for found in &found {
            let primary_key: &[u8] = found.try_get(0)?;
            // An invalid key matches no call.
            let primary_key = primary_key
                .try_into()
                .unwrap_or([0; crate::store::sql::primary_key::PRIMARY_KEY_LEN]);
            grants.push((primary_key, found.try_get(1)?));
        }
        Ok(StatementReply {
            grants,
            ..StatementReply::default()
        })
    }};
}

/// [`SqlDriver::fetch_script`](super::backend::SqlDriver::fetch_script) and
/// [`SqlDriver::execute_script`](super::backend::SqlDriver::execute_script).
///
/// `$bytes` is the type of bytes in the result of a script.
macro_rules! scripts {
    ($conn:ident, $bytes:ty) => {
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
        if Self::TYPED
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
        use sqlx::Row as _;
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

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use batched;
pub(crate) use prepared;
pub(crate) use row;
pub(crate) use scripts;
pub(crate) use seen;
pub(crate) use several;
