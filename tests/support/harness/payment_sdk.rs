//! A client that retries requests on its own.

use std::env;

use serde_json::Value;

use crate::builder::find;
use crate::edition::in_workspace;
use crate::{HANG_LIMIT, Worker};

/// Variable that names another Python, which has the SDK.
const VARIABLE: &str = "IDEM_STRIPE_PYTHON";
/// Path at which `scripts/test tools` installs the SDK, below the root of the workspace.
const PLACE: &str = "target/servers/stripe-16.1.0/bin/python";

const SCRIPT: &str = include_str!("payment_sdk.py");

/// The official Python SDK of a payment provider in a process of its own, killed on drop, which
/// uses a server on loopback as that provider.
///
/// It repeats a request on its own when the connection fails, or the status is 409 or at least
/// 500, unless the reply's header `Stripe-Should-Retry` decides otherwise; at first after 0.5 s. All
/// repetitions have the same `Idempotency-Key`, and the server receives them as
/// `POST /v1/payment_intents`.
#[derive(Debug)]
pub struct PaymentSdk {
    worker: Worker,
}

impl PaymentSdk {
    /// Starts an SDK whose provider is at `base`, such as `http://127.0.0.1:8080`.
    ///
    /// It repeats a request three times, and waits for a reply for the [limit](HANG_LIMIT). The panic without an SDK names
    /// the remedy.
    pub fn start(base: &str) -> Self {
        let python = find(VARIABLE, env::var_os(VARIABLE), in_workspace(PLACE), || {
            format!(
                "no payment SDK at `{PLACE}` of the workspace; run `bash scripts/test tools`, or set \
                 {VARIABLE} to the path of a Python 3 that has the package `stripe` 16.1.0"
            )
        });
        let python = python.unwrap_or_else(|error| panic!("{error}"));
        // Isolated: neither the user's packages nor those of the working directory.
        let worker = Worker::program(python)
            .args(["-I", "-c", SCRIPT, base, "3"])
            .arg(HANG_LIMIT.as_secs().to_string())
            .spawn();
        Self { worker }
    }

    /// Begins a payment, whose [`outcome`](PaymentSdk::outcome) is fetched later. Payments are
    /// made one after the other.
    ///
    /// The payment has the parameters of a `PaymentIntent`, such as `amount` and `currency`, and
    /// `idempotency_key`, unless the SDK is to make one of its own.
    pub fn begin(&mut self, payment: &Value) {
        self.worker.send(&payment.to_string());
    }

    /// Outcome of the earliest payment whose outcome has not been fetched: `http_status`, `headers` (names in lower
    /// case) and `body` of the last reply, and `error` and `message` when it failed.
    pub fn outcome(&mut self) -> Value {
        let line = self.worker.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
