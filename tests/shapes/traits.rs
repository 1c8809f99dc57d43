//! Methods of traits, native and through `#[async_trait]`.

use super::{Answer, Runs, once};
use async_trait::async_trait;
use idem_runtime::idempotent;
use std::future::Future;

struct Bank<'a>(&'a Runs);

trait Native {
    fn runs(&self) -> &Runs;

    async fn pay(&self, order: u64) -> Answer;

    #[idempotent]
    async fn refund(&self, order: u64) -> Answer {
        Ok(self.runs().hit())
    }
}

impl Native for Bank<'_> {
    fn runs(&self) -> &Runs {
        self.0
    }

    #[idempotent(key = order)]
    async fn pay(&self, order: u64) -> Answer {
        Ok(self.0.hit())
    }
}

trait Desugared {
    fn send(&self, order: u64) -> impl Future<Output = Answer> + Send;
}

impl Desugared for Bank<'_> {
    #[idempotent(key = order)]
    async fn send(&self, order: u64) -> Answer {
        tokio::task::yield_now().await;
        Ok(self.0.hit())
    }
}

#[async_trait]
trait Dynamic: Sync {
    fn runs(&self) -> &Runs;

    async fn charge(&self, order: u64, note: &str) -> Answer;

    async fn count(&mut self, order: u64) -> Answer;

    #[idempotent(op = "shapes.dynamic.reverse", key = "{order}")]
    async fn reverse(&self, order: u64) -> Answer {
        let _ = order;
        Ok(self.runs().hit())
    }
}

#[async_trait]
impl Dynamic for Bank<'_> {
    fn runs(&self) -> &Runs {
        self.0
    }

    #[idempotent(op = "shapes.dynamic.charge", key = order)]
    async fn charge(&self, order: u64, note: &str) -> Answer {
        if note.is_empty() {
            return Ok(order.try_into().unwrap_or(0));
        }
        tokio::task::yield_now().await;
        Ok(self.0.hit())
    }

    #[idempotent]
    async fn count(&mut self, mut order: u64) -> Answer {
        order += 1;
        let _ = order;
        Ok(self.0.hit())
    }
}

#[async_trait(?Send)]
trait Local {
    async fn local(&self, order: u64) -> Answer;
}

#[async_trait(?Send)]
impl Local for Bank<'_> {
    #[idempotent]
    async fn local(&self, order: u64) -> Answer {
        let order = std::rc::Rc::new(order);
        tokio::task::yield_now().await;
        drop(order);
        Ok(self.0.hit())
    }
}

trait Pays {
    async fn settle(&self, id: u64, runs: &Runs) -> Answer;
}

trait Refunds {
    async fn settle(&self, id: u64, runs: &Runs) -> Answer;
}

struct Till;

impl Pays for Till {
    #[idempotent]
    async fn settle(&self, id: u64, #[idem(skip)] runs: &Runs) -> Answer {
        Ok(runs.hit())
    }
}

impl Refunds for Till {
    #[idempotent]
    async fn settle(&self, id: u64, #[idem(skip)] runs: &Runs) -> Answer {
        Ok(runs.hit())
    }
}

#[tokio::test]
async fn methods_of_one_name_in_two_traits_do_not_share_answers() {
    let runs = Runs::default();
    let engine = idem_runtime::Engine::new(idem_runtime::store::memory::MemoryStore::new());
    let paid = engine.scope(Pays::settle(&Till, 7, &runs)).await;
    let refunded = engine.scope(Refunds::settle(&Till, 7, &runs)).await;
    assert_eq!((paid, refunded), (Ok(1), Ok(2)));
}

fn dynamic(runs: &Runs) -> Box<dyn Dynamic + '_> {
    Box::new(Bank(runs))
}

#[tokio::test]
async fn methods_of_traits() {
    once("pay", async |runs| Bank(runs).pay(1).await).await;
    once("refund", async |runs| Bank(runs).refund(1).await).await;
    once("send", async |runs| Bank(runs).send(1).await).await;
    once("local", async |runs| Bank(runs).local(1).await).await;
    // Methods of `async_trait` are called through `dyn`.
    once("charge", async |runs| dynamic(runs).charge(1, "note").await).await;
    once("reverse", async |runs| dynamic(runs).reverse(1).await).await;
    once("count", async |runs| dynamic(runs).count(1).await).await;
}
