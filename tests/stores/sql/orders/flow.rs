//! The order flow: an order row, balances and the journal, and the record of the call.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use idem_runtime::{Classify, Engine, Error, ErrorKind};
use idem_tests::lines::{random, say};
use idem_tests::orders::database::{Database, OUTAGE, PATIENCE};
use idem_tests::orders::order::{Change, Order};
use serde::{Deserialize, Serialize};
use sqlx::Pool;

/// The answer to a placed order. No two bodies give the same.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Receipt(pub(crate) String);

#[derive(Classify, Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Refusal {
    /// There is no stock, or the coupon is used up.
    #[class(business)]
    Nothing { account: i64, receipt: String },
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

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

/// An answer as printed in a line.
pub(crate) struct Told<'a>(pub(crate) &'a Result<Receipt, Refusal>);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(Receipt(receipt)) => write!(f, "placed {receipt}"),
            Err(Refusal::Nothing { account, receipt }) => write!(f, "refused {receipt} {account}"),
            Err(other) => write!(f, "none {other:?}"),
        }
    }
}

/// The resources with which a worker takes orders.
pub(crate) struct Clerk<D: Database> {
    pub(crate) engine: Engine,
    pub(crate) pool: Pool<D::Driver>,
}

/// Prints the steps of one task.
struct Steps {
    task: usize,
    number: u64,
    ran: AtomicBool,
}

impl Steps {
    fn tell(&self, step: &str) {
        say(&format!("step {} {} {step}", self.task, self.number));
    }
}

impl<D: Database> Clerk<D> {
    /// Retries until the order has its answer, and prints the answer.
    pub(crate) async fn serve(&self, task: usize, number: u64) {
        let order = Order::of(number);
        let began = Instant::now();
        loop {
            let steps = Steps {
                task,
                number,
                ran: AtomicBool::new(false),
            };
            steps.tell("taken");
            let answer = self.once(&order, &steps).await;
            match &answer {
                Ok(_) | Err(Refusal::Nothing { .. }) => {
                    steps.tell("answered");
                    let ran = steps.ran.load(Ordering::Relaxed);
                    let how = if ran { "ran" } else { "replayed" };
                    say(&format!("answer {number} {how} {}", Told(&answer)));
                    return;
                }
                Err(Refusal::Idem(error)) if !error.is_retryable() => {
                    panic!("order {number}: {error}")
                }
                Err(_) => {}
            }
            say(&format!("again {number} {}", Told(&answer)));
            let patient = began.elapsed() < OUTAGE;
            assert!(patient, "order {number} has no answer: {}", Told(&answer));
            tokio::time::sleep(PATIENCE / 2_000).await;
        }
    }

    async fn once(&self, order: &Order, steps: &Steps) -> Result<Receipt, Refusal> {
        let call = self.engine.operation("orders.place").key(&order.number);
        let mut tx = self.pool.begin().await?;
        steps.tell("begun");
        let answer = call.in_tx(&mut *tx);
        let answer =
            answer.run(async |conn: &mut D::Connection, _| body::<D>(conn, order, steps).await);
        let answer: Result<Receipt, Refusal> = answer.await;
        match &answer {
            Err(Refusal::Idem(error)) if *error.kind() == ErrorKind::TransactionAborted => {
                steps.tell("aborted");
                tx.rollback().await?;
            }
            _ if steps.ran.load(Ordering::Relaxed) => {
                steps.tell("recorded");
                tx.commit().await?;
                steps.tell("committed");
            }
            _ => {
                steps.tell("replayed");
                tx.commit().await?;
            }
        }
        answer
    }
}

/// The statements of an order; prints a step after each.
async fn body<D: Database>(
    conn: &mut D::Connection,
    order: &Order,
    steps: &Steps,
) -> Result<Receipt, Refusal> {
    steps.ran.store(true, Ordering::Relaxed);
    steps.tell("claimed");
    let number = order.number;
    let insert = format!("INSERT INTO orders (number) VALUES ({number})");
    D::change(conn, insert).await?;
    steps.tell("ordered");
    for change in &order.changes {
        enter::<D>(conn, number, *change, steps).await?;
    }
    Ok(Receipt(random()))
}

/// Changes a balance, and adds a line to the journal. A refusal does not undo the statements before it.
async fn enter<D: Database>(
    conn: &mut D::Connection,
    number: u64,
    change: Change,
    steps: &Steps,
) -> Result<(), Refusal> {
    let Change { account, id, by } = change;
    let table = account.table();
    let update = format!(
        "UPDATE {table} SET units = units + ({by}) WHERE id = {id} AND units + ({by}) >= 0"
    );
    let changed = D::change(conn, update).await?;
    if changed == 0 {
        let (account, receipt) = (account.number(), random());
        return Err(Refusal::Nothing { account, receipt });
    }
    steps.tell(table);
    let balance = D::rows(conn, format!("SELECT units FROM {table} WHERE id = {id}")).await?;
    let (balance, account) = (balance[0][0], account.number());
    let line = format!(
        "INSERT INTO journal (account, place, change_by, balance, number) \
         VALUES ({account}, {id}, {by}, {balance}, {number})"
    );
    D::change(conn, line).await?;
    steps.tell(&format!("{table}-journal"));
    Ok(())
}
