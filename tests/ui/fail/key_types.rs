//! Keys, scopes and labels of wrong types, one-time tokens among them.

use axum::extract::Path;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent, token::token};

#[derive(serde::Serialize)]
struct Order(u64);

struct User;

#[idempotent(key = (user, amount), fingerprint = none, on_error = release)]
async fn not_serializable(user: User, amount: u64) -> Result<u64, Error> {
    Ok(amount)
}

#[idempotent(key = "order-{order}", on_error = release)]
async fn placeholder_not_shown(order: Order) -> Result<u64, Error> {
    Ok(order.0)
}

#[idempotent(key = order.0, label = order, on_error = release)]
async fn label_not_shown(order: Order) -> Result<u64, Error> {
    Ok(order.0)
}

#[idempotent(key = order.0, label = "order {order}", on_error = release)]
async fn label_in_a_format_string_not_shown(order: Order) -> Result<u64, Error> {
    Ok(order.0)
}

#[idempotent(op = "orders.create", key = number, fingerprint = none, on_error = release)]
async fn axum_path(number: Path<u32>) -> Result<Reply<u32>, Error> {
    Ok(Reply::created(*number))
}

#[idempotent(op = "orders.submit", key = (token(form_token, user), user), on_error = release)]
async fn token_in_a_tuple(form_token: &str, user: u64) -> Result<u64, Error> {
    Ok(user)
}

#[idempotent(op = "orders.submit", key = token(form_token, user), fingerprint = none, on_error = release)]
async fn token_of_a_subject_not_serializable(form_token: &str, user: User) -> Result<u64, Error> {
    Ok(1)
}

#[idempotent(op = "orders.submit", scope = user, key = token(form_token, user), on_error = release)]
async fn token_beside_a_scope(form_token: &str, user: u64) -> Result<u64, Error> {
    Ok(user)
}

#[idempotent(op = "orders.submit", scope = public, key = token(form_token, user), on_error = release)]
async fn token_beside_a_public_scope(form_token: &str, user: u64) -> Result<u64, Error> {
    Ok(user)
}

#[idempotent(op = "orders.submit", scope = token(form_token, user), key = user, on_error = release)]
async fn token_as_scope(form_token: &str, user: u64) -> Result<u64, Error> {
    Ok(user)
}

mod own {
    use super::*;

    /// No token of `idem_runtime`.
    fn token(key: &IdempotencyKey) -> String {
        key.0.clone()
    }

    #[idempotent(key = token(&key), on_error = release)]
    async fn token_of_a_client_key(key: IdempotencyKey) -> Result<Reply<u32>, Error> {
        Ok(Reply::ok(1))
    }
}

fn main() {}
