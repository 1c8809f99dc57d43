//! The parameter that is the caller's transaction.

use super::{bare, guess, hidden, names};
use crate::args::{Args, Scope};
use crate::errors::Errors;
use crate::key;
use crate::output;
use crate::target::Parameter;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{FnArg, Ident, Pat, PatIdent, PatType, Signature, Token, Type};

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
    parameters: &[Parameter],
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Transaction> {
    let name = args.tx.value.as_ref()?;
    let Some((parameter, typed)) = find(name, parameters, sig) else {
        errors.at(name.span(), unknown(name, parameters, sig));
        return None;
    };
    let scope = match &args.scope.value {
        Some(Scope::Of(scope)) => Some(scope),
        _ => None,
    };
    for value in args.key.value.iter().chain(scope) {
        if key::mentions(value, &[bare(name)]) {
            errors.at(key::span(value), is_no_input(name));
        }
    }
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
        errors.at(parameter.span, message);
        return None;
    };
    if let Some(span) = pool(&typed.ty) {
        let message = format!(
            "a pool is no transaction; take `{name}: &mut PgTransaction<'_>`, which the caller begins and commits"
        );
        errors.at(span, message);
        return None;
    }
    let Some(ty) = referenced(&typed.ty) else {
        let message = "take the transaction by `&mut`: the caller commits it";
        errors.at(typed.ty.span(), message);
        return None;
    };
    Some(Transaction {
        name: ident.clone(),
        mutability: *mutability,
        span: ty.span(),
        // If two parameters are under `#[cfg]`, this may not be the compiled one.
        ty: Some(ty.clone()).filter(|ty| parameter.cfgs.is_empty() && !output::mentions_impl(ty)),
    })
}

/// Error for a transaction among the values that make up a request.
pub(super) fn is_no_input(name: &Ident) -> String {
    format!("`{name}` is the transaction, which does not distinguish two calls; remove it here")
}

fn find<'a>(
    name: &Ident,
    parameters: &'a [Parameter],
    sig: &'a Signature,
) -> Option<(&'a Parameter, &'a PatType)> {
    let typed = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let mut both = parameters.iter().zip(typed);
    both.find(|(parameter, _)| parameter.names.contains(name))
}

fn unknown(name: &Ident, parameters: &[Parameter], sig: &Signature) -> String {
    let function = &sig.ident;
    if name == "self" {
        return format!(
            "the transaction must be an argument of its own; take it in `{function}`, as in `tx: &mut PgTransaction<'_>`, \
             and write `tx = tx`"
        );
    }
    let names = names(parameters);
    let hint = match (guess(&bare(name), &names), hidden(&names)) {
        (Some(known), _) => format!("did you mean `{known}`?"),
        (None, Some(hint)) => hint.to_owned(),
        (None, None) => {
            format!("take the transaction there, as in `{name}: &mut PgTransaction<'_>`")
        }
    };
    format!("`{name}` is not an argument of `{function}`; {hint}")
}

/// The pool of connections that a type is, or refers to, by the names of sqlx.
fn pool(ty: &Type) -> Option<Span> {
    match ty {
        Type::Reference(reference) => pool(&reference.elem),
        Type::Paren(paren) => pool(&paren.elem),
        Type::Group(group) => pool(&group.elem),
        Type::Path(path) => {
            let last = &path.path.segments.last()?.ident;
            let names = ["Pool", "PgPool", "MySqlPool", "SqlitePool", "AnyPool"];
            names.iter().any(|name| last == name).then(|| last.span())
        }
        _ => None,
    }
}

/// `T` of `&mut T`.
fn referenced(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(reference) if reference.mutability.is_some() => Some(&reference.elem),
        Type::Paren(paren) => referenced(&paren.elem),
        Type::Group(group) => referenced(&group.elem),
        _ => None,
    }
}
