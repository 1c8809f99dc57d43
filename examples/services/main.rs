//! Sends requests to a service of its own, and prints the responses.
//!
//! `cargo run -p idem-services -- actix-web` prints, as `poem`, `rocket` and `salvo` in its place:
//!
//! ```text
//! ann, key "k1", 30 cents to bob
//!     201 transfer 1
//! ann, key "k1", 30 cents to bob
//!     201 transfer 1, replayed
//! ann, key "k1", 99 cents to bob
//!     422 this key came before with another request: a new request needs a new key
//! cat, key "k1", 30 cents to bob
//!     201 transfer 2
//! cat, no key, 30 cents to bob
//!     400 this operation needs an Idempotency-Key header: send one that no other request has, such as a UUID, and the same one when you repeat the request
//! ```
//!
//! `cargo run -p idem-services -- mcp`, where each call has another JSON-RPC id:
//!
//! ```text
//! ann, key "k1", 30 cents to bob
//!     transfer 1
//! ann, key "k1", 30 cents to bob
//!     transfer 1
//! ann, key "k1", 99 cents to bob
//!     error: this key came before with another request: a new request needs a new key. Use a new `idempotency_key` for another transfer.
//! cat, key "k1", 30 cents to bob
//!     transfer 2
//! cat, no key, 30 cents to bob
//!     error: nothing was moved, because there is no key. Call again with `idempotency_key`: a new UUID for this transfer, and the same one whenever you repeat it.
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its responses")]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use idem_services::Service;
use idem_services::bank::{Bank, Order};
use idem_services::client::{call_tool, transfer};
use serde_json::Value;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(service) = Service::named(&name) else {
        eprintln!("cargo run -p idem-services -- actix-web|mcp|poem|rocket|salvo");
        return Ok(ExitCode::from(2));
    };
    let address = service.start(Bank::open())?;
    for (id, (client, key, cents)) in [
        ("ann", Some("k1"), 30),
        ("ann", Some("k1"), 30),
        ("ann", Some("k1"), 99),
        ("cat", Some("k1"), 30),
        ("cat", None, 30),
    ]
    .into_iter()
    .enumerate()
    {
        let of_key = key.map_or("no key".into(), |key| format!("key {key:?}"));
        println!("{client}, {of_key}, {cents} cents to bob");
        let to = "bob".to_owned();
        let order = Order { to, cents };
        let seen = if service == Service::Mcp {
            tool_result(&call_tool(
                address,
                id,
                client,
                key,
                &serde_json::to_value(order)?,
            )?)
        } else {
            response(address, client, key, &order)?
        };
        println!("    {seen}");
    }
    Ok(ExitCode::SUCCESS)
}

fn response(
    address: SocketAddr,
    client: &str,
    key: Option<&str>,
    order: &Order,
) -> Result<String, Box<dyn Error>> {
    let reply = transfer(address, client, key, order)?;
    let document: Value = serde_json::from_str(&reply.body)?;
    let replayed = reply
        .header("idempotent-replayed")
        .map_or("", |_| ", replayed");
    let text = match document["detail"].as_str() {
        Some(detail) => detail.to_owned(),
        None => format!("transfer {}", document["number"]),
    };
    Ok(format!("{} {text}{replayed}", reply.status()))
}

fn tool_result(response: &Value) -> String {
    let result = &response["result"];
    if result["isError"] == true {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        format!("error: {text}")
    } else {
        format!("transfer {}", result["structuredContent"]["number"])
    }
}
