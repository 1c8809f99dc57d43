//! The order flow: a unit of each item out of the stock, a row for each, and the record of the call.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use idem_runtime::{Classify, Engine, Error, ErrorKind};
use idem_tests::lines::{random, say};
use idem_tests::orders::database::{OUTAGE, PATIENCE};
use idem_tests::orders::order::items;
use serde::{Deserialize, Serialize};

use crate::clients::{Client, ClientError};

#[derive(Classify, Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Refusal {
    #[class(business)]
    SoldOut { item: i64, receipt: String },
    /// Any other error of the database.
    #[class(system)]
    Database(String),
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        Self::Database(error.0)
    }
}

/// The text of an answer; its receipt is unique to its body.
fn told(answer: &Result<String, Refusal>) -> String {
    match answer {
        Ok(receipt) => format!("placed {receipt}"),
        Err(Refusal::SoldOut { item, receipt }) => format!("refused {receipt} {item}"),
        Err(other) => format!("none {other:?}"),
    }
}

/// The resources with which a worker takes orders.
pub(crate) struct Clerk<C: Client> {
    pub(crate) engine: Engine,
    pub(crate) pool: C::Pool,
    pub(crate) stop: Mutex<Option<Stop>>,
}

/// A step at which one order goes no further.
pub(crate) struct Stop {
    /// Number of orders that pass the step before.
    pub(crate) passing: u64,
    pub(crate) step: String,
}

/// Prints the steps of an order.
struct Steps<'a> {
    number: u64,
    ran: AtomicBool,
    stop: &'a Mutex<Option<Stop>>,
}

impl Steps<'_> {
    async fn tell(&self, step: &str) {
        say(&format!("step {} {step}", self.number));
        if self.ends_at(step) {
            say("stopped");
            pending::<()>().await;
        }
    }

    fn ends_at(&self, step: &str) -> bool {
        let mut end = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = end.as_mut().filter(|at| at.step == step) {
            let Some(left) = at.passing.checked_sub(1) else {
                *end = None;
                return true;
            };
            at.passing = left;
        }
        false
    }
}

impl<C: Client> Clerk<C> {
    /// Retries until the order has its answer, and prints the answer.
    pub(crate) async fn serve(&self, number: u64) {
        let began = Instant::now();
        loop {
            let steps = Steps {
                number,
                ran: AtomicBool::new(false),
                stop: &self.stop,
            };
            steps.tell("taken").await;
            let answer = self.once(&steps).await;
            match &answer {
                Ok(_) | Err(Refusal::SoldOut { .. }) => {
                    let ran = steps.ran.load(Ordering::Relaxed);
                    let how = if ran { "ran" } else { "replayed" };
                    say(&format!("answer {number} {how} {}", told(&answer)));
                    return;
                }
                Err(Refusal::Idem(error)) if !error.is_retryable() => {
                    panic!("order {number}: {error}")
                }
                Err(_) => {}
            }
            say(&format!("again {number} {}", told(&answer)));
            let patient = began.elapsed() < OUTAGE;
            assert!(patient, "order {number} has no answer: {}", told(&answer));
            tokio::time::sleep(PATIENCE / 2_000).await;
        }
    }

    async fn once(&self, steps: &Steps<'_>) -> Result<String, Refusal> {
        let work = async |tx: &mut C::Tx<'_>| {
            steps.tell("begun").await;
            let call = self.engine.operation("orders.place").key(&steps.number);
            let call = call
                .in_tx(tx)
                .run(async |tx: &mut C::Tx<'_>, _| body::<C>(tx, steps).await);
            let answer: Result<String, Refusal> = call.await;
            let ran = steps.ran.load(Ordering::Relaxed);
            let (step, commits) = match &answer {
                Err(Refusal::Idem(error)) if *error.kind() == ErrorKind::TransactionAborted => {
                    ("aborted", false)
                }
                _ if ran => ("recorded", true),
                _ => ("replayed", true),
            };
            steps.tell(step).await;
            ((answer, step), commits)
        };
        let (answer, step) = C::in_transaction(&self.pool, work).await?;
        if step == "recorded" {
            steps.tell("committed").await;
        }
        answer
    }
}

/// The statements of an order; prints a step after each. A refusal does not undo the statements before it.
async fn body<C: Client>(tx: &mut C::Tx<'_>, steps: &Steps<'_>) -> Result<String, Refusal> {
    steps.ran.store(true, Ordering::Relaxed);
    steps.tell("claimed").await;
    let number = steps.number;
    for item in items(number) {
        let update =
            format!("UPDATE stock SET units = units - 1 WHERE item = {item} AND units > 0");
        if C::change(tx, update).await? == 0 {
            let receipt = random();
            return Err(Refusal::SoldOut { item, receipt });
        }
        steps.tell("booked").await;
        let insert = format!("INSERT INTO orders (number, item) VALUES ({number}, {item})");
        C::change(tx, insert).await?;
        steps.tell("ordered").await;
    }
    Ok(random())
}
