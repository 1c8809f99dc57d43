//! The requests of a client, and their responses.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use idem_runtime::Answer;
use idem_runtime::http::{Profile, iso8601_duration};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::catalog::Catalog;
use crate::metadata::{Commit, NewTable};
use crate::mutation::{Done, LIFETIME, Mutation};
use crate::namespaces::{self, NewNamespace, name_of};
use crate::refusal::Refusal;
use crate::tables::{self, TableName};

type Body<T> = Result<Json<T>, JsonRejection>;
type Mutated = Result<Answer<Done>, Refusal>;
type Found = Result<Json<Value>, Refusal>;

/// The routes of a catalog.
pub fn routes(catalog: Catalog) -> Router {
    let tables = "/v1/namespaces/{namespace}/tables";
    let table = get(load_table).post(commit_table).delete(drop_table);
    Router::new()
        .route("/v1/config", get(config))
        .route("/v1/namespaces", post(create_namespace))
        .route("/v1/namespaces/{namespace}", get(load_namespace))
        .route(tables, post(create_table))
        .route(&format!("{tables}/{{name}}"), table)
        .route("/v1/tables/rename", post(rename_table))
        .layer(Extension(Profile::iceberg_rest()))
        .with_state(catalog)
}

async fn config() -> Json<Value> {
    Json(json!({
        "defaults": {},
        "overrides": {},
        "idempotency-key-lifetime": iso8601_duration(LIFETIME),
        "endpoints": [
            "POST /v1/{prefix}/namespaces",
            "GET /v1/{prefix}/namespaces/{namespace}",
            "POST /v1/{prefix}/namespaces/{namespace}/tables",
            "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
            "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
            "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
            "POST /v1/{prefix}/tables/rename",
        ],
    }))
}

async fn load_namespace(State(catalog): State<Catalog>, Path(name): Path<String>) -> Found {
    let mut conn = catalog.pool.acquire().await?;
    Ok(Json(namespaces::load(&mut conn, &name).await?))
}

async fn load_table(State(catalog): State<Catalog>, Path(table): Path<TableName>) -> Found {
    let mut conn = catalog.pool.acquire().await?;
    Ok(Json(tables::load(&mut conn, &table).await?))
}

async fn create_namespace(caller: Caller, body: Body<NewNamespace>) -> Mutated {
    caller.mutate(Mutation::CreateNamespace(body?.0)).await
}

async fn create_table(
    caller: Caller,
    Path(namespace): Path<String>,
    body: Body<NewTable>,
) -> Mutated {
    let Json(table) = body?;
    caller.mutate(Mutation::CreateTable(namespace, table)).await
}

async fn commit_table(caller: Caller, Path(table): Path<TableName>, body: Body<Commit>) -> Mutated {
    let Json(commit) = body?;
    caller.mutate(Mutation::CommitTable(table, commit)).await
}

async fn drop_table(caller: Caller, Path(table): Path<TableName>) -> Mutated {
    caller.mutate(Mutation::DropTable(table)).await
}

async fn rename_table(caller: Caller, body: Body<Renaming>) -> Mutated {
    let Json(Renaming {
        source,
        destination,
    }) = body?;
    let mutation = Mutation::RenameTable(source.into(), destination.into());
    caller.mutate(mutation).await
}

/// A request to rename a table.
#[derive(Deserialize)]
struct Renaming {
    source: Identifier,
    destination: Identifier,
}

#[derive(Deserialize)]
struct Identifier {
    namespace: Vec<String>,
    name: String,
}

impl From<Identifier> for TableName {
    fn from(Identifier { namespace, name }: Identifier) -> Self {
        let namespace = name_of(&namespace);
        Self { namespace, name }
    }
}
