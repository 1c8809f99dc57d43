//! Sends requests to a catalog of its own, and prints the responses; or serves one.
//!
//! `cargo run -p idem-iceberg` prints, with the database that `DATABASE_URL` names, or with a server of its own:
//!
//! ```text
//! a namespace:                         200
//!     again, as after a lost response: 200, replayed
//! a table:                             200 00000.metadata.json
//! a commit:                            200 00001.metadata.json
//!     again:                           200 00001.metadata.json, replayed
//!     another commit under its key:    422 UnprocessableEntityException: this key came before with another request: a new request needs a new key
//!     another operation:               422 UnprocessableEntityException: this key came before with another request: a new request needs a new key
//! a commit for another schema:         409 CommitFailedException: not met: "assert-current-schema-id"
//!     again:                           409 CommitFailedException: not met: "assert-current-schema-id"
//! the end of the table:                204
//!     again:                           204, replayed
//! a key that is no UUID of version 7:  400 BadRequestException: the Idempotency-Key header does not have the form that this API asks for
//! ```
//!
//! `cargo run -p idem-iceberg -- 127.0.0.1:8181` serves a catalog there, for example to `PyIceberg`.

#![allow(clippy::print_stdout, reason = "the program shows its responses")]

use std::env;
use std::error::Error;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use idem_harness::PostgresServer;
use idem_iceberg::catalog::Catalog;
use idem_iceberg::routes::routes;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server;
    let url = if let Ok(url) = env::var("DATABASE_URL") {
        url
    } else {
        server = PostgresServer::builder().durable().start();
        server.url()
    };
    let warehouse = env::temp_dir().join("idem-iceberg");
    let warehouse = format!("file://{}", warehouse.display());
    let service = routes(Catalog::open(&url, &warehouse).await?);
    match env::args().nth(1) {
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(&address).await?;
            println!("http://{}", listener.local_addr()?);
            Ok(axum::serve(listener, service).await?)
        }
        None => story(&service).await,
    }
}

async fn story(service: &Router) -> Result<(), Box<dyn Error>> {
    let shop = Uuid::now_v7().to_string();
    let tables = format!("/v1/namespaces/{shop}/tables");
    let orders = &format!("{tables}/orders");
    let field = json!({ "id": 1, "name": "number", "required": true, "type": "long" });
    let schema = json!({ "type": "struct", "schema-id": 0, "fields": [field] });
    let commit = |schema, owner| {
        json!({
            "requirements": [{ "type": "assert-current-schema-id", "current-schema-id": schema }],
            "updates": [{ "action": "set-properties", "updates": { "owner": owner } }],
        })
    };
    let namespace = ("POST", "/v1/namespaces", json!({ "namespace": [&shop] }));
    let table = json!({ "name": "orders", "schema": schema });
    let table = ("POST", &*tables, table);
    let [ann, bob] = ["ann", "bob"].map(|owner| ("POST", &**orders, commit(0, owner)));
    let late = ("POST", &**orders, commit(7, "ann"));
    let end = ("DELETE", &**orders, Value::Null);
    let [k1, k2, k3, k4, k5] = [(); 5].map(|()| Uuid::now_v7().to_string());
    for (what, key, (method, path, body)) in [
        ("a namespace:", &*k1, &namespace),
        ("    again, as after a lost response:", &k1, &namespace),
        ("a table:", &k2, &table),
        ("a commit:", &k3, &ann),
        ("    again:", &k3, &ann),
        ("    another commit under its key:", &k3, &bob),
        ("    another operation:", &k3, &end),
        ("a commit for another schema:", &k4, &late),
        ("    again:", &k4, &late),
        ("the end of the table:", &k5, &end),
        ("    again:", &k5, &end),
        ("a key that is no UUID of version 7:", "order-7", &end),
    ] {
        let request = Request::builder().method(*method).uri(*path);
        let request = request.header("authorization", "Bearer ann");
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", key);
        let request = request.body(Body::from(body.to_string()))?;
        let response = service.clone().oneshot(request).await?;
        let status = response.status().as_u16();
        let is_replay = response.headers().contains_key("idempotent-replayed");
        let body = to_bytes(response.into_body(), usize::MAX).await?;
        let document = serde_json::from_slice(&body).unwrap_or_default();
        let replayed = if is_replay { ", replayed" } else { "" };
        println!("{what:<36} {status}{}{replayed}", shown(&document));
    }
    Ok(())
}

/// The error of a response, or the table's metadata file.
fn shown(document: &Value) -> String {
    let error = &document["error"];
    if let (Some(name), Some(message)) = (error["type"].as_str(), error["message"].as_str()) {
        return format!(" {name}: {message}");
    }
    let location = document["metadata-location"].as_str().unwrap_or_default();
    let file = location.rsplit_once('/');
    file.map_or_else(String::new, |(_, file)| format!(" {file}"))
}
