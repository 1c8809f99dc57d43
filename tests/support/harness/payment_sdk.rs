//! Clients that pay, and that repeat requests.

use std::time::Duration;

use serde_json::Value;

use crate::Worker;
use crate::scripts::{node, python};
use crate::worker::WorkerBuilder;

/// The program of a [`PaymentSdk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    StripeForNode,
    StripeForPython,
    /// The reference client of x402. It answers a 402 by the same request with a signed payment. It needs no network
    /// beside the server.
    X402ForNode,
}

impl Sdk {
    fn program(self) -> WorkerBuilder {
        match self {
            Self::StripeForNode => node(include_str!("payment_sdk.js")),
            Self::StripeForPython => {
                let script = include_str!("payment_sdk.py");
                python("IDEM_STRIPE_PYTHON", "stripe", "16.1.0", script)
            }
            Self::X402ForNode => node(include_str!("payment_sdk_x402.js")),
        }
    }
}

/// An official SDK in its own process, paying a loopback server. It is killed on drop.
///
/// Those of Stripe repeat a request on their own when the connection fails, or the status is 409 or at least 500, unless
/// the reply's header `Stripe-Should-Retry` decides otherwise; at first after 0.5 s. That of x402 repeats none, so that its
/// script does. All repetitions have the same key.
#[derive(Debug)]
pub struct PaymentSdk {
    worker: Worker,
}

impl PaymentSdk {
    /// Starts an SDK whose server is at `base`, such as `http://127.0.0.1:8080`.
    ///
    /// It repeats a request at most `repeats` times, and waits for each reply as long as `patience`. The panic without an
    /// SDK names the remedy.
    pub fn start(sdk: Sdk, base: &str, repeats: u32, patience: Duration) -> Self {
        let worker = sdk
            .program()
            .args([
                base,
                &repeats.to_string(),
                &patience.as_millis().to_string(),
            ])
            .spawn();
        Self { worker }
    }

    /// Makes calls at the same time, and returns their outcomes. The scripts (`payment_sdk.py`, `payment_sdk_x402.js`)
    /// describe both.
    pub fn make(&mut self, calls: impl IntoIterator<Item = Value>) -> Vec<Value> {
        let calls = calls
            .into_iter()
            .map(|call| self.worker.send(&call.to_string()));
        let calls = calls.count();
        let outcomes = (0..calls).map(|_| self.worker.line());
        outcomes
            .map(|line| {
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}
