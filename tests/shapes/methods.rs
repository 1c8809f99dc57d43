//! Inherent methods.

use super::{Answer, Runs, once, twice};
use idem_runtime::idempotent;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

struct Shop<'r> {
    tenant: String,
    sold: u64,
    runs: &'r Runs,
}

impl<'r> Shop<'r> {
    fn of(runs: &'r Runs) -> Self {
        Self {
            tenant: "tenant".to_owned(),
            sold: 0,
            runs,
        }
    }

    #[idempotent(scope = self.tenant, key = order)]
    async fn by_ref(&self, order: u64) -> Answer {
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
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn boxed(self: Box<Self>, order: u64) -> Answer {
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn pinned(self: Pin<&mut Self>, order: u64) -> Answer {
        Ok(self.runs.hit())
    }

    #[idempotent]
    async fn associated(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
        Ok(runs.hit())
    }

    #[idempotent(key = order)]
    pub(super) async fn borrowed<'a>(&'a self, order: &'a str) -> Answer {
        let _: &'a str = order;
        Ok(self.runs.hit())
    }
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
async fn receivers_of_every_kind() {
    once("associated", async |runs| Shop::associated(1, runs).await).await;
    once("by_ref", async |runs| Shop::of(runs).by_ref(1).await).await;
    once("borrowed", async |runs| Shop::of(runs).borrowed("1").await).await;
    assert_eq!(
        twice(async |runs| Shop::of(runs).by_mut(7).await).await,
        Ok(7)
    );
    assert_eq!(
        twice(async |runs| Shop::of(runs).by_value(7).await).await,
        Ok(7)
    );
    once("shared", async |runs| {
        Arc::new(Shop::of(runs)).shared(7).await
    })
    .await;
    once("boxed", async |runs| {
        Box::new(Shop::of(runs)).boxed(7).await
    })
    .await;
    once("pinned", async |runs| {
        Pin::new(&mut Shop::of(runs)).pinned(7).await
    })
    .await;
    let call = async |runs: &Runs| {
        let rows = [1_u8];
        Repository { rows, runs }.insert(7).await
    };
    assert_eq!(twice(call).await, Ok(1));
}
