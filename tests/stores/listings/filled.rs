//! A store of ten thousand records.

use idem_tests::claims::{complete, finished, take};
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::store::author::{ClaimRequest, Owner};
use idem_runtime::store::{OutcomeKind, RecordKey, Store};
use idem_runtime::{
    __private::KeyBuilder,
    Engine,
    key::{KeyDigest, Operation},
};
use tokio::task::JoinSet;

pub(crate) const RECORDS: u32 = 10_000;
pub(crate) const PREFIX: &str = "shop";

/// The state of the record with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Unknown,
    Abandoned,
    Expired,
    Running,
}

/// One of a hundred is abandoned, one expires, and two are unknown: one of each operation.
pub(crate) fn fate(number: u32) -> Fate {
    match number % 100 {
        0 | 1 => Fate::Unknown,
        2 => Fate::Abandoned,
        3 => Fate::Expired,
        _ => Fate::Running,
    }
}

pub(crate) fn operation(number: u32) -> &'static str {
    if number.is_multiple_of(10) {
        "refund"
    } else {
        "pay"
    }
}

pub(crate) fn digest(number: u32) -> KeyDigest {
    let key = KeyBuilder::new(operation(number), 1_024);
    key.key(&number).unwrap()
}

/// The digests of the numbers of this kind, in order.
pub(crate) fn digests(is_asked: impl Fn(u32) -> bool) -> Vec<KeyDigest> {
    let numbers = (0..RECORDS).filter(|number| is_asked(*number));
    let mut digests: Vec<_> = numbers.map(digest).collect();
    digests.sort();
    digests
}

pub(crate) fn engine(store: impl Store) -> Engine {
    Engine::builder(store).prefix(PREFIX).build().unwrap()
}

async fn put(store: Arc<dyn Store>, prefix: &str, number: u32) {
    let fate = fate(number);
    let key = RecordKey::new(
        prefix.into(),
        Operation::new(operation(number)),
        digest(number),
    );
    let mut request = ClaimRequest::new(
        Owner::random(),
        match fate {
            Fate::Running => Duration::from_hours(2),
            _ => Duration::from_millis(1),
        },
        match fate {
            Fate::Expired => Duration::from_millis(2),
            _ => Duration::from_hours(24),
        },
    );
    request.dated = false;
    let claim = take(&*store, &key, &request).await;
    if fate == Fate::Unknown {
        let record = finished(&claim, OutcomeKind::Unknown, b"");
        complete(&*store, &key, &record).await;
    }
}

/// Puts the records there.
pub(crate) async fn fill(
    store: &Arc<dyn Store>,
    prefix: &'static str,
    numbers: std::ops::Range<u32>,
) {
    const AT_ONCE: u32 = 64;
    let mut putting = JoinSet::new();
    for first in 0..AT_ONCE {
        let store = Arc::clone(store);
        let numbers = numbers.clone();
        putting.spawn(async move {
            for number in numbers.filter(|number| number % AT_ONCE == first) {
                put(Arc::clone(&store), prefix, number).await;
            }
        });
    }
    while let Some(put) = putting.join_next().await {
        put.unwrap();
    }
}
