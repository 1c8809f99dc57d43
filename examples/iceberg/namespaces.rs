//! Namespaces.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::mutation::Done;
use crate::refusal::Refusal;

/// Separates the levels of a namespace.
const SEPARATOR: &str = "\u{1f}";

/// A request for a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewNamespace {
    namespace: Vec<String>,
    #[serde(default)]
    properties: Map<String, Value>,
}

/// The levels of a namespace, as its text.
pub(crate) fn name_of(levels: &[String]) -> String {
    levels.join(SEPARATOR)
}

pub(crate) async fn load(conn: &mut PgConnection, name: &str) -> Result<Value, Refusal> {
    let query = "SELECT properties FROM namespaces WHERE name = $1";
    let properties: Option<Json<Value>> = sqlx::query_scalar(query)
        .bind(name)
        .fetch_optional(conn)
        .await?;
    let Json(properties) = properties.ok_or_else(|| Refusal::NoSuchNamespace(name.into()))?;
    let levels: Vec<_> = name.split(SEPARATOR).collect();
    Ok(json!({ "namespace": levels, "properties": properties }))
}

pub(crate) async fn create(conn: &mut PgConnection, new: NewNamespace) -> Result<Done, Refusal> {
    let name = name_of(&new.namespace);
    let insert = "INSERT INTO namespaces VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let inserted = sqlx::query(insert)
        .bind(&name)
        .bind(Json(&new.properties))
        .execute(conn)
        .await?;
    if inserted.rows_affected() == 0 {
        return Err(Refusal::AlreadyExists(name));
    }
    Ok(Done(Some(json!(new))))
}
