//! The parameter that is the caller's transaction.

use super::function::{Function, bare};
use crate::args::{Args, Scope};
use crate::errors::Errors;
use crate::key;
use crate::target::Parameter;
use crate::types::{self, peeled};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, Pat, PatIdent, PatType, Result, Token, Type};

pub(crate) struct Transaction {
    pub(crate) name: Ident,
    /// The `mut` of the binding, as in `mut tx: &mut T`.
    pub(crate) mutability: Option<Token![mut]>,
    /// The referenced type, if it can be written in an expression.
    pub(crate) ty: Option<Type>,
    pub(crate) span: Span,
}

pub(super) fn plan(
    args: &Args,
    function: &Function<'_>,
    errors: &mut Errors,
) -> Option<Transaction> {
    let name = args.tx.as_ref()?;
    let Some((parameter, typed)) = find(name, function) else {
        errors.at(name.span(), unknown(name, function));
        return None;
    };
    let scope = match &args.scope {
        Some(Scope::Of(scope)) => Some(scope),
        _ => None,
    };
    for value in args.key.iter().chain(scope) {
        if key::mentions(value, &[bare(name)]) {
            errors.at(key::span(value), is_no_input(name));
        }
    }
    errors.ok(transaction(name, parameter, typed))
}

fn transaction(name: &Ident, parameter: &Parameter, typed: &PatType) -> Result<Transaction> {
    let Pat::Ident(PatIdent {
        ident,
        mutability,
        by_ref: None,
        subpat: None,
        ..
    }) = &*typed.pat
    else {
        let message = format!(
            "the transaction must be an argument of its own, not part of a pattern; write `{name}: &mut ..`"
        );
        return Err(Error::new(parameter.span, message));
    };
    if let Some(span) = pool(&typed.ty) {
        let message = format!(
            "a pool is no transaction; take `{name}: &mut PgTransaction<'_>`, which the caller begins and commits"
        );
        return Err(Error::new(span, message));
    }
    let ty = match peeled(&typed.ty) {
        Type::Reference(reference) if reference.mutability.is_some() => &*reference.elem,
        _ => {
            let message = "take the transaction by `&mut`: the caller commits it";
            return Err(Error::new(typed.ty.span(), message));
        }
    };
    // If two parameters are under `#[cfg]`, this may not be the compiled one.
    let certain = parameter.cfgs.is_empty();
    Ok(Transaction {
        name: ident.clone(),
        mutability: *mutability,
        span: ty.span(),
        ty: (certain && !types::mentions_impl(ty)).then(|| ty.clone()),
    })
}

/// Error for a transaction among the values that make up a request.
pub(super) fn is_no_input(name: &Ident) -> String {
    format!("`{name}` is the transaction, which does not distinguish two calls; remove it here")
}

fn find<'a>(name: &Ident, function: &Function<'a>) -> Option<(&'a Parameter, &'a PatType)> {
    let typed = function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let mut both = function.parameters.iter().zip(typed);
    both.find(|(parameter, _)| parameter.names.contains(name))
}

fn unknown(name: &Ident, function: &Function<'_>) -> String {
    if name == "self" {
        return format!(
            "the transaction must be an argument of its own; take it in `{}`, as in `tx: &mut PgTransaction<'_>`, \
             and write `tx = tx`",
            function.sig.ident
        );
    }
    let otherwise = format!("; take the transaction there, as in `{name}: &mut PgTransaction<'_>`");
    function.no_argument(name, &otherwise)
}

/// The pool that a type is or refers to, by sqlx's names.
fn pool(ty: &Type) -> Option<Span> {
    match peeled(ty) {
        Type::Reference(reference) => pool(&reference.elem),
        Type::Path(path) => {
            let last = &path.path.segments.last()?.ident;
            let names = ["Pool", "PgPool", "MySqlPool", "SqlitePool", "AnyPool"];
            names.iter().any(|name| last == name).then(|| last.span())
        }
        _ => None,
    }
}
