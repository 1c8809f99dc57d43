//! Replacement of `tx = …` in a build without a database feature: a compiler error.

#![allow(
    unnameable_types,
    clippy::unused_async,
    reason = "what it stands for awaits, and so does the expansion"
)]

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;

use super::description::Call;
use crate::outcome::Output;

/// Implemented by no type.
#[diagnostic::on_unimplemented(
    message = "`tx = …` needs a database",
    label = "no transaction that idem can use",
    note = "enable the feature of yours in the `idem-runtime` of your Cargo.toml: `postgres`, `mysql` or `sqlite`"
)]
pub trait SqlTransaction {
    #[doc(hidden)]
    fn never(&self) -> Infallible;
}

/// A transaction of any type.
#[derive(Debug)]
pub struct BorrowedTx<'t, T: ?Sized>(&'t mut T, Infallible);

/// Wraps a transaction. An expansion requires the trait only here.
pub fn borrow_tx<T: SqlTransaction + ?Sized>(tx: &mut T) -> BorrowedTx<'_, T> {
    match tx.never() {}
}

impl<T: ?Sized> BorrowedTx<'_, T> {
    /// Never called.
    pub fn tx(&mut self) -> &mut T {
        self.0
    }
}

impl<T: ?Sized> SqlTransaction for BorrowedTx<'_, T> {
    fn never(&self) -> Infallible {
        self.1
    }
}

/// The result of a claim in a transaction.
#[derive(Debug)]
pub enum InTx<'t, O, P, T: SqlTransaction + ?Sized> {
    /// The call has its answer.
    Answered(O),
    /// The body is to run.
    Run(TxRun<'t, O, P, T>),
}

/// A call whose body runs in a transaction.
#[derive(Debug)]
pub struct TxRun<'t, O, P, T: SqlTransaction + ?Sized>(&'t mut T, PhantomData<fn() -> (O, P)>);

/// The scope that a body runs in.
#[derive(Debug)]
pub struct TxScope(Infallible);

/// The end of a body.
#[derive(Debug)]
pub struct TxEnd<O>(Infallible, PhantomData<O>);

impl TxScope {
    /// Never called.
    pub async fn run<F: Future>(self, _: Pin<&mut Option<F>>) -> TxEnd<F::Output> {
        match self.0 {}
    }
}

impl<O, P, T: SqlTransaction + ?Sized> TxRun<'_, O, P, T> {
    /// Never called.
    pub fn split(&mut self) -> (TxScope, &mut T) {
        match self.0.never() {}
    }

    /// Never called.
    pub async fn finish(self, end: TxEnd<O>) -> O {
        match end.0 {}
    }
}

/// Never called.
pub async fn begin_in_tx<O, P, T: SqlTransaction + ?Sized>(
    _: Call,
    _: Output<O, P>,
    tx: &mut T,
) -> InTx<'_, O, P, T> {
    match tx.never() {}
}
