//! A payment is called repeatedly, and the card is charged once.
//!
//! `cargo run -p idem-quickstart --example quickstart` prints:
//!
//! ```text
//!                (the bank receives its call 1)
//!    first call: the bank is down, and nothing was charged
//!                (the bank receives its call 2)
//!         retry: charge 2 of 1250 cents
//!     duplicate: charge 2 of 1250 cents
//!  other amount: `payments.pay`: this key was used before with other arguments; use a new key for a new request
//!                (the bank receives its call 3)
//!      declined: the card was declined
//!     duplicate: the card was declined
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its answers")]

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Engine, context, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct PayRequest {
    merchant: &'static str,
    order_no: &'static str,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    charge: String,
}

/// The class of an error decides about a repeat of the call.
#[derive(Debug, Serialize, Deserialize, Classify)]
enum PayError {
    /// An answer: it is stored and replayed.
    #[class(business)]
    Declined,
    /// Nothing has happened: the key is released, and a repeat runs the body.
    #[class(system)]
    BankDown,
    /// A refusal by idem. Its kind decides about a repeat.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for PayError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

impl std::error::Error for PayError {}

impl fmt::Display for PayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined => f.write_str("the card was declined"),
            Self::BankDown => f.write_str("the bank is down, and nothing was charged"),
            Self::Idempotency(error) => error.fmt(f),
        }
    }
}

#[idempotent(op = "payments.pay", key = (req.merchant, req.order_no), ttl = "24h")]
async fn pay(req: PayRequest) -> Result<Receipt, PayError> {
    // The bank's own idempotency key, the same in every attempt of this call: a body that runs
    // again after a crash repeats its charge, and the bank recognizes it.
    let key = context().derive_key("bank.charge");
    let charge = charge_card(&key, req.cents).await?;
    Ok(Receipt { charge })
}

/// Stands for the bank's client.
async fn charge_card(_key: &str, cents: u64) -> Result<String, PayError> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    println!("               (the bank receives its call {call})");
    match (call, cents) {
        (1, _) => Err(PayError::BankDown),
        (_, 0) => Err(PayError::Declined),
        _ => Ok(format!("charge {call} of {cents} cents")),
    }
}

/// Calls `pay` and prints its answer, as a repeating client sees it.
async fn request(label: &str, order_no: &'static str, cents: u64) {
    let merchant = "m-1";
    let req = PayRequest {
        merchant,
        order_no,
        cents,
    };
    match pay(req).await {
        Ok(receipt) => println!("{label:>13}: {}", receipt.charge),
        Err(error) => println!("{label:>13}: {error}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In production a store that outlives the process and that all processes share, as in
    // `RedisStore::connect("redis://127.0.0.1:6379").await?`.
    Engine::new(MemoryStore::new()).install()?;

    request("first call", "order-7", 1_250).await;
    request("retry", "order-7", 1_250).await;
    request("duplicate", "order-7", 1_250).await;
    request("other amount", "order-7", 9_999).await;
    request("declined", "order-8", 0).await;
    request("duplicate", "order-8", 0).await;
    Ok(())
}
