//! The bank does not reply to a charge: the next call asks before it pays.
//!
//! `cargo run -p idem-quickstart --example reconcile` prints:
//!
//! ```text
//! order-7, first call
//!     (the body charges the card)
//!     no reply from the bank; the outcome is unknown
//! order-7, retry
//!     (the hook asks the bank)
//!     charge 1 of 1250 cents
//! order-7, duplicate
//!     charge 1 of 1250 cents
//! order-8, first call
//!     (the body charges the card)
//!     no reply from the bank; the outcome is unknown
//! order-8, retry
//!     (the hook asks the bank)
//!     (the body charges the card)
//!     charge 3 of 1250 cents
//! order-8, duplicate
//!     charge 3 of 1250 cents
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its answers")]

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Context, Engine, Reconciled, context, idempotent};
use serde::{Deserialize, Serialize};
use tokio::time::{Duration, sleep};

#[derive(Clone, Serialize)]
struct PayRequest {
    order_no: &'static str,
    cents: u64,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum PayError {
    /// The card may have been charged: no body runs before the outcome is known.
    #[class(unknown)]
    TimedOut,
    /// A refusal by idem.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for PayError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

impl fmt::Display for PayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no reply from the bank; the outcome is unknown"),
            Self::Idempotency(error) => error.fmt(f),
        }
    }
}

#[derive(Default)]
struct Payments {
    bank: Bank,
}

impl Payments {
    #[idempotent(op = "payments.pay", key = req.order_no, reconcile = Self::find_charge)]
    async fn pay(&self, req: PayRequest) -> Result<String, PayError> {
        println!("    (the body charges the card)");
        // The bank stores the charge under this key. It is the same in each attempt and in the hook.
        let key = context().derive_key("charge");
        self.bank.charge(&key, req.cents).await
    }

    /// Runs before the body after a crash or an unknown outcome.
    ///
    /// The hook has the claim of the key, so that no other hook and no body runs meanwhile.
    async fn find_charge(
        &self,
        _req: &PayRequest,
        cx: &Context,
    ) -> Result<Reconciled<String>, PayError> {
        println!("    (the hook asks the bank)");
        Ok(match self.bank.find(&cx.derive_key("charge")).await? {
            // The answer of the call: it is stored, and the body does not run.
            Some(charge) => Reconciled::Landed(charge),
            // The body runs. Correct only if the charge cannot arrive later, either.
            None => Reconciled::NotLanded,
        })
    }
}

const NETWORK: Duration = Duration::from_millis(10);

/// Stands for the bank. It loses the reply to its first charge, and the second charge itself.
#[derive(Default)]
struct Bank(Mutex<Ledger>);

#[derive(Default)]
struct Ledger {
    calls: u32,
    charges: HashMap<String, String>,
}

impl Bank {
    async fn charge(&self, key: &str, cents: u64) -> Result<String, PayError> {
        sleep(NETWORK).await;
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.calls += 1;
        let call = ledger.calls;
        if call != 2 {
            let charge = format!("charge {call} of {cents} cents");
            ledger.charges.insert(key.to_owned(), charge);
        }
        match call {
            1 | 2 => Err(PayError::TimedOut),
            _ => Ok(ledger.charges[key].clone()),
        }
    }

    async fn find(&self, key: &str) -> Result<Option<String>, PayError> {
        sleep(NETWORK).await;
        let ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ledger.charges.get(key).cloned())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Engine::new(MemoryStore::new()).install()?;
    let payments = Payments::default();

    for order_no in ["order-7", "order-8"] {
        for call in ["first call", "retry", "duplicate"] {
            println!("{order_no}, {call}");
            let cents = 1_250;
            match payments.pay(PayRequest { order_no, cents }).await {
                Ok(charge) => println!("    {charge}"),
                Err(error) => println!("    {error}"),
            }
        }
    }
    Ok(())
}
