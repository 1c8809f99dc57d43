//! The label of a function: every form in which it is written, beside functions of every form.

#![allow(clippy::unused_async)]

use super::{Answer, Failure, engine};
use async_trait::async_trait;
use idem_runtime::{Error, admin::Entry, idempotent, key::redacted};
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;

const FAILED: Answer<u64> = Err(Failure::Refused(String::new()));

/// The label of a call that has failed.
#[allow(clippy::future_not_send)]
async fn label(
    entry: impl Future<Output = Result<Option<Entry>, Error>>,
    call: impl Future<Output = Answer<u64>>,
) -> Option<String> {
    let both = async {
        assert_eq!(call.await, FAILED);
        let entry = entry.await.expect("the store is there");
        entry.expect("there is a record").label()
    };
    engine().scope(both).await
}

#[derive(Clone, Serialize)]
struct Order {
    number: String,
}

fn order() -> Order {
    Order {
        number: "ord-4711".to_owned(),
    }
}

/// The label borrows a value that the body then takes.
#[idempotent(op = "shapes.label.moved", key = order.number, label = order.number, entry = moved_entry)]
async fn moved(order: Order) -> Answer<u64> {
    drop(order);
    FAILED
}

#[idempotent(op = "shapes.label.format", key = number, label = "order {number:>6}/{part}", entry = format_entry)]
async fn format(number: u64, part: &str) -> Answer<u64> {
    FAILED
}

#[idempotent(
    op = "shapes.label.arguments",
    key = order.number,
    label = format_args!("order {} of {tenant}", redacted(&order.number, 4)),
    entry = arguments_entry
)]
async fn arguments(order: &Order, tenant: String) -> Answer<u64> {
    drop(tenant);
    FAILED
}

/// The function of `entry` ignores a parameter that only the label names.
#[idempotent(op = "shapes.label.skipped", key = number, label = (note), entry = skipped_entry)]
async fn skipped(number: u64, #[idem(skip)] note: &str) -> Answer<u64> {
    FAILED
}

fn shown<T: std::fmt::Display>(value: &T) -> impl std::fmt::Display + '_ {
    redacted(value, 2)
}

#[idempotent(
    op = "shapes.label.finished", key = number, label = shown(&number), on_cancel = finish, entry = finished_entry
)]
async fn finished(number: u64) -> Answer<u64> {
    FAILED
}

/// `$label:literal` is wrapped in a group with invisible delimiters.
macro_rules! written {
    ($number:ident, $label:literal) => {
        #[idempotent(op = "shapes.label.written", key = $number, label = $label, entry = written_entry)]
        async fn written($number: u64) -> Answer<u64> {
            FAILED
        }
    };
}
written!(number, "order {number}");

struct Shop {
    name: &'static str,
}

impl Shop {
    #[idempotent(
        op = "shapes.label.method", key = (self.name, number), label = "{number}", entry = method_entry
    )]
    async fn method(&self, number: u64) -> Answer<u64> {
        FAILED
    }

    #[idempotent(
        op = "shapes.label.receiver", key = self.name, fingerprint = none, label = self.name, entry = receiver_entry
    )]
    async fn receiver(self: Arc<Self>) -> Answer<u64> {
        FAILED
    }
}

#[async_trait]
trait Till {
    async fn pay(&self, number: u64) -> Answer<u64>;
    async fn pay_entry(&self, number: u64) -> Result<Option<Entry>, Error>;
}

#[async_trait]
impl Till for Shop {
    #[idempotent(op = "shapes.label.boxed", key = number, label = "till {number}", entry = pay_entry)]
    async fn pay(&self, number: u64) -> Answer<u64> {
        let _ = number;
        FAILED
    }
}

#[tokio::test]
async fn a_label_is_written_in_every_form() {
    let shop = Shop { name: "north" };
    let seen = [
        label(moved_entry(order()), moved(order())).await,
        label(format_entry(47, "a"), format(47, "a")).await,
        label(
            arguments_entry(&order(), "eu".to_owned()),
            arguments(&order(), "eu".to_owned()),
        )
        .await,
        label(skipped_entry(7, "-"), skipped(7, "tea")).await,
        label(finished_entry(4711), finished(4711)).await,
        label(written_entry(7), written(7)).await,
        label(shop.method_entry(7), shop.method(7)).await,
        label(
            Arc::new(Shop { name: "south" }).receiver_entry(),
            Arc::new(Shop { name: "south" }).receiver(),
        )
        .await,
        label(shop.pay_entry(7), shop.pay(7)).await,
    ];
    let seen = seen.each_ref().map(Option::as_deref);
    let expected = [
        "ord-4711",
        "order     47/a",
        "order …4711 of eu",
        "tea",
        "…11",
        "order 7",
        "7",
        "south",
        "till 7",
    ];
    assert_eq!(seen, expected.map(Some));
}
