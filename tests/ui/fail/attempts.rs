//! `max_attempts` and `count_errors`.

use idem_runtime::{Error, idempotent};

#[derive(serde::Serialize, serde::Deserialize)]
struct PayError;

impl From<Error> for PayError {
    fn from(_: Error) -> Self { Self }
}

#[idempotent(key = order, on_error = release, max_attempts = none)]
async fn not_a_number(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, max_attempts = 70_000)]
async fn too_many(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, max_attempts = 0)]
async fn zero(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, max_attempts = 1, on_outage = run)]
async fn once_and_unprotected(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, count_errors = yes)]
async fn not_a_bool(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, max_attempts = 1, count_errors = false)]
async fn errors_of_one_attempt(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = keep, count_errors = true)]
async fn errors_that_are_kept(order: u64) -> Result<u64, PayError> { Ok(order) }

#[idempotent(key = order, on_error = release, max_attempts = unlimited, count_errors = true)]
async fn errors_without_limit(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
