//! Scripts, whose rows diesel-async does not return.

use diesel::query_builder::QueryFragment;

use super::connection::DieselConnection;
use super::message::{batch, count, rows};
use super::query::DieselQuery;
use super::row::DieselValues;
use crate::store::sql::error::SqlError;
use crate::store::sql::script::{Returns, split_last};
use crate::store::sql::session::{SqlReceiver, SqlReply};

/// Sends a script: only its last statement may return something, and that is sent alone.
pub(super) async fn send<C>(
    conn: &mut C,
    script: String,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError>
where
    C: DieselConnection<Backend: DieselValues>,
    for<'a> DieselQuery<'a>: QueryFragment<C::Backend>,
{
    let (others, last) = split_last(&script);
    let returns = Returns::of(last);
    if returns == Returns::Nothing {
        batch(conn, &script).await?;
        return receive(SqlReply::done(0));
    }
    if !others.is_empty() {
        batch(conn, others).await?;
    }
    let last = DieselQuery::of_text(last);
    if returns == Returns::Rows {
        rows(conn, last, receive).await
    } else {
        count(conn, last, receive).await
    }
}
