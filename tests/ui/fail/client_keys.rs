//! A client's key without a scope, as one, or in a label.

#![allow(unused)]

use axum::extract::{Extension, Json, State};
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::key::redacted;
use idem_runtime::{Error, idempotent};

#[derive(Clone)]
struct Shop;

struct User;

// The competitor who sends the key and the order of another user reads that user's answer.
#[idempotent(op = "orders.create", key = idempotency_key, on_error = release)]
async fn alone(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<String>,
) -> Result<Reply<String>, Error> {
    Ok(Reply::created(order))
}

#[idempotent(key = ("order", key.0), on_error = release)]
async fn in_a_tuple(key: IdempotencyKey) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = key.as_str(), on_error = release)]
async fn by_its_text(key: idem_runtime::http::IdempotencyKey) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = "{order}-{key}", on_error = release)]
async fn in_a_format_string(order: u32, IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = format!("{key}-{}", order), on_error = release)]
async fn formatted(order: u32, IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = key.map(|key| key.0), on_error = release)]
async fn optional(#[idem(skip)] key: Option<IdempotencyKey>) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

// The orders of two requests without a key would be one call.
#[idempotent(key = ("order", key), scope = tenant, on_error = release)]
async fn optional_in_a_tuple(key: Option<IdempotencyKey>, tenant: u64) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = ("order", key), scope = tenant, on_error = release)]
async fn optional_by_reference(key: &Option<IdempotencyKey>, tenant: u64) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = key, on_error = release)]
async fn of_a_layer(Extension(key): Extension<IdempotencyKey>) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(on_error = release)]
async fn in_the_fingerprint(IdempotencyKey(key): IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(fingerprint(order, key.0), on_error = release)]
async fn listed(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(scope = key.as_str(), key = order, on_error = release)]
async fn scope_by_its_text(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(scope = "client-{key}", key = key, on_error = release)]
async fn scope_in_a_format_string(IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(scope = ("shop", &key), key = order, on_error = release)]
async fn scope_in_a_tuple(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = key.as_str(), scope = tenant, label = key.as_str(), on_error = release)]
async fn whole_label(key: IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> { Ok(Reply::ok(1)) }

#[idempotent(key = &key, scope = tenant, label = "{tenant}/{key}", on_error = release)]
async fn label_in_a_format_string(IdempotencyKey(key): IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> { Ok(Reply::ok(1)) }

// No mistake.
#[idempotent(key = key.as_str(), scope = tenant, label = redacted(key.as_str(), 4), on_error = release)]
async fn label_of_its_end(key: IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> { Ok(Reply::ok(1)) }

fn main() {}
