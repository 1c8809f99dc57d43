//! Durations: their form, their range, `forever`, and those without effect.

use idem_runtime::{Error, idempotent};

#[idempotent(key = order, ttl = "")]
async fn empty(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "1.5h")]
async fn fraction(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "-1h")]
async fn negative(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = 24h, on_running = wait(5), error_ttl = 0x10)]
async fn not_quoted(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = 30)]
async fn number(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "18446744073709551616ms")]
async fn too_long(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "3hours")]
async fn unknown_unit(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "30")]
async fn without_unit(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "1h1h")]
async fn out_of_order(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "0s")]
async fn zero(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_running = wait("0s"))]
async fn wait_zero(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, error_ttl = "0s")]
async fn error_ttl_zero(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_running = wait)]
async fn wait_without_duration(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "3651d")]
async fn ttl_above_limit(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, lease = "25h")]
async fn lease_above_limit(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, lease = "50ms")]
async fn lease_below_limit(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, max_run = "0s")]
async fn max_run_zero(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, lease = "30s", max_run = "10s")]
async fn max_run_shorter_than_lease(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = keep, ttl = "forever", error_ttl = "forever", lease = "forever")]
async fn forever_in_quotes(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, lease = forever, max_run = forever, on_running = wait(forever))]
async fn forever_is_not_for_all(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, error_ttl = "1h")]
async fn error_ttl_of_released_errors(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = unknown, error_ttl = "1h")]
async fn error_ttl_of_unknown_errors(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
