//! The generated function of `entry`, which finds the record of a call.

use super::function::{Function, bare};
use super::transaction::Transaction;
use crate::args::Args;
use crate::errors::Errors;
use crate::key;
use crate::output::Shape;
use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, Signature, Type};

pub(super) fn check(
    args: &Args,
    shape: Option<&(Shape, Type)>,
    tx: Option<&Transaction>,
    function: &Function<'_>,
    errors: &mut Errors,
) {
    let Some(name) = &args.entry else { return };
    let sig = function.sig;
    if bare(name) == bare(&sig.ident) {
        let message = format!(
            "`{name}` is this function; give the generated function another name, such as `entry = {name}_entry`"
        );
        errors.at(name.span(), message);
    }
    // A generic function gets its own error.
    if args.named("op").is_none() && function.generic().is_none() {
        errors.at(
            name.span(),
            "`entry` finds records by the name of their operation, which must not change; write it: `op = \"..\"`",
        );
    }
    let Some(tx) = tx else { return };
    if matches!(shape, Some((Shape::Boxed(_), _))) {
        errors.at(
            name.span(),
            "`entry` generates a function without the transaction, but `#[async_trait]` has made the transaction part of the \
             signature; put `#[idempotent]` on a function of its own, and call that",
        );
    } else if let Some(param) = only_in_transaction(tx, sig) {
        let message = format!(
            "`entry` generates a function without the transaction, in which `{param}` cannot be inferred; write the concrete \
             type of `{}`",
            tx.name
        );
        errors.at(param.span(), message);
    }
}

/// A type parameter that the transaction alone names, not inferable.
fn only_in_transaction<'a>(tx: &Transaction, sig: &'a Signature) -> Option<&'a Ident> {
    let (of_tx, of_others): (Vec<_>, Vec<_>) = sig.inputs.iter().partition(|input| {
        matches!(input, FnArg::Typed(typed) if key::any(typed.pat.to_token_stream(), &[bare(&tx.name)]))
    });
    let mut params = sig.generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(&param.ident),
        _ => None,
    });
    params.find(|param| {
        let names = |input: &&FnArg| key::any(input.to_token_stream(), &[bare(param)]);
        of_tx.iter().any(names) && !of_others.iter().any(names)
    })
}
