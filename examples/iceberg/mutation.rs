//! A change of the catalog, and the attribute that makes it idempotent.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idem_runtime::http::IdempotencyKey;
use idem_runtime::{Answer, idempotent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use crate::catalog::Catalog;
use crate::metadata::{Commit, NewTable};
use crate::namespaces::{self, NewNamespace};
use crate::refusal::Refusal;
use crate::tables::{self, TableName};

/// The time for repeats of a request: `idempotency-key-lifetime` of the configuration.
pub(crate) const LIFETIME: Duration = Duration::from_mins(30);

/// The life of a record.
///
/// A client counts its own from the first request to the last, which may be late on its way.
const KEPT: Duration = LIFETIME.saturating_add(Duration::from_mins(5));

/// A change of the catalog: operation, resource and body.
///
/// All three are in the fingerprint, so that the key of one mutation is refused with any other.
#[derive(Debug, Serialize)]
pub(crate) enum Mutation {
    /// Creates a namespace.
    CreateNamespace(NewNamespace),
    /// Creates a table in a namespace.
    CreateTable(String, NewTable),
    /// Commits updates to a table.
    CommitTable(TableName, Commit),
    /// Drops a table.
    DropTable(TableName),
    /// Renames the first table to the second name.
    RenameTable(TableName, TableName),
}

/// The answer to a mutation: 200 with a document, or 204.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done(pub(crate) Option<Value>);

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        match self.0 {
            Some(document) => Json(document).into_response(),
            None => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

/// Carries out a mutation.
///
/// Its rows and its record are committed together, in a transaction that idem begins and commits.
///
/// # Errors
///
/// A [`Refusal`]. One of class business is an answer: its record is committed without the rows. After a failure of the
/// database nothing is committed, and a repeat runs.
#[idempotent(
    op = "catalog.mutate",
    scope = client,
    key = key,
    tx = conn,
    ttl = KEPT,
    on_running = wait("2s"),
    engine = catalog.engine
)]
pub(crate) async fn mutate(
    #[idem(skip)] catalog: &Catalog,
    conn: &mut PoolConnection<Postgres>,
    client: &str,
    key: IdempotencyKey,
    mutation: Mutation,
) -> Result<Answer<Done>, Refusal> {
    let done = match mutation {
        Mutation::CreateNamespace(new) => namespaces::create(conn, new).await,
        Mutation::CreateTable(namespace, new) => {
            tables::create(conn, &catalog.warehouse, namespace, new).await
        }
        Mutation::CommitTable(table, commit) => tables::commit(conn, &table, &commit).await,
        Mutation::DropTable(table) => tables::drop(conn, &table).await,
        Mutation::RenameTable(from, to) => tables::rename(conn, &from, &to).await,
    };
    done.map(Answer::from)
}
