//! Tables.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::types::Json;
use uuid::Uuid;

use crate::metadata::{Commit, NewTable};
use crate::mutation::Done;
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

    /// The refusal of a request that there is no such table for.
    fn missing(&self) -> Refusal {
        Refusal::NoSuchTable(self.text())
    }

    /// The refusal of a row of this name by a constraint.
    fn refused(&self, error: sqlx::Error) -> Refusal {
        match error.as_database_error().map(DatabaseError::kind) {
            Some(ErrorKind::UniqueViolation) => Refusal::AlreadyExists(self.text()),
            Some(ErrorKind::ForeignKeyViolation) => {
                Refusal::NoSuchNamespace(self.namespace.clone())
            }
            _ => error.into(),
        }
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

const FIND: &str = "SELECT metadata, commits FROM tables WHERE namespace = $1 AND name = $2";

/// The lock of the row serializes the commits to a table.
const LOCK: &str =
    "SELECT metadata, commits FROM tables WHERE namespace = $1 AND name = $2 FOR UPDATE";

async fn find(
    conn: &mut PgConnection,
    query: &'static str,
    table: &TableName,
) -> sqlx::Result<Option<(Json<Value>, i64)>> {
    let query = sqlx::query_as(query).bind(&table.namespace);
    query.bind(&table.name).fetch_optional(conn).await
}

pub(crate) async fn load(conn: &mut PgConnection, table: &TableName) -> Result<Value, Refusal> {
    let found = find(conn, FIND, table).await?;
    let (Json(metadata), commits) = found.ok_or_else(|| table.missing())?;
    Ok(document(&metadata, commits))
}

pub(crate) async fn create(
    conn: &mut PgConnection,
    warehouse: &str,
    namespace: String,
    new: NewTable,
) -> Result<Done, Refusal> {
    namespaces::load(conn, &namespace).await?;
    let uuid = Uuid::now_v7();
    let (is_staged, name) = (new.stage_create, new.name.clone());
    let metadata = new.metadata(uuid, format!("{warehouse}/{uuid}"))?;
    if is_staged {
        // It is created by a commit.
        return Ok(Done(Some(document(&metadata, 0))));
    }
    insert(conn, &TableName { namespace, name }, &metadata).await
}

async fn insert(
    conn: &mut PgConnection,
    table: &TableName,
    metadata: &Value,
) -> Result<Done, Refusal> {
    let insert = sqlx::query("INSERT INTO tables VALUES ($1, $2, 0, $3)");
    let insert = insert.bind(&table.namespace).bind(&table.name);
    let inserted = insert.bind(Json(metadata)).execute(conn).await;
    inserted.map_err(|error| table.refused(error))?;
    Ok(Done(Some(document(metadata, 0))))
}

/// Applies the updates if the requirements hold.
pub(crate) async fn commit(
    conn: &mut PgConnection,
    table: &TableName,
    commit: &Commit,
) -> Result<Done, Refusal> {
    let Some((Json(metadata), commits)) = find(conn, LOCK, table).await? else {
        if !commit.creates() {
            return Err(table.missing());
        }
        return insert(conn, table, &commit.apply(Value::Null)?).await;
    };
    let (metadata, commits) = (commit.apply(metadata)?, commits + 1);
    let update = "UPDATE tables SET metadata = $3, commits = $4 WHERE namespace = $1 AND name = $2";
    let update = sqlx::query(update).bind(&table.namespace).bind(&table.name);
    let update = update.bind(Json(&metadata)).bind(commits);
    update.execute(conn).await?;
    Ok(Done(Some(document(&metadata, commits))))
}

pub(crate) async fn drop(conn: &mut PgConnection, table: &TableName) -> Result<Done, Refusal> {
    let delete = sqlx::query("DELETE FROM tables WHERE namespace = $1 AND name = $2");
    let delete = delete.bind(&table.namespace).bind(&table.name);
    match delete.execute(conn).await?.rows_affected() {
        0 => Err(table.missing()),
        _ => Ok(Done(None)),
    }
}

pub(crate) async fn rename(
    conn: &mut PgConnection,
    from: &TableName,
    to: &TableName,
) -> Result<Done, Refusal> {
    let update = "UPDATE tables SET namespace = $3, name = $4 WHERE namespace = $1 AND name = $2";
    let update = sqlx::query(update).bind(&from.namespace).bind(&from.name);
    let update = update.bind(&to.namespace).bind(&to.name);
    let renamed = update
        .execute(conn)
        .await
        .map_err(|error| to.refused(error))?;
    match renamed.rows_affected() {
        0 => Err(from.missing()),
        _ => Ok(Done(None)),
    }
}
