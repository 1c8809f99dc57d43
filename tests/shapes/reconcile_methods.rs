//! Hooks of methods, which are lent the receiver.

// A hook is async also where it has nothing to await.
#![allow(clippy::unused_async)]

use super::Runs;
use super::reconcile::{Answer, Found, Lost, again};
use async_trait::async_trait;
use idem_runtime::{Context, Reconciled, idempotent};
use std::sync::Arc;

struct Bank {
    name: String,
    runs: Runs,
}

impl Bank {
    fn new() -> Self {
        Self {
            name: "bank".to_owned(),
            runs: Runs::default(),
        }
    }

    async fn find(&self, order: &u64, _: &Context) -> Found {
        tokio::task::yield_now().await;
        Reconciled::Landed(format!("{} {order}", self.name))
    }

    #[idempotent(on_error = unknown, reconcile = Self::find)]
    async fn by_ref(&self, order: u64) -> Answer {
        let _ = (order, self.runs.hit());
        Err(Lost::OnTheWay)
    }

    #[idempotent(on_error = unknown, reconcile = Self::find)]
    async fn by_mut(&mut self, order: u64) -> Answer {
        self.name.push('!');
        let _ = (order, self.runs.hit());
        Err(Lost::OnTheWay)
    }

    #[idempotent(on_error = unknown, on_cancel = finish, reconcile = Self::find)]
    async fn shared(self: Arc<Self>, order: u64) -> Answer {
        let _ = (order, self.runs.hit());
        tokio::task::yield_now().await;
        Err(Lost::OnTheWay)
    }

    #[idempotent(key = order, on_error = unknown, reconcile = self.find(&order, &idem_runtime::context()))]
    async fn called(&self, order: u64) -> Answer {
        let _ = (order, self.runs.hit());
        Err(Lost::OnTheWay)
    }
}

#[async_trait]
trait Dynamic: Send + Sync {
    async fn pay(&self, order: u64, note: &str) -> Answer;

    async fn refund(self: Arc<Self>, order: u64) -> Answer;
}

async fn find_paid(bank: &Bank, order: &u64, note: &str, _: &Context) -> Found {
    tokio::task::yield_now().await;
    Reconciled::Landed(format!("{} {order} {note}", bank.name))
}

#[async_trait]
impl Dynamic for Bank {
    #[idempotent(op = "shapes.dynamic.pay", on_error = unknown, reconcile = find_paid)]
    async fn pay(&self, order: u64, note: &str) -> Answer {
        if note.is_empty() {
            return Ok(order.to_string());
        }
        self.runs.hit();
        Err(Lost::OnTheWay)
    }

    #[idempotent(op = "shapes.dynamic.refund", on_error = unknown, on_cancel = finish, reconcile = Self::find)]
    async fn refund(self: Arc<Self>, order: u64) -> Answer {
        let _ = (order, self.runs.hit());
        tokio::task::yield_now().await;
        Err(Lost::OnTheWay)
    }
}

#[tokio::test]
async fn the_hook_is_lent_the_receiver() {
    let (bank, shared) = (Bank::new(), Arc::new(Bank::new()));
    let (mut mutable, dynamic) = (Bank::new(), Arc::new(Bank::new()) as Arc<dyn Dynamic>);
    let found = [
        again(async || bank.by_ref(1).await).await,
        again(async || bank.called(2).await).await,
        again(async || mutable.by_mut(3).await).await,
        again(async || Arc::clone(&shared).shared(5).await).await,
        again(async || dynamic.pay(6, "note").await).await,
        again(async || Arc::clone(&dynamic).refund(7).await).await,
    ];
    let expected = [
        "bank 1",
        "bank 2",
        "bank! 3",
        "bank 5",
        "bank 6 note",
        "bank 7",
    ];
    assert_eq!(found, expected.map(|found| Ok(found.to_owned())));
    assert_eq!(shared.runs.count(), 1);
}
