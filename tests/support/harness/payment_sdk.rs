//! A client that retries requests on its own.

use std::env;
use std::time::Duration;

use serde_json::Value;

use crate::Worker;
use crate::builder::find;
use crate::edition::in_workspace;
use crate::node::node;
use crate::worker::WorkerBuilder;

/// Variable that names another Python, which has the SDK.
const VARIABLE: &str = "IDEM_STRIPE_PYTHON";
/// Path at which `scripts/test tools` installs the SDK, below the root of the workspace.
const PLACE: &str = "target/servers/stripe-16.1.0/bin/python";

/// The language of a [`PaymentSdk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SdkLanguage {
    JavaScript,
    Python,
}

impl SdkLanguage {
    fn program(self) -> WorkerBuilder {
        match self {
            Self::JavaScript => node(include_str!("payment_sdk.js")),
            // Isolated: neither the user's packages nor those of the working directory.
            Self::Python => {
                Worker::program(python()).args(["-I", "-c", include_str!("payment_sdk.py")])
            }
        }
    }
}

fn python() -> std::path::PathBuf {
    let python = find(VARIABLE, env::var_os(VARIABLE), in_workspace(PLACE), || {
        format!(
            "no payment SDK at `{PLACE}` of the workspace; run `bash scripts/test tools`, or set {VARIABLE} to the path \
             of a Python 3 that has the package `stripe` 16.1.0"
        )
    });
    python.unwrap_or_else(|error| panic!("{error}"))
}

/// An official SDK of a payment provider in a process of its own, killed on drop, which uses a server on loopback as
/// that provider.
///
/// It repeats a request on its own when the connection fails, or the status is 409 or at least 500, unless the reply's
/// header `Stripe-Should-Retry` decides otherwise; at first after 0.5 s. All repetitions have the same `Idempotency-Key`.
#[derive(Debug)]
pub struct PaymentSdk {
    worker: Worker,
}

impl PaymentSdk {
    /// Starts an SDK whose provider is at `base`, such as `http://127.0.0.1:8080`.
    ///
    /// It repeats a request at most `repeats` times, and waits for each reply as long as `patience`. The panic without an
    /// SDK names the remedy.
    pub fn start(language: SdkLanguage, base: &str, repeats: u32, patience: Duration) -> Self {
        let worker = language
            .program()
            .args([
                base,
                &repeats.to_string(),
                &patience.as_millis().to_string(),
            ])
            .spawn();
        Self { worker }
    }

    /// Begins a call, whose [`outcome`](PaymentSdk::outcome) is fetched later. All calls that were begun run at the same
    /// time.
    ///
    /// `call` is `pay` (version 1, a `PaymentIntent`), `send` (version 2, an `OutboundPayment`) or `delete` (version 2, the
    /// event destination `id`); `params` are the parameters; `idempotency_key` is missing if the SDK is to make one.
    pub fn begin(&mut self, call: &Value) {
        self.worker.send(&call.to_string());
    }

    /// Outcome of the earliest call whose outcome has not been fetched: `http_status`, `headers` (names in lower case)
    /// and `body` of the last reply; for a failure `error`, the SDK's name for it, and `message`.
    pub fn outcome(&mut self) -> Value {
        let line = self.worker.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
