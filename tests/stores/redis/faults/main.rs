//! Faults around a Redis, one in each test: the error is clear, the body does not run
//! twice, and no answer is lost.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod access;
mod background;
mod batches;
mod connections;
mod credentials;
mod large_answers;
mod missing_rights;
mod notifications;
mod prelude;
mod records;
mod refusals;
mod relay;
mod replicated;
mod restarts;
mod silence;
mod start_up_report;
mod tls;
mod wrong_settings;

use idem_runtime::__private::KeyBuilder;
use idem_runtime::key::Operation;
use idem_runtime::store::RecordKey;

fn key(number: usize) -> RecordKey {
    let digest = KeyBuilder::new("shop.ask", 64).key(&number).unwrap();
    RecordKey::new("idem".into(), Operation::new("shop.ask"), digest)
}
