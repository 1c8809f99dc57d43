//! Answers whose types cannot be stored.

use axum::Json;
use axum::http::StatusCode;
use idem_runtime::{Error, idempotent};
use std::sync::Arc;

struct Receipt;

#[idempotent(key = order, on_error = release)]
async fn not_serializable(order: u64) -> Result<Receipt, Error> {
    Ok(Receipt)
}

#[idempotent(key = order, on_error = release)]
async fn within_an_answer(order: u64) -> Result<idem_runtime::Answer<Receipt>, Error> {
    Ok(Receipt.into())
}

#[idempotent(key = order)]
async fn arc(order: u64) -> Result<Arc<str>, Error> {
    Ok(order.to_string().into())
}

#[idempotent(key = order)]
async fn no_result(order: u64) -> u64 {
    order
}

#[idempotent(key = order, on_error = release)]
async fn json(order: u32) -> Result<Json<u32>, Error> {
    Ok(Json(order))
}

#[idempotent(key = order, on_error = release)]
async fn status_and_json(order: u32) -> Result<(StatusCode, Json<u32>), Error> {
    Ok((StatusCode::CREATED, Json(order)))
}

fn main() {}
