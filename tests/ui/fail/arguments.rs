//! Arguments that cannot be read: their names, and the form of what follows.

#![allow(unused)]

use idem_runtime::{Error, idempotent};

#[derive(Clone, serde::Serialize)]
struct Req {
    id: u64,
    cents: u64,
}

#[idempotent(key = order, on_eror = keep)]
async fn misspelt(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, retries = 3)]
async fn unknown(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, prefix = "shop")]
async fn of_the_engine(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(idempotency_key = order, expiry = "24h", wait = "5s", skip(note))]
async fn in_other_words(order: u64, note: String) -> Result<u64, Error> { Ok(order) }

#[idempotent("payments.pay", order)]
async fn positional(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, ttl = "24h", ttl = "1h")]
async fn twice(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key, op = "pay")]
async fn without_value(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key == order)]
async fn compared(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "a", key: id, on_error = release)]
async fn colon(id: u64) -> Result<u64, Error> { Ok(id) }

#[idempotent(op = "a", key(id), on_error = release)]
async fn parentheses(id: u64) -> Result<u64, Error> { Ok(id) }

#[idempotent(key = order ttl = "24h")]
async fn without_comma(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "payments.pay", key = order.)]
async fn breaks_off(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = 'order)]
async fn lifetime(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = req.id, req.cents)]
async fn two_fields(req: Req) -> Result<u64, Error> { Ok(req.id + req.cents) }

#[idempotent(key = a, b)]
async fn two_arguments(a: u64, b: u64) -> Result<u64, Error> { Ok(a + b) }

#[idempotent(key = order, crate = "::idem_runtime")]
async fn crate_in_quotes(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key => order)]
async fn arrow(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(kye = order, ttl = "1 day", fingerprint(amount))]
async fn five_mistakes(order: u64, #[idem(skipp)] note: &str) -> Result<&str, Error> {
    Ok("")
}

fn caller() {
    // The function stands, so a call of it is no mistake.
    drop(five_mistakes(1, ""));
}

fn main() {}
