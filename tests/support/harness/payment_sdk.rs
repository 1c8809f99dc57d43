//! A client that retries requests on its own.

use std::env;
use std::time::Duration;

use serde_json::Value;

use crate::Worker;
use crate::builder::find;
use crate::edition::in_workspace;

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

/// Settings of a [`PaymentSdk`]; see [`PaymentSdk::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct PaymentSdkBuilder {
    base: String,
    retries: u32,
    timeout: Duration,
}

impl PaymentSdk {
    /// An SDK whose provider is at `base`, such as `http://127.0.0.1:8080`. By default it repeats a request
    /// twice and waits 20 s for a reply.
    pub fn builder(base: impl Into<String>) -> PaymentSdkBuilder {
        PaymentSdkBuilder {
            base: base.into(),
            retries: 2,
            timeout: Duration::from_secs(20),
        }
    }

    /// Makes a payment, and returns its outcome: `http_status`, `headers` (names in lower
    /// case) and `body` of the last reply, and `error` and `message` when it failed.
    ///
    /// The payment has the parameters of a `PaymentIntent`, such as `amount` and `currency`, and
    /// `idempotency_key`, unless the SDK is to make one of its own.
    ///
    /// # Panics
    ///
    /// When the SDK ends, or takes longer than the [limit](crate::HANG_LIMIT).
    pub fn pay(&mut self, payment: &Value) -> Value {
        self.begin(payment);
        self.outcome()
    }

    /// Begins a payment, whose [`outcome`](PaymentSdk::outcome) is fetched later. Payments are
    /// made one after the other.
    pub fn begin(&mut self, payment: &Value) {
        self.worker.send(&payment.to_string());
    }

    /// Outcome of the earliest payment whose outcome has not been fetched; see
    /// [`pay`](PaymentSdk::pay).
    ///
    /// # Panics
    ///
    /// When the SDK ends, or takes longer than the [limit](crate::HANG_LIMIT).
    pub fn outcome(&mut self) -> Value {
        let line = self.worker.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The process, to be paused or killed.
    pub fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

impl PaymentSdkBuilder {
    /// Maximum number of retries of a request.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Reply timeout of the SDK. After that it repeats the request.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the SDK.
    ///
    /// # Panics
    ///
    /// When it is missing; the message names the remedy.
    #[must_use]
    pub fn start(self) -> PaymentSdk {
        let python = find(VARIABLE, env::var_os(VARIABLE), in_workspace(PLACE), || {
            format!(
                "no payment SDK at `{PLACE}` of the workspace; run `bash scripts/test tools`, or set \
                 {VARIABLE} to the path of a Python 3 that has the package `stripe` 16.1.0"
            )
        });
        let python = python.unwrap_or_else(|error| panic!("{error}"));
        // Isolated: neither the user's packages nor those of the working directory.
        let worker = Worker::program(python)
            .args(["-I", "-c", SCRIPT])
            .arg(self.base)
            .arg(self.retries.to_string())
            .arg(self.timeout.as_secs_f64().to_string())
            .spawn();
        PaymentSdk { worker }
    }
}
