//! A client that pays for what it requests.

use std::time::Duration;

use serde_json::Value;

use crate::Worker;
use crate::node::node;

/// The reference client of x402 in a process of its own, killed on drop.
///
/// It answers a 402 by the same request with a signed payment, for which it needs no network beside the server. An
/// application around it repeats a purchase with the same payment identifier until there is a final reply.
#[derive(Debug)]
pub struct PayingClient {
    worker: Worker,
}

impl PayingClient {
    /// Starts a client of the server at `base`, which waits for each reply as long as `patience`. The panic without one
    /// names the remedy.
    pub fn start(base: &str, patience: Duration) -> Self {
        let worker = node(include_str!("paying_client.js"))
            .args([base, &patience.as_millis().to_string()])
            .spawn();
        Self { worker }
    }

    /// Begins a purchase, whose [`outcome`](PayingClient::outcome) is fetched later: `method`, `path`, `body` and `id`. All
    /// purchases that were begun run at the same time, each with an account of its own.
    pub fn begin(&mut self, purchase: &Value) {
        self.worker.send(&purchase.to_string());
    }

    /// Outcome of the earliest purchase whose outcome has not been fetched: `status`, `headers` and `body` of the last
    /// reply, `receipt` (its settlement), `payer` (the account) and `tries`.
    pub fn outcome(&mut self) -> Value {
        let line = self.worker.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
