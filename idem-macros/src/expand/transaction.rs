//! A body inside the caller's transaction.

use super::{at, here, located};
use crate::plan::Transaction;
use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::{FnArg, Pat, Signature};

/// Rebinds the transaction under its own name within the body.
///
/// Output:
/// ```text
/// let mut borrowed = borrow_tx::<T>(&mut *tx);
/// let run = begin_in_tx(call, <the place of the output>, &mut borrowed).await;
/// match run {
///     InTx::Answered(out) => out,
///     InTx::Run(mut run) => {
///         let end = {
///             let (scope, borrowed) = run.split();
///             let tx = borrowed.tx();
///             scope.run(pin!(Some(BODY))).await
///         };
///         run.finish(end).await
///     }
/// }
/// ```
pub(super) fn run(
    tx: &Transaction,
    outcome: &TokenStream,
    body: &TokenStream,
    rt: &TokenStream,
) -> TokenStream {
    let Transaction {
        name,
        mutability,
        ty,
        span,
    } = tx;
    // Errors about a type that is not a transaction are located on the type, or on the parameter if the type
    // cannot be written.
    let lent = if let Some(ty) = ty {
        quote_spanned!(here()=> #rt::borrow_tx::<#ty>(&mut *#name))
    } else {
        let rt = located(rt, *span);
        let mut there = name.clone();
        there.set_span(name.span().located_at(*span));
        quote_spanned!(at(*span)=> #rt::borrow_tx(&mut *#there))
    };
    quote_spanned! {here()=>
        #[allow(clippy::used_underscore_binding)]
        let mut borrowed = #lent;
        // Bound to a name: a temporary would outlive `borrowed`.
        let run = #rt::begin_in_tx(call, #outcome, &mut borrowed).await;
        match run {
            #rt::InTx::Answered(out) => out,
            #rt::InTx::Run(mut run) => {
                let end = {
                    let (scope, borrowed) = run.split();
                    #[allow(unused_variables, clippy::shadow_unrelated)]
                    let #mutability #name = borrowed.tx();
                    scope.run(::core::pin::pin!(::core::option::Option::Some(#body))).await
                };
                run.finish(end).await
            }
        }
    }
}

/// The `mut` of `mut tx: &mut T` moves to the rebinding inside the body; the signature does not need it.
pub(super) fn signature(sig: &Signature, tx: &Transaction) -> Signature {
    let mut sig = sig.clone();
    for input in &mut sig.inputs {
        if let FnArg::Typed(typed) = input
            && let Pat::Ident(pat) = &mut *typed.pat
            && pat.ident == tx.name
        {
            pat.mutability = None;
        }
    }
    sig
}
