//! Concurrent clients with `PyIceberg`: their operations, and the tables after them.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use idem_harness::CatalogClient;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::types::Json;

const CLIENTS: [&str; 3] = ["ann", "bob", "cat"];

/// The tables of each client.
const TABLES: usize = 3;

/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_millis(400);

/// A client's operations on its own tables and a shared one.
fn operations(client: &str) -> Vec<Value> {
    let mut operations = vec![json!({ "operation": "create_namespace", "namespace": client })];
    for number in 0..TABLES {
        let table = format!("{client}.t{number}");
        let last = if number == 0 {
            json!({ "operation": "drop_table", "table": table })
        } else {
            let to = format!("{client}.r{number}");
            json!({ "operation": "rename_table", "table": table, "to": to })
        };
        let create = if number == 1 {
            "stage_table"
        } else {
            "create_table"
        };
        let file = format!("{table}/3");
        operations.extend([
            json!({ "operation": create, "table": table, "properties": {} }),
            json!({ "operation": "set_property", "table": table, "name": "owner", "value": client }),
            json!({ "operation": "set_property", "table": table, "name": "owner", "value": "all" }),
            json!({ "operation": "add_column", "table": table, "name": "text" }),
            json!({ "operation": "append", "table": table, "file": format!("{table}/1") }),
            json!({ "operation": "append", "table": table, "file": format!("{table}/2") }),
            last,
            json!({ "operation": "append", "table": "shared.log", "file": file }),
        ]);
    }
    operations
}

/// A table at the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) commits: i64,
    columns: usize,
    snapshots: usize,
    owner: Option<String>,
}

/// The tables, if each operation was applied once.
pub(crate) fn expected() -> BTreeMap<String, Table> {
    let appends = CLIENTS.len() * TABLES;
    let shared = Table {
        commits: appends.try_into().unwrap(),
        columns: 1,
        snapshots: appends,
        owner: None,
    };
    let own = CLIENTS.iter().flat_map(|client| {
        (1..TABLES).map(move |number| {
            let table = Table {
                commits: 5,
                columns: 2,
                snapshots: 2,
                owner: Some("all".into()),
            };
            (format!("{client}.r{number}"), table)
        })
    });
    own.chain([("shared.log".into(), shared)]).collect()
}

/// The number of operations.
pub(crate) fn count() -> usize {
    CLIENTS.map(|client| operations(client).len()).iter().sum()
}

/// Creates the table that all share.
pub(crate) fn share_a_table(base: &str) {
    let mut client = CatalogClient::start(base, "owner", PATIENCE, true);
    // Commits to it conflict, and PyIceberg commits anew after a conflict.
    let patient = json!({ "commit.retry.num-retries": 100, "commit.retry.min-wait-ms": 10 });
    for operation in [
        json!({ "operation": "create_namespace", "namespace": "shared" }),
        json!({ "operation": "create_table", "table": "shared.log", "properties": patient }),
    ] {
        client.run(&operation).unwrap();
    }
}

/// Runs all clients at once, and returns the errors that they got.
pub(crate) fn run(base: &str, with_keys: bool) -> Vec<Value> {
    thread::scope(|scope| {
        let clients = CLIENTS.map(|name| {
            scope.spawn(move || {
                let mut client = CatalogClient::start(base, name, PATIENCE, with_keys);
                let failed = |operation: Value| client.run(&operation).err();
                let failed = operations(name).into_iter().filter_map(failed);
                failed.collect::<Vec<_>>()
            })
        });
        let clients = clients.into_iter();
        clients.flat_map(|client| client.join().unwrap()).collect()
    })
}

/// The tables of a catalog.
pub(crate) async fn tables(pool: &PgPool) -> BTreeMap<String, Table> {
    let query = "SELECT namespace || '.' || name, commits, metadata FROM tables";
    let rows: Vec<(String, i64, Json<Value>)> =
        sqlx::query_as(query).fetch_all(pool).await.unwrap();
    let tables = rows.into_iter().map(|(name, commits, Json(metadata))| {
        let schemas = metadata["schemas"].as_array().unwrap();
        let is_current = |schema: &&Value| schema["schema-id"] == metadata["current-schema-id"];
        let schema = schemas.iter().find(is_current).unwrap();
        let table = Table {
            commits,
            columns: schema["fields"].as_array().unwrap().len(),
            snapshots: metadata["snapshots"].as_array().unwrap().len(),
            owner: metadata["properties"]["owner"].as_str().map(str::to_owned),
        };
        (name, table)
    });
    tables.collect()
}
