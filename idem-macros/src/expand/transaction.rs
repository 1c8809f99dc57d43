//! A body inside the caller's transaction.

use super::{at, here, located};
use crate::plan::Transaction;
use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::{FnArg, Pat, Signature};

/// The body gets the transaction back for as long as it runs, under its own name.
///
/// Output:
/// ```text
/// match begin_in_tx::<_, _, T>(call, &mut *tx).await {
///     InTx::Answered(out) => out,
///     InTx::Run(mut turn) => {
///         let end = {
///             let (scope, tx) = turn.split();
///             scope.run(pin!(Some(BODY))).await
///         };
///         turn.finish(end).await
///     }
/// }
/// ```
pub(super) fn run(tx: &Transaction, body: &TokenStream, rt: &TokenStream) -> TokenStream {
    let Transaction {
        name,
        mutability,
        ty,
        span,
    } = tx;
    // The type carries the blame for not being a transaction.
    let begin = located(rt, *span);
    let begin = quote_spanned!(at(*span)=> #begin::begin_in_tx);
    quote_spanned! {here()=>
        #[allow(clippy::used_underscore_binding)]
        match #begin::<_, _, #ty>(call, &mut *#name).await {
            #rt::InTx::Answered(out) => out,
            #rt::InTx::Run(mut turn) => {
                let end = {
                    #[allow(unused_variables)]
                    let (scope, #mutability #name) = turn.split();
                    scope.run(::core::pin::pin!(::core::option::Option::Some(#body))).await
                };
                turn.finish(end).await
            }
        }
    }
}

/// The `mut` of `mut tx: &mut T` goes to where the body gets it from; here nothing needs it.
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
