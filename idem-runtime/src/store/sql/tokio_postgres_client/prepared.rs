//! The prepared statements of a connection.

use std::sync::Arc;

use tokio_postgres::{Client, Error, RowStream, Statement};

use super::values::Parameter;
use crate::store::sql::session::SqlStatement;

/// The maximum number of statements of a connection. A store has about twenty.
const MOST: usize = 64;

/// The statements that a connection keeps under names, the oldest first.
///
/// A failed statement stays. The pool replaces the connection if the failure may be that of a prepared statement: a
/// plan whose columns have changed (0A000), or a statement that the session has lost (26000).
#[derive(Default)]
pub(super) struct PreparedStatements(Vec<Prepared>);

struct Prepared {
    /// Compared by its address, which is unique while it is held.
    text: Arc<str>,
    statement: Statement,
}

impl PreparedStatements {
    /// Sends a statement by its name. The first time it is prepared, by a message of its own.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        statement: SqlStatement<'_>,
    ) -> Result<RowStream, Error> {
        let text = statement.text();
        let (parameters, types): (Vec<_>, Vec<_>) =
            statement.arguments().map(Parameter::typed).unzip();
        let is_kept =
            |kept: &&Prepared| Arc::ptr_eq(&kept.text, text) && kept.statement.params() == types;
        if let Some(kept) = self.0.iter().find(is_kept) {
            return client.query_raw(&kept.statement, parameters).await;
        }
        let statement = client.prepare_typed(text, &types).await?;
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Prepared {
            text: Arc::clone(text),
            statement: statement.clone(),
        });
        client.query_raw(&statement, parameters).await
    }
}
