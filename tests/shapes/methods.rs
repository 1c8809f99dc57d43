//! Inherent methods.

use super::{Answer, Runs, twice};
use idem_runtime::idempotent;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

struct Shop {
    tenant: String,
    sold: u64,
    runs: Arc<Runs>,
}

impl Shop {
    fn of(runs: &Arc<Runs>) -> Self {
        Self {
            tenant: "tenant".to_owned(),
            sold: 0,
            runs: Arc::clone(runs),
        }
    }

    #[idempotent(scope = self.tenant, key = order)]
    async fn by_ref(&self, order: u64) -> Answer {
        let _ = order;
        Ok(self.runs.hit())
    }

    #[idempotent(scope = (self.tenant, "eu"), key = order)]
    async fn by_mut(&mut self, order: u64) -> Answer<u64> {
        self.sold += order;
        self.runs.hit();
        tokio::task::yield_now().await;
        Ok(self.sold)
    }

    #[idempotent]
    async fn by_value(mut self, order: u64) -> Answer<u64> {
        self.sold += order;
        self.runs.hit();
        Ok(self.sold)
    }

    #[idempotent(key = "{order}")]
    async fn shared(self: Arc<Self>, order: u64) -> Answer {
        let _ = order;
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn boxed(self: Box<Self>, order: u64) -> Answer {
        let _ = order;
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn pinned(self: Pin<&mut Self>, order: u64) -> Answer {
        let _ = order;
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn associated(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
        let _ = order;
        Ok(runs.hit())
    }

    #[idempotent(key = order)]
    pub(super) async fn borrowed<'a>(&'a self, order: &'a str) -> Answer {
        let _: &'a str = order;
        Ok(self.runs.hit())
    }
}

#[tokio::test]
async fn a_receiver_may_be_borrowed() {
    let runs = Arc::default();
    let shop = Shop::of(&runs);
    assert_eq!(twice(&runs, async || shop.by_ref(1).await).await, Ok(1));
    let runs = Arc::default();
    let shop = Shop::of(&runs);
    assert_eq!(twice(&runs, async || shop.borrowed("1").await).await, Ok(1));
    let runs = Arc::default();
    let mut shop = Shop::of(&runs);
    assert_eq!(twice(&runs, async || shop.by_mut(7).await).await, Ok(7));
    assert_eq!(shop.sold, 7);
}

#[tokio::test]
async fn a_receiver_may_be_owned() {
    let runs = Arc::default();
    assert_eq!(
        twice(&runs, async || Shop::of(&runs).by_value(7).await).await,
        Ok(7)
    );
    let runs = Arc::default();
    assert_eq!(
        twice(&runs, async || Arc::new(Shop::of(&runs)).shared(7).await).await,
        Ok(1)
    );
    let runs = Arc::default();
    assert_eq!(
        twice(&runs, async || Box::new(Shop::of(&runs)).boxed(7).await).await,
        Ok(1)
    );
    let runs = Arc::default();
    let mut shop = Shop::of(&runs);
    assert_eq!(
        twice(&runs, async || Pin::new(&mut shop).pinned(7).await).await,
        Ok(1)
    );
}

#[tokio::test]
async fn there_may_be_no_receiver() {
    let runs = Runs::default();
    assert_eq!(
        twice(&runs, async || Shop::associated(1, &runs).await).await,
        Ok(1)
    );
}

struct Repository<'a, T, const N: usize> {
    rows: [T; N],
    runs: &'a Runs,
}

impl<'a, T: Serialize + Clone + Send + Sync, const N: usize> Repository<'a, T, N> {
    #[idempotent]
    async fn insert(&self, row: T) -> Answer {
        let _: (T, &'a Runs, usize) = (row, self.runs, self.rows.len());
        Ok(self.runs.hit())
    }
}

#[tokio::test]
async fn the_impl_may_be_generic() {
    let runs = Runs::default();
    let repository = Repository {
        rows: [1_u8],
        runs: &runs,
    };
    assert_eq!(
        twice(&runs, async || repository.insert(7).await).await,
        Ok(1)
    );
}
