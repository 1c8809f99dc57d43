//! Tables.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::done::Done;
use crate::metadata::{Commit, NewTable};
use crate::namespaces;
use crate::refusal::Refusal;

/// The name of a table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableName {
    /// The namespace, as its text.
    pub(crate) namespace: String,
    /// The name in the namespace.
    pub(crate) name: String,
}

impl TableName {
    fn text(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }
}

/// The response document of a table.
///
/// A real catalog writes the metadata to that location before the commit, under a name of its own: after a rollback the
/// file is garbage, not an effect.
fn document(metadata: &Value, commits: i64) -> Value {
    let location = metadata["location"].as_str().unwrap_or_default();
    let location = format!("{location}/metadata/{commits:05}.metadata.json");
    json!({ "metadata-location": location, "metadata": metadata, "config": {} })
}

pub(crate) async fn load(conn: &mut PgConnection, table: &TableName) -> Result<Value, Refusal> {
    let query = "SELECT metadata, commits FROM tables WHERE namespace = $1 AND name = $2";
    let found: Option<(Json<Value>, i64)> = sqlx::query_as(query)
        .bind(&table.namespace)
        .bind(&table.name)
        .fetch_optional(conn)
        .await?;
    let (Json(metadata), commits) = found.ok_or_else(|| Refusal::NoSuchTable(table.text()))?;
    Ok(document(&metadata, commits))
}

pub(crate) async fn create(
    conn: &mut PgConnection,
    warehouse: &str,
    namespace: String,
    new: NewTable,
) -> Result<Done, Refusal> {
    namespaces::load(&mut *conn, &namespace).await?;
    let uuid: String = sqlx::query_scalar("SELECT gen_random_uuid()::text")
        .fetch_one(&mut *conn)
        .await?;
    let location = format!("{warehouse}/{uuid}");
    let is_staged = new.stage_create;
    let name = new.name.clone();
    let metadata = new.metadata(&uuid, location)?;
    if !is_staged {
        insert(conn, &TableName { namespace, name }, &metadata).await?;
    }
    Ok(Done::with(document(&metadata, 0)))
}

async fn insert(
    conn: &mut PgConnection,
    table: &TableName,
    metadata: &Value,
) -> Result<(), Refusal> {
    let insert = "INSERT INTO tables VALUES ($1, $2, 0, $3) ON CONFLICT DO NOTHING";
    let inserted = sqlx::query(insert)
        .bind(&table.namespace)
        .bind(&table.name)
        .bind(Json(metadata))
        .execute(conn)
        .await?;
    if inserted.rows_affected() == 0 {
        return Err(Refusal::AlreadyExists(table.text()));
    }
    Ok(())
}

/// Applies the updates if the requirements hold. The lock of the row serializes the commits to a table.
pub(crate) async fn commit(
    conn: &mut PgConnection,
    table: &TableName,
    commit: &Commit,
) -> Result<Done, Refusal> {
    let query =
        "SELECT metadata, commits FROM tables WHERE namespace = $1 AND name = $2 FOR UPDATE";
    let found: Option<(Json<Value>, i64)> = sqlx::query_as(query)
        .bind(&table.namespace)
        .bind(&table.name)
        .fetch_optional(&mut *conn)
        .await?;
    let Some((Json(metadata), commits)) = found else {
        if !commit.creates() {
            return Err(Refusal::NoSuchTable(table.text()));
        }
        namespaces::load(&mut *conn, &table.namespace).await?;
        let metadata = commit.apply(Value::Null)?;
        insert(conn, table, &metadata).await?;
        return Ok(Done::with(document(&metadata, 0)));
    };
    let (metadata, commits) = (commit.apply(metadata)?, commits + 1);
    let update = "UPDATE tables SET metadata = $3, commits = $4 WHERE namespace = $1 AND name = $2";
    sqlx::query(update)
        .bind(&table.namespace)
        .bind(&table.name)
        .bind(Json(&metadata))
        .bind(commits)
        .execute(conn)
        .await?;
    Ok(Done::with(document(&metadata, commits)))
}

pub(crate) async fn drop(conn: &mut PgConnection, table: &TableName) -> Result<Done, Refusal> {
    let deleted = sqlx::query("DELETE FROM tables WHERE namespace = $1 AND name = $2")
        .bind(&table.namespace)
        .bind(&table.name)
        .execute(conn)
        .await?;
    if deleted.rows_affected() == 0 {
        return Err(Refusal::NoSuchTable(table.text()));
    }
    Ok(Done::nothing())
}

/// Renames a table.
///
/// The second of two concurrent renames to one name violates the primary key: a failure of the database, whose repeat
/// finds the name taken.
pub(crate) async fn rename(
    conn: &mut PgConnection,
    from: &TableName,
    to: &TableName,
) -> Result<Done, Refusal> {
    namespaces::load(&mut *conn, &to.namespace).await?;
    if load(&mut *conn, to).await.is_ok() {
        return Err(Refusal::AlreadyExists(to.text()));
    }
    let update = "UPDATE tables SET namespace = $3, name = $4 WHERE namespace = $1 AND name = $2";
    let renamed = sqlx::query(update)
        .bind(&from.namespace)
        .bind(&from.name)
        .bind(&to.namespace)
        .bind(&to.name)
        .execute(conn)
        .await?;
    if renamed.rows_affected() == 0 {
        return Err(Refusal::NoSuchTable(from.text()));
    }
    Ok(Done::nothing())
}
