//! The function of `entry`, beside functions of every form: it takes what they take, and finds what they stored.

#![allow(clippy::unused_async, clippy::many_single_char_names)]

use super::{Answer, Failure, Runs, engine};
use async_trait::async_trait;
use idem_runtime::{
    Engine, Error,
    admin::{Entry, EntryState},
    idempotent,
    store::OutcomeKind,
};
use serde::Serialize;
use std::sync::Arc;

/// Nothing is found before the call, and its answer after it.
#[allow(clippy::future_not_send)]
async fn found<T>(
    entry: impl AsyncFn() -> Result<Option<Entry>, Error>,
    call: impl AsyncFnOnce() -> Answer<T>,
) -> Answer<T> {
    let all = async {
        assert!(entry().await?.is_none());
        let answer = call().await?;
        let found = entry().await?.expect("there is a record");
        assert_eq!(found.state(), EntryState::Answered(OutcomeKind::Value));
        Ok(answer)
    };
    engine().scope(all).await
}

struct Json<T>(T);

#[derive(Clone, Serialize)]
struct Request {
    order: u64,
}

const fn request() -> Request {
    Request { order: 7 }
}

#[idempotent(op = "shapes.entry.patterns", key = (req.order, a), entry = patterns_entry)]
async fn patterns(
    Json(req): Json<Request>,
    (a, mut b): (u64, u64),
    #[idem(skip)] runs: &Runs,
    #[cfg(any())] gone: u8,
    #[idem(skip)] _: u8,
) -> Answer<u64> {
    b += req.order + a;
    runs.hit();
    Ok(b)
}

// Without a key, the fingerprint is the key.
#[idempotent(op = "shapes.entry.fingerprint", entry = fingerprint_entry)]
async fn fingerprint(mut order: u64, note: &str) -> Answer<u64> {
    order += note.len() as u64;
    Ok(order)
}

#[idempotent(op = "shapes.entry.generic", key = (T::NAME, order), entry = generic_entry)]
async fn generic<T>(order: u64, item: T, note: impl AsRef<str> + Serialize) -> Answer<u64>
where
    T: Named + Serialize,
{
    drop(item);
    Ok(order + note.as_ref().len() as u64)
}

trait Named {
    const NAME: &str;
}

impl Named for u8 {
    const NAME: &str = "u8";
}

struct Shop {
    engine: Engine,
    tenant: String,
    sold: u64,
}

impl Shop {
    fn new() -> Self {
        Self {
            engine: engine(),
            tenant: "tenant".to_owned(),
            sold: 0,
        }
    }

    #[idempotent(op = "shop.by_ref", scope = self.tenant, key = order, engine = self.engine, entry = by_ref_entry)]
    async fn by_ref(&self, order: u64) -> Answer<u64> {
        Ok(order)
    }

    #[idempotent(op = "shop.by_mut", scope = self.tenant, key = order, engine = self.engine, entry = by_mut_entry)]
    pub(super) async fn by_mut<'a>(&'a mut self, order: &'a str) -> Answer<u64> {
        self.sold += order.len() as u64;
        Ok(self.sold)
    }

    #[idempotent(
        op = "shop.shared", key = order, engine = self.engine, on_cancel = finish, reconcile = Self::find,
        entry = shared_entry
    )]
    async fn shared(self: Arc<Self>, order: u64) -> Answer<u64> {
        Ok(order)
    }

    async fn find(&self, _: &u64, _: &idem_runtime::Context) -> idem_runtime::Reconciled<u64> {
        let _ = self.sold;
        idem_runtime::Reconciled::Unknown
    }

    #[idempotent(op = "shop.associated", key = order, entry = associated_entry)]
    async fn associated(order: u64) -> Answer<u64> {
        Ok(order)
    }
}

// The implementation has all that the trait declares.
trait Native {
    async fn pay(&self, order: u64) -> Answer<u64>;
    async fn pay_entry(&self, order: u64) -> Result<Option<Entry>, Error>;
}

impl Native for Shop {
    #[idempotent(op = "shop.native", key = order, entry = pay_entry)]
    async fn pay(&self, order: u64) -> Answer<u64> {
        Ok(order)
    }
}

#[async_trait]
trait Dynamic: Send + Sync + 'static {
    async fn charge(&self, order: u64, note: &str) -> Answer<u64>;
    async fn charge_entry(&self, order: u64, note: &str) -> Result<Option<Entry>, Error>;

    // Of a default method it is one, too.
    #[idempotent(op = "shop.refund", key = order, entry = refund_entry)]
    async fn refund(&self, order: u64) -> Answer<u64> {
        Ok(order)
    }

    #[idempotent(op = "shop.by_default", key = order, on_cancel = finish)]
    async fn by_default(self: Arc<Self>, order: u64) -> Answer<u64> {
        Ok(order)
    }
}

#[async_trait]
impl Dynamic for Shop {
    #[idempotent(op = "shop.charge", key = order, entry = charge_entry)]
    async fn charge(&self, order: u64, note: &str) -> Answer<u64> {
        Ok(order + note.len() as u64)
    }
}

#[tokio::test]
async fn a_trait_declares_the_entries_of_its_methods() {
    let shop = Arc::new(Shop::new());
    let answer = found(async || shop.pay_entry(7).await, async || shop.pay(7).await);
    assert_eq!(answer.await, Ok(7));
    let dynamic: Arc<dyn Dynamic> = shop;
    let entry = async || dynamic.charge_entry(7, "a").await;
    let answer = found(entry, async || dynamic.charge(7, "a").await).await;
    assert_eq!(answer, Ok(8));
    let entry = async || dynamic.refund_entry(7).await;
    let answer = found(entry, async || dynamic.refund(7).await).await;
    assert_eq!(answer, Ok(7));
    let shop = Arc::new(Shop::new());
    assert_eq!(engine().scope(shop.by_default(7)).await, Ok(7));
}

#[tokio::test]
async fn a_receiver_is_the_same() -> Result<(), Failure> {
    let mut shop = Shop::new();
    assert!(shop.by_ref_entry(7).await?.is_none());
    shop.by_ref(7).await?;
    assert!(shop.by_ref_entry(7).await?.is_some());
    shop.by_mut("7").await?;
    assert!(shop.by_mut_entry("7").await?.is_some());
    let shop = Arc::new(shop);
    Arc::clone(&shop).shared(7).await?;
    assert!(Arc::clone(&shop).shared_entry(7).await?.is_some());
    assert!(shop.shared_entry(8).await?.is_none());
    let entry = async || Shop::associated_entry(7).await;
    found(entry, async || Shop::associated(7).await).await?;
    Ok(())
}

#[tokio::test]
async fn the_entry_takes_what_its_function_takes() {
    let runs = Runs::default();
    let entry = async || patterns_entry(Json(request()), (1, 2), &runs, 0).await;
    let call = async || patterns(Json(request()), (1, 2), &runs, 0).await;
    assert_eq!(found(entry, call).await, Ok(10));
    assert_eq!(runs.count(), 1);
    let entry = async || fingerprint_entry(7, "note").await;
    let call = async || fingerprint(7, "note").await;
    assert_eq!(found(entry, call).await, Ok(11));
    let entry = async || generic_entry(7, 1_u8, "note").await;
    let call = async || generic(7, 1_u8, "note").await;
    assert_eq!(found(entry, call).await, Ok(11));
}
