//! A client of an Iceberg catalog.

use std::time::Duration;

use serde_json::Value;

use crate::Worker;
use crate::scripts::python;

const SCRIPT: &str = include_str!("catalog_client.py");

/// `PyIceberg` in a process of its own, killed on drop.
///
/// It sends no key by itself, and repeats nothing but a commit that failed. Here its HTTP session has an adapter that
/// repeats a request which has no reply in time, or 503; a mutation has an `Idempotency-Key`, a UUID of version 7, if
/// the catalog's configuration has an `idempotency-key-lifetime`.
#[derive(Debug)]
pub struct CatalogClient {
    worker: Worker,
}

impl CatalogClient {
    /// Starts a client of the catalog at `base` with a bearer token. `base` is an address such as
    /// `http://127.0.0.1:8181`. The panic without `PyIceberg` names the remedy.
    pub fn start(base: &str, token: &str, timeout: Duration, with_keys: bool) -> Self {
        let timeout = timeout.as_secs_f64().to_string();
        let keys = if with_keys { "keys" } else { "none" };
        let python = python("IDEM_PYICEBERG_PYTHON", "pyiceberg", "0.12.0", SCRIPT);
        let worker = python.args([base, token, &timeout, keys]).spawn();
        Self { worker }
    }

    /// Carries out an operation: its name, which is that of a function of the script, and its arguments.
    ///
    /// # Errors
    ///
    /// The exception, as `error` and `message`.
    pub fn run(&mut self, operation: &Value) -> Result<(), Value> {
        self.worker.send(&operation.to_string());
        let line = self.worker.line();
        let outcome: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if outcome.is_null() {
            Ok(())
        } else {
            Err(outcome)
        }
    }
}
