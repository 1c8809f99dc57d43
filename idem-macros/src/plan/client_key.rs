//! Client-chosen keys need a scope: other clients may send the same.

use super::fingerprint::Compared;
use super::function::{Function, bare};
use crate::args::{Args, Scope};
use crate::errors::Errors;
use crate::format::{A_TUPLE, Format};
use crate::key::{self, peeled};
use proc_macro2::Span;
use syn::Expr;

/// Whether the check is left to the type of the key: a one-time token needs no scope. `compared` replaces a key that is
/// not given.
pub(super) fn check(
    args: &Args,
    function: &Function<'_>,
    compared: Option<&[Compared]>,
    errors: &mut Errors,
) -> bool {
    let names = &function.client_keys;
    match &args.scope {
        Some(Scope::Of(scope)) if is_client_key(scope, names) => {
            let message = "a client chooses its key, which does not identify the client; name the tenant, user or \
                           credential that was authenticated, such as `scope = user.id`, or write `scope = public` \
                           if all clients share one namespace";
            errors.at(key::span(scope), message);
        }
        None if args.named("scope").is_none() => {
            if let Some((name, span)) = find_client_key(args, compared, names) {
                if args.key.as_ref().is_some_and(key::may_be_token) {
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
    args: &Args,
    compared: Option<&[Compared]>,
    names: &[String],
) -> Option<(String, Span)> {
    if args.named("key").is_some() {
        return key::mention(args.key.as_ref()?, names);
    }
    let mut compared = compared?.iter();
    let argument = compared.find(|argument| key::mentions(&argument.value, names))?;
    Some((argument.name.clone(), argument.span))
}

/// Whether the value consists of clients' keys alone. The result of a function of one may be the tenant.
pub(super) fn is_client_key(value: &Expr, names: &[String]) -> bool {
    let of_clients = |part: &Expr| is_client_key(part, names);
    match peeled(value) {
        Expr::Path(path) => (path.path.get_ident()).is_some_and(|name| names.contains(&bare(name))),
        Expr::Field(field) => of_clients(&field.base),
        Expr::MethodCall(call) => call.args.is_empty() && of_clients(&call.receiver),
        Expr::Reference(reference) => of_clients(&reference.expr),
        Expr::Tuple(tuple) => {
            tuple.elems.iter().any(of_clients)
                && (tuple.elems.iter()).all(|part| of_clients(part) || key::is_constant(part))
        }
        other => (key::literal(other).and_then(|text| Format::of(text, A_TUPLE).ok())).is_some_and(
            |format| {
                !format.placeholders.is_empty() && format.names().all(|name| names.contains(&name))
            },
        ),
    }
}
