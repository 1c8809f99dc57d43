//! Arguments whose types have no fingerprint.

use axum::Json;
use axum::extract::State;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};
use std::sync::Arc;

struct Connection;

#[idempotent(key = order, on_error = release)]
async fn slice(order: u64, connections: &'static [Connection]) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release)]
async fn pattern((order, connection): (u64, Connection)) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "payments.pay", key = order, on_error = release, entry = pay_entry)]
async fn beside_an_entry(order: u64, connection: Connection) -> Result<u64, Error> {
    Ok(order)
}

#[derive(serde::Serialize)]
struct Request {
    cents: u64,
}

#[idempotent(key = order, on_error = release)]
async fn arc(order: u64, req: Arc<Request>) -> Result<u64, Error> {
    Ok(order + req.cents)
}

#[idempotent(op = "orders.import")]
async fn generic_length<const N: usize>(file: [u8; N]) -> Result<u64, Error> {
    Ok(file.len() as u64)
}

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn json_without_pattern(key: IdempotencyKey, order: Json<Request>) -> Result<Reply<u32>, Error> {
    Ok(Reply::created(1))
}

#[derive(Clone)]
struct Shop;

#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn state_not_skipped(
    State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Reply<u32>, Error> {
    let Shop = shop;
    Ok(Reply::created(1))
}

fn main() {}
