//! A load with every outcome: answers, replays, waits, refusals, errors, unknown outcomes, steps, dead letters.

use std::time::Duration;

use idem_consumers::{Consumer, MemoryQueue};
use idem_runtime::{Classify, Context, Engine, Error, OnDuplicate, OnRunning, step};
use serde::{Deserialize, Serialize};
use tokio::join;
use tokio::time::sleep;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Receipt {
    charge: u64,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum PayError {
    #[class(business)]
    Declined,
    #[class(system)]
    BankDown,
    #[class(unknown)]
    NoReply,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

#[derive(Debug, Deserialize)]
struct Bill {
    account: u64,
}

/// Two engines on one store, as two processes have them.
pub(crate) struct Load {
    here: Engine,
    there: Engine,
}

impl Load {
    pub(crate) fn new(here: Engine, there: Engine) -> Self {
        Self { here, there }
    }

    /// A few calls of each kind; errors are what they are for.
    pub(crate) async fn round(&self, round: u64) {
        join!(self.payments(round), self.order(round), self.bills(round));
        self.codes(round).await;
    }

    /// A payment and its duplicates, here and there: one body, and calls that wait for it.
    async fn payments(&self, round: u64) {
        let pay = |engine: &Engine| {
            let call = engine.operation("payments.pay");
            let call = call.key(&("shop-1", round)).fingerprint(&round);
            let call = call.on_running(OnRunning::Wait(Duration::from_secs(5)));
            async move {
                let paid = call.run(|_| async move {
                    sleep(Duration::from_millis(2 + round % 7)).await;
                    match round % 20 {
                        3 => Err(PayError::Declined),
                        7 => Err(PayError::BankDown),
                        11 => Err(PayError::NoReply),
                        _ => Ok(Receipt { charge: round }),
                    }
                });
                // The subscriber and the exporter show how it ended.
                let _ = paid.await;
            }
        };
        join!(pay(&self.here), pay(&self.here), pay(&self.there));
        // Later duplicates are replayed, by this engine from its cache.
        for _ in 0..5 {
            pay(&self.here).await;
        }
        // The same key for another amount.
        let other = self.here.operation("payments.pay");
        let other = other.key(&("shop-1", round)).fingerprint(&9_999);
        let refused = other.run(|_| async { Ok::<_, PayError>(Receipt { charge: 0 }) });
        let _ = refused.await;
    }

    /// An order of two steps. Every other one fails between them, and is continued.
    async fn order(&self, round: u64) {
        for attempt in 0..2 {
            let call = self.here.operation("orders.place").key(&round);
            let placed = call.run(|_| async move {
                let charge = step("charge", async |_| Ok::<_, PayError>(round)).await?;
                if attempt == 0 && round.is_multiple_of(2) {
                    return Err(PayError::BankDown);
                }
                step("mail", async |_| Ok::<_, PayError>(())).await?;
                Ok(Receipt { charge })
            });
            let _ = placed.await;
        }
    }

    /// A queue with a bill that cannot be collected.
    async fn bills(&self, round: u64) {
        let queue = MemoryQueue::new();
        for account in 0..3 {
            let bill = format!(r#"{{"account":{account}}}"#);
            queue.send(format!("bill-{round}-{account}"), bill);
        }
        queue.close();
        let consumer = Consumer::new(self.here.clone(), "bills.collect");
        let collect = async |bill: Bill| match bill.account {
            2 => Err(PayError::Declined),
            _ => Ok(()),
        };
        let ended = consumer.run(queue, move |bill: Bill, _: Context| collect(bill));
        let _ = ended.await;
    }

    /// A code that is sent once; repeats are refused.
    async fn codes(&self, round: u64) {
        for _ in 0..2 {
            let call = self.there.operation("codes.send").key(&(round / 2));
            let call = call.on_duplicate(OnDuplicate::Reject);
            let sent = call.run(|_| async { Ok::<_, PayError>(()) });
            let _ = sent.await;
        }
    }
}
