//! Hooks of every form. Each function ends unknown at first; the hook of the next call then returns its
//! outcome, and shows by its answer which arguments it was given.

// A hook is async also where it has nothing to await.
#![allow(clippy::unused_async, clippy::many_single_char_names)]

use super::{Runs, engine};
use idem_runtime::{Context, ErrorKind, Reconciled, idempotent};
use serde::Serialize;
use std::future::Future;

/// A body's failure with an unknown outcome, or a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    OnTheWay,
    Refused(ErrorKind),
}

impl From<idem_runtime::Error> for Lost {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Refused(error.kind().clone())
    }
}

pub(super) type Answer<T = String> = Result<T, Lost>;
pub(super) type Found<T = String> = Reconciled<T>;

/// Makes the call, which fails, and then makes it again.
pub(super) async fn again<T: std::fmt::Debug>(
    mut call: impl AsyncFnMut() -> Answer<T>,
) -> Answer<T> {
    let both = async {
        let first = call().await;
        assert!(matches!(first, Err(Lost::OnTheWay)), "{first:?}");
        call().await
    };
    engine().scope(both).await
}

#[derive(Clone, Serialize)]
struct Request {
    order: u64,
    lines: Vec<u8>,
}

const fn request() -> Request {
    Request {
        order: 7,
        lines: Vec::new(),
    }
}

async fn find(req: &Request, note: &str, list: &Vec<u8>, cx: &Context) -> Found {
    let Request { order, lines } = req;
    Reconciled::Landed(format!(
        "{order} {lines:?} {note} {list:?} {}",
        cx.operation()
    ))
}

#[idempotent(op = "shapes.lent", on_error = unknown, reconcile = find)]
async fn lent(req: Request, note: &str, list: &mut Vec<u8>, #[idem(skip)] runs: &Runs) -> Answer {
    drop((req, note));
    list.push(1);
    runs.hit();
    Err(Lost::OnTheWay)
}

#[tokio::test]
async fn the_hook_is_lent_the_arguments_in_their_order() {
    let runs = Runs::default();
    let call = async || lent(request(), "note", &mut vec![3], &runs).await;
    assert_eq!(
        again(call).await.as_deref(),
        Ok("7 [] note [3] shapes.lent")
    );
    assert_eq!(runs.count(), 1);
}

/// Generic, so that a reference to a reference would be another type.
async fn find_any<T: Copy + Into<u64> + Sync>(order: &u64, id: &T, _: &Context) -> Found<u64> {
    tokio::task::yield_now().await;
    Reconciled::Landed(*order * 100 + (*id).into())
}

#[idempotent(key = id, fingerprint(req.order, id), on_error = unknown, reconcile = find_any::<_>)]
async fn listed(id: &u8, req: Request, #[idem(skip)] runs: &Runs) -> Answer<u64> {
    drop((id, req));
    runs.hit();
    Err(Lost::OnTheWay)
}

async fn find_parts(a: &u64, b: &u64, c: &u8, _: &Context) -> Result<Found<u64>, std::io::Error> {
    Ok(Reconciled::Landed(a + b + u64::from(*c)))
}

#[idempotent(on_error = unknown, reconcile = find_parts)]
async fn parts((a, mut b): (u64, u64), &c: &u8, #[idem(skip)] runs: &Runs) -> Answer<u64> {
    b += a + u64::from(c) + 1;
    let _ = b;
    runs.hit();
    Err(Lost::OnTheWay)
}

async fn find_value(order: &u64, _: &Context) -> Found<u64> {
    Reconciled::Landed(*order)
}

async fn find_answer(order: &u64, _: &Context) -> Found<idem_runtime::Answer<u64>> {
    Reconciled::Landed((*order).into())
}

#[idempotent(on_error = unknown, reconcile = find_value)]
async fn answered(order: u64) -> Answer<idem_runtime::Answer<u64>> {
    Err(Lost::OnTheWay)
}

#[idempotent(on_error = unknown, reconcile = find_answer)]
async fn answered_whole(order: u64) -> Answer<idem_runtime::Answer<u64>> {
    Err(Lost::OnTheWay)
}

fn nothing(_: &Context) -> impl Future<Output = Found<usize>> + use<> {
    std::future::ready(Reconciled::NotLanded)
}

#[idempotent(key = order, fingerprint = none, on_error = unknown, reconcile = nothing)]
async fn resumed(order: u64, #[idem(skip)] runs: &Runs) -> Answer<usize> {
    match runs.hit() {
        1 => Err(Lost::OnTheWay),
        run => Ok(run),
    }
}

/// The knowledge of another system.
struct Ledger(u64);

impl Ledger {
    async fn find(&self, order: &u64) -> Found<u64> {
        tokio::task::yield_now().await;
        Reconciled::Landed(self.0 + order)
    }
}

#[idempotent(key = order, on_error = unknown, reconcile = ledger.find(&{ order }))]
async fn called(
    order: u64,
    #[idem(skip)] ledger: &Ledger,
    #[idem(skip)] runs: &Runs,
) -> Answer<u64> {
    let _ = (order, ledger, runs.hit());
    Err(Lost::OnTheWay)
}

/// Its parameters have the names of the variables around a hook.
async fn plain(cx: u64, landed: &Ledger) -> Found<u64> {
    Reconciled::Landed(cx + landed.0)
}

#[idempotent(key = cx, on_error = unknown, reconcile = (plain(cx, landed)))]
async fn same_names(
    cx: u64,
    #[idem(skip)] landed: &Ledger,
    #[idem(skip)] out: &Runs,
) -> Answer<u64> {
    let _ = (cx, landed, out.hit());
    Err(Lost::OnTheWay)
}

#[no_implicit_prelude]
mod bare {
    #![allow(dead_code)]

    use super::{Answer, Context, Found, Lost, Runs};

    pub(super) struct Option;
    pub(super) struct Some;
    pub(super) struct Ok;
    pub(super) mod core {}
    pub(super) mod idem_runtime {}

    async fn find(order: &u64, _: &Context) -> Found<u64> {
        super::Reconciled::Landed(*order)
    }

    #[::idem_runtime::idempotent(on_error = unknown, reconcile = find)]
    pub(super) async fn pay(order: u64, #[idem(skip)] runs: &Runs) -> Answer<u64> {
        let _ = (order, runs.hit());
        ::std::result::Result::Err(Lost::OnTheWay)
    }
}

#[tokio::test]
async fn a_hook_may_have_every_form() {
    let (runs, ledger) = (Runs::default(), Ledger(10));
    assert_eq!(
        again(async || listed(&5, request(), &runs).await).await,
        Ok(705)
    );
    assert_eq!(again(async || parts((1, 2), &3, &runs).await).await, Ok(6));
    assert_eq!(
        again(async || called(1, &ledger, &runs).await).await,
        Ok(11)
    );
    assert_eq!(
        again(async || same_names(2, &ledger, &runs).await).await,
        Ok(12)
    );
    assert_eq!(again(async || bare::pay(8, &runs).await).await, Ok(8));
    assert_eq!(runs.count(), 5);
    let runs = Runs::default();
    assert_eq!(again(async || resumed(1, &runs).await).await, Ok(2));
}

/// It finds an answer, or the stored value without its provenance.
#[tokio::test]
async fn the_hook_of_an_answer_finds_its_value() {
    for found in [
        again(async || answered(7).await).await,
        again(async || answered_whole(7).await).await,
    ] {
        assert_eq!(found.map(|answer| *answer), Ok(7));
    }
}
