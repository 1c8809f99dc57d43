//! Closures of `ttl` that are none, and closures where there are none.

use idem_runtime::{Error, idempotent};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[idempotent(key = order, on_error = release, ttl = |answer, attempt| DAY)]
async fn two_parameters(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = || DAY)]
async fn no_parameter(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = async |answer| DAY)]
async fn it_waits(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = keep, error_ttl = |error| DAY)]
async fn of_errors(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, lease = |answer| DAY, on_running = wait(|answer| DAY))]
async fn of_other_times(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = (|answer| DAY, "7d"))]
async fn the_wrong_way_round(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = ("7d", "1d"))]
async fn two_times(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = ("7d", self::life))]
async fn a_function(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = "7d", |answer| DAY)]
async fn no_parentheses(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = "7d", move |answer: &u64, attempt| DAY, lease = 7)]
async fn no_parentheses_and_another_mistake(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = ("1d", "7d", |answer| DAY))]
async fn three(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = (|answer| DAY, |answer| DAY))]
async fn two_closures(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = ("0s", |answer| DAY))]
async fn no_maximum(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = (7d, |answer| DAY))]
async fn not_quoted(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = keep, error_ttl = ("1d", "7d"))]
async fn two_times_of_errors(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, ttl = "1d", ttl = |answer| DAY)]
async fn twice(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
