//! Errors that have no class, cannot be stored, or hold no refusal.

use axum::Router;
use axum::routing::post;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Class, Classify, Error, idempotent};

struct Neither;

#[derive(serde::Serialize, serde::Deserialize)]
struct NotClassified;

#[derive(Classify)]
enum NotSerializable {
    #[class(business)]
    Declined,
    #[class(system)]
    Refused,
}

struct WithoutFrom;

impl From<Error> for Neither {
    fn from(_: Error) -> Self { Self }
}

impl From<Error> for NotClassified {
    fn from(_: Error) -> Self { Self }
}

impl From<Error> for NotSerializable {
    fn from(_: Error) -> Self { Self::Refused }
}

#[idempotent(key = order)]
async fn neither_classified_nor_stored(order: u64) -> Result<u64, Neither> {
    if order == 0 { Err(Neither) } else { Ok(order) }
}

#[idempotent(key = order)]
async fn not_classified(order: u64) -> Result<u64, NotClassified> {
    if order == 0 { Err(NotClassified) } else { Ok(order) }
}

#[idempotent(key = order)]
async fn not_serializable(order: u64) -> Result<u64, NotSerializable> {
    if order == 0 { Err(NotSerializable::Declined) } else { Ok(order) }
}

#[idempotent(key = order, on_error = release)]
async fn without_from(order: u64) -> Result<u64, WithoutFrom> {
    if order == 0 { Err(WithoutFrom) } else { Ok(order) }
}

fn judge(_: NotClassified) -> Class {
    Class::System
}

#[idempotent(key = order, on_error = judge)]
async fn judged_by_value(order: u64) -> Result<u64, NotClassified> {
    if order == 0 { Err(NotClassified) } else { Ok(order) }
}

#[idempotent(key = order, on_error = release)]
async fn question_mark_on_another_error(order: &str) -> Result<u64, Error> {
    Ok(order.parse::<u64>()?)
}

#[derive(Classify)]
enum Delegating {
    #[class(delegate)]
    Network(WithoutFrom),
}

fn needs(_: impl Classify) {}

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Neither> {
    Ok(Reply::created(1))
}

fn main() {
    needs(Delegating::Network(WithoutFrom));
    let _: Router = Router::new().route("/orders", post(create));
}
