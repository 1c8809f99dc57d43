//! Sends requests to a catalog of its own, and prints the responses; or serves one.
//!
//! `cargo run -p idem-iceberg` prints, with the database that `DATABASE_URL` names, or with a server of its own:
//!
//! ```text
//! a namespace, and the request again, as after a lost response
//!     200
//!     200, replayed
//! a table
//!     200 00000.metadata.json
//! a commit, and again
//!     200 00001.metadata.json
//!     200 00001.metadata.json, replayed
//! another commit under its key, and another operation
//!     422 UnprocessableEntityException: this key came before with another request: a new request needs a new key
//!     422 UnprocessableEntityException: this key came before with another request: a new request needs a new key
//! a commit to what the table is no longer, and again
//!     409 CommitFailedException: not met: "assert-current-schema-id"
//!     409 CommitFailedException: not met: "assert-current-schema-id"
//! the end of the table, and again
//!     204
//!     204, replayed
//! a key that is not a UUID of version 7
//!     400 BadRequestException: the Idempotency-Key header does not have the form that this API asks for
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
use idem_iceberg::uuid;
use serde_json::{Value, json};
use tower::ServiceExt as _;

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
    let shop = uuid::v7();
    let namespace = json!({ "namespace": [shop] });
    let tables = format!("/v1/namespaces/{shop}/tables");
    let field = json!({ "id": 1, "name": "number", "required": true, "type": "long" });
    let schema = json!({ "type": "struct", "schema-id": 0, "fields": [field] });
    let table = json!({ "name": "orders", "schema": schema });
    let orders = format!("{tables}/orders");
    let owner = |name: &str| {
        json!({
            "requirements": [{ "type": "assert-current-schema-id", "current-schema-id": 0 }],
            "updates": [{ "action": "set-properties", "updates": { "owner": name } }],
        })
    };
    let outdated = json!({
        "requirements": [{ "type": "assert-current-schema-id", "current-schema-id": 7 }],
        "updates": [],
    });

    let key = &uuid::v7();
    println!("a namespace, and the request again, as after a lost response");
    for _ in 0..2 {
        send(service, "POST", "/v1/namespaces", key, &namespace).await?;
    }
    println!("a table");
    send(service, "POST", &tables, &uuid::v7(), &table).await?;
    let key = &uuid::v7();
    println!("a commit, and again");
    for _ in 0..2 {
        send(service, "POST", &orders, key, &owner("ann")).await?;
    }
    println!("another commit under its key, and another operation");
    send(service, "POST", &orders, key, &owner("bob")).await?;
    send(service, "DELETE", &orders, key, &Value::Null).await?;
    let key = &uuid::v7();
    println!("a commit to what the table is no longer, and again");
    for _ in 0..2 {
        send(service, "POST", &orders, key, &outdated).await?;
    }
    let key = &uuid::v7();
    println!("the end of the table, and again");
    for _ in 0..2 {
        send(service, "DELETE", &orders, key, &Value::Null).await?;
    }
    println!("a key that is not a UUID of version 7");
    send(service, "DELETE", &orders, "order-7", &Value::Null).await
}

/// Sends a request, and prints its status, its error or the table's metadata file, and whether it is a replay.
async fn send(
    service: &Router,
    method: &str,
    path: &str,
    key: &str,
    body: &Value,
) -> Result<(), Box<dyn Error>> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("authorization", "Bearer ann");
    let request = request.header("content-type", "application/json");
    let request = request.header("idempotency-key", key);
    let request = request.body(Body::from(body.to_string()))?;
    let response = service.clone().oneshot(request).await?;
    print!("    {}", response.status().as_u16());
    let is_replay = response.headers().contains_key("idempotent-replayed");
    let body = to_bytes(response.into_body(), usize::MAX).await?;
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = &document["error"];
    if let (Some(name), Some(message)) = (error["type"].as_str(), error["message"].as_str()) {
        print!(" {name}: {message}");
    }
    let location = document["metadata-location"].as_str().unwrap_or_default();
    if let Some((_, file)) = location.rsplit_once('/') {
        print!(" {file}");
    }
    println!("{}", if is_replay { ", replayed" } else { "" });
    Ok(())
}
