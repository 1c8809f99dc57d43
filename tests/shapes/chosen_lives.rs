//! The closure of `ttl`: every form in which it is written, beside functions of every form.

#![allow(clippy::unused_async)]

use super::{Answer, Failure, engine};
use async_trait::async_trait;
use idem_harness::TestDir;
use idem_runtime::store::sql::SqliteStore;
use idem_runtime::{Engine, Error, admin::Entry, idempotent, step};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Quote {
    hours: u64,
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 60 * 60)
}

const THREE: Answer<Quote> = Ok(Quote { hours: 3 });

/// How many hours the record of a call lives, after the call.
#[allow(clippy::future_not_send)]
async fn life<T>(
    call: impl Future<Output = Answer<T>>,
    entry: impl Future<Output = Result<Option<Entry>, Error>>,
) -> u64 {
    let both = async {
        assert!(call.await.is_ok());
        left(entry).await
    };
    engine().scope(both).await
}

#[allow(clippy::future_not_send)]
async fn left(entry: impl Future<Output = Result<Option<Entry>, Error>>) -> u64 {
    let entry = entry.await.expect("the store is there");
    let left = entry.expect("there is a record").left();
    left.as_secs().div_ceil(60 * 60)
}

#[idempotent(op = "shapes.ttl.plain", key = id, ttl = |quote| hours(quote.hours), entry = plain_entry)]
async fn plain(id: u64) -> Answer<Quote> {
    THREE
}

#[idempotent(
    op = "shapes.ttl.longer", key = id, on_error = release, entry = longer_entry,
    ttl = ("30d", |quote: &Quote| -> Duration { hours(quote.hours * 100) }),
)]
async fn longer(id: u64) -> Answer<Quote> {
    THREE
}

const MOST: Duration = hours(2);

#[idempotent(op = "shapes.ttl.bounded", key = id, ttl = (MOST, |quote| hours(quote.hours)), entry = bounded_entry)]
async fn bounded(id: u64) -> Answer<Quote> {
    THREE
}

/// A pattern, an option, and an argument that is copied.
#[idempotent(
    op = "shapes.ttl.option", key = id, entry = option_entry, on_error = keep,
    ttl = |Quote { hours: of }| (id == 1).then(|| hours(*of)),
)]
async fn option(id: u64) -> Answer<Quote> {
    THREE
}

#[idempotent(
    op = "shapes.ttl.finished", key = id, on_cancel = finish, ttl = (move |quote| hours(quote.hours + id)),
    entry = finished_entry
)]
async fn finished(id: u64) -> Answer<Quote> {
    THREE
}

/// It dereferences to the stored value.
#[idempotent(op = "shapes.ttl.told", key = id, ttl = |told| hours(told.hours), entry = told_entry)]
async fn told(id: u64) -> Answer<idem_runtime::Answer<Quote>> {
    Ok(idem_runtime::Answer::from(Quote { hours: 3 }))
}

const fn by_system(_: &Failure) -> idem_runtime::Class {
    idem_runtime::Class::System
}

async fn found(_: &u64, _: &idem_runtime::Context) -> idem_runtime::Reconciled<Quote> {
    idem_runtime::Reconciled::Unknown
}

#[idempotent(
    op = "shapes.ttl.steps", key = id, ttl = |quote| hours(quote.hours), on_error = by_system,
    reconcile = found, entry = steps_entry
)]
async fn steps(id: u64) -> Answer<Quote> {
    let hours = step("rates", async |_| Ok::<_, Failure>(3)).await?;
    Ok(Quote { hours })
}

trait Valid {
    fn valid_for(&self) -> Duration;
}

impl Valid for Quote {
    fn valid_for(&self) -> Duration {
        hours(self.hours)
    }
}

#[idempotent(op = "shapes.ttl.generic", key = id, ttl = |value| value.valid_for(), entry = generic_entry)]
async fn generic<T>(id: u64, #[idem(skip)] value: T) -> Answer<T>
where
    T: Valid + Serialize + DeserializeOwned,
{
    Ok(value)
}

struct Desk {
    factor: u64,
}

impl Desk {
    const fn life(&self, quote: Quote) -> Duration {
        hours(quote.hours * self.factor)
    }

    #[idempotent(op = "shapes.ttl.method", key = id, ttl = |quote| self.life(*quote), entry = method_entry)]
    async fn method(&self, id: u64) -> Answer<Quote> {
        THREE
    }
}

#[async_trait]
trait Asks {
    async fn ask(&self, id: u64) -> Answer<Quote>;
}

#[async_trait]
impl Asks for Desk {
    #[idempotent(op = "shapes.ttl.method", key = id, ttl = |quote| self.life(*quote))]
    async fn ask(&self, id: u64) -> Answer<Quote> {
        let _ = id;
        tokio::task::yield_now().await;
        THREE
    }
}

trait Defaults: Sized + Sync {
    #[idempotent(op = "shapes.ttl.plain", key = id, ttl = |quote| quote.valid_for())]
    async fn ask_by_default(&self, id: u64) -> Answer<Quote> {
        THREE
    }
}

impl Defaults for Desk {}

macro_rules! of_a_macro {
    ($name:ident, $ttl:expr) => {
        #[idempotent(op = "shapes.ttl.plain", key = id, ttl = $ttl)]
        async fn $name(id: u64) -> Answer<Quote> {
            THREE
        }
    };
}

of_a_macro!(generated, |quote| hours(quote.hours));
of_a_macro!(generated_pair, ("30d", |quote| quote.valid_for()));

#[tokio::test]
async fn a_record_lives_as_long_as_its_answer_says() {
    assert_eq!(life(plain(1), plain_entry(1)).await, 3);
    assert_eq!(life(longer(1), longer_entry(1)).await, 300);
    assert_eq!(life(bounded(1), bounded_entry(1)).await, 2);
    assert_eq!(life(option(1), option_entry(1)).await, 3);
    assert_eq!(life(option(2), option_entry(2)).await, 24);
    assert_eq!(life(finished(1), finished_entry(1)).await, 4);
    assert_eq!(life(told(1), told_entry(1)).await, 3);
    assert_eq!(life(Box::pin(steps(1)), steps_entry(1)).await, 3);
    let quote = Quote { hours: 3 };
    assert_eq!(life(generic(1, quote), generic_entry(1, quote)).await, 3);
    let desk = Arc::new(Desk { factor: 2 });
    assert_eq!(life(desk.method(1), desk.method_entry(1)).await, 6);
    let asked: &dyn Asks = &*desk;
    assert_eq!(life(asked.ask(1), desk.method_entry(1)).await, 6);
    assert_eq!(life(desk.ask_by_default(1), plain_entry(1)).await, 3);
    assert_eq!(life(generated(1), plain_entry(1)).await, 3);
    assert_eq!(life(generated_pair(1), plain_entry(1)).await, 3);
}

#[idempotent(op = "shapes.ttl.in_tx", key = id, tx = tx, ttl = |quote| quote.valid_for(), entry = in_tx_entry)]
async fn in_tx(id: u64, tx: &mut SqliteConnection) -> Answer<Quote> {
    sqlx::query("SELECT 1").execute(tx).await?;
    THREE
}

#[tokio::test]
async fn a_record_in_a_transaction_lives_as_long_as_its_answer_says() -> Answer<()> {
    let dir = TestDir::new("shapes").expect("there is room for a file");
    let url = format!("sqlite:{}", dir.path().join("quotes.db").display());
    let store = SqliteStore::connect(&url).await.expect("a file");
    store.migrate().await.expect("a table for records");
    let engine = Engine::new(store);
    let mut connection = SqliteConnection::connect(&url).await?;
    let mut tx = connection.begin().await?;
    engine.scope(in_tx(1, &mut tx)).await?;
    tx.commit().await?;
    assert_eq!(engine.scope(left(in_tx_entry(1))).await, 3);
    Ok(())
}
