//! Concurrent calls of one order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_tests::orders::database::{Database, PATIENCE};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::flow::{Clerk, Manner, Receipt, Refusal, Told};
use crate::{random, say};

/// Longer than a test takes, so that it ends only when the test moves the time.
const LEASE: Duration = Duration::from_mins(1);

/// Lets the bodies of a burst end.
pub(crate) type Go = watch::Sender<bool>;

impl<D: Database> Clerk<D> {
    /// So many calls of one order at once. Prints `begun` when all are under way, and
    /// `burst <answers> <tries> <different answers> <one of them>` at the end.
    pub(crate) async fn burst(self: Arc<Self>, number: u64, count: usize, go: Arc<Go>) {
        let tries = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (this, go, tries) = (Arc::clone(&self), Arc::clone(&go), Arc::clone(&tries));
            tasks.spawn(async move { this.one_of_many(number, count, &go, &tries).await });
        }
        let answers = tasks.join_all().await;
        let different: BTreeSet<_> = answers.iter().collect();
        let (tries, first) = (tries.load(Ordering::Relaxed), &answers[0]);
        say(&format!(
            "burst {} {tries} {} {first}",
            answers.len(),
            different.len()
        ));
    }

    async fn one_of_many(&self, number: u64, count: usize, go: &Go, tries: &AtomicUsize) -> String {
        let began = Instant::now();
        loop {
            if tries.fetch_add(1, Ordering::Relaxed) + 1 == count {
                say("begun");
            }
            let answer = self.insert(number, go).await;
            let told = Told(&answer);
            match &answer {
                Ok(Receipt(receipt)) => return receipt.clone(),
                Err(Refusal::Idem(error)) => assert!(error.is_retryable(), "{told}"),
                Err(_) => {}
            }
            say(&format!("again {number} {told}"));
            assert!(began.elapsed() < 3 * PATIENCE, "no answer: {told}");
            tokio::time::sleep(PATIENCE / 2_000).await;
        }
    }

    async fn insert(&self, number: u64, go: &Go) -> Result<Receipt, Refusal> {
        let body = async |conn: &mut D::Connection| {
            let mut go = go.subscribe();
            go.wait_for(|go| *go).await.expect("the sender lives");
            let insert = format!("INSERT INTO orders (number) VALUES ({number})");
            D::change(conn, insert).await?;
            Ok(Receipt(random()))
        };
        let call = self.engine.operation("orders.insert").key(&number);
        if let Manner::Lease = self.manner {
            let answer = call.lease(LEASE).run(async |_| {
                let mut conn = self.pool.acquire().await?;
                body(&mut conn).await
            });
            return answer.await;
        }
        let mut tx = self.pool.begin().await?;
        let answer = call.in_tx(&mut *tx);
        let answer = answer.run(async |conn: &mut D::Connection, _| body(conn).await);
        let receipt = answer.await?;
        tx.commit().await?;
        Ok(receipt)
    }
}
