//! Client-chosen keys need a scope, because any other client can send the same key.

use super::bare;
use super::fingerprint::Compared;
use crate::args::{Scope, Slot};
use crate::errors::Errors;
use crate::format::{A_TUPLE, Format};
use crate::key;
use crate::target::Parameter;
use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit};

/// Whether the check is left to the type of the key: a one-time token needs no scope. `compared` replaces a key that is
/// not given.
pub(super) fn check(
    key: &Slot<Expr>,
    scope: &Slot<Scope<Expr>>,
    parameters: &[Parameter],
    compared: Option<&[Compared]>,
    errors: &mut Errors,
) -> bool {
    let names = parameters.iter().flat_map(|known| &known.client_keys);
    let names: Vec<String> = names.map(bare).collect();
    if names.is_empty() {
        return false;
    }
    match &scope.value {
        Some(Scope::Of(scope)) if is_client_key(scope, &names) => {
            let message = "a client chooses its key, which does not identify the client; name the tenant, user or \
                           credential that was authenticated, such as `scope = user.id`, or write `scope = public` \
                           if all clients share one namespace";
            errors.at(key::span(scope), message);
        }
        None if scope.named.is_none() => {
            if let Some((name, span)) = find_client_key(key, compared, &names) {
                if key.value.as_ref().is_some_and(key::may_be_token) {
                    return true;
                }
                let message = format!(
                    "a client chooses `{name}`, and another client that sends the same one would get the stored \
                     answer; name the authenticated owner of the key, such as `scope = user.id`, or write \
                     `scope = public` if all clients share one namespace"
                );
                errors.at(span, message);
            }
        }
        _ => {}
    }
    false
}

/// The client's key within the key or the compared arguments.
fn find_client_key(
    key: &Slot<Expr>,
    compared: Option<&[Compared]>,
    names: &[String],
) -> Option<(String, Span)> {
    match &key.value {
        Some(key) => key::mention(key, names),
        None if key.named.is_some() => None,
        None => {
            let mut compared = compared.unwrap_or_default().iter();
            let argument = compared.find(|argument| key::mentions(&argument.value, names))?;
            Some((argument.name.clone(), argument.span))
        }
    }
}

/// Whether the value consists of clients' keys alone. The result of a function of one may be the tenant.
pub(super) fn is_client_key(value: &Expr, names: &[String]) -> bool {
    let known = |name: &String| names.contains(name);
    match value {
        Expr::Path(path) => path
            .path
            .get_ident()
            .map(bare)
            .is_some_and(|name| known(&name)),
        Expr::Field(field) => is_client_key(&field.base, names),
        Expr::MethodCall(call) => call.args.is_empty() && is_client_key(&call.receiver, names),
        Expr::Reference(reference) => is_client_key(&reference.expr, names),
        Expr::Paren(paren) => is_client_key(&paren.expr, names),
        Expr::Group(group) => is_client_key(&group.expr, names),
        Expr::Tuple(tuple) => {
            let of_clients = |part: &Expr| is_client_key(part, names);
            tuple.elems.iter().any(of_clients)
                && (tuple.elems.iter()).all(|part| of_clients(part) || key::is_constant(part))
        }
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Format::parse(&text.value(), A_TUPLE).is_ok_and(|format| {
            !format.placeholders.is_empty() && format.names().all(|n| known(&n))
        }),
        _ => false,
    }
}
