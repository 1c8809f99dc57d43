//! Key and scope: the identity of a call.

use super::{guess, hidden, names};
use crate::args::Scope;
use crate::errors::Errors;
use crate::key::{self, Value};
use crate::target::Parameter;
use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit, Signature};

pub(super) fn key(
    key: Expr,
    parameters: &[Parameter],
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Value> {
    let error = error(&key, parameters, sig);
    let value = errors.ok(Value::new(key))?;
    if let Some((span, message)) = error {
        errors.at(span, message);
    }
    Some(value)
}

fn error(key: &Expr, parameters: &[Parameter], sig: &Signature) -> Option<(Span, String)> {
    let span = key::span(key);
    if key::is_constant(key) {
        let message = "this key is the same for every call; name what distinguishes two calls, such as \
                       `key = order_id` or `key = \"{order_id}\"`";
        return Some((span, message.to_owned()));
    }
    let names = names(parameters);
    if key::mentions(key, &names) || key::mentions(key, &["self".to_owned()]) {
        return unordered(key, parameters);
    }
    let function = &sig.ident;
    let variables = key::variables(key).into_iter();
    let mut misspelt =
        variables.filter_map(|(name, span)| Some((guess(&name, &names)?, name, span)));
    if let Some((meant, name, span)) = misspelt.next() {
        let message =
            format!("`{name}` is not an argument of `{function}`; did you mean `{meant}`?");
        return Some((span, message));
    }
    let shared = "every call would share one record and get its answer";
    if let Some(hint) = hidden(&names) {
        let message = format!("`key` names no argument of `{function}`; {hint}");
        return Some((span, message));
    }
    let message = match (&*names, sig.receiver()) {
        ([], None) => format!(
            "`{function}` has no argument, so that {shared}; pass what distinguishes two calls, as in \
             `async fn {function}(day: Date)`, and write `key = day`"
        ),
        ([], Some(_)) => format!(
            "`key` does not depend on `self`, and `{function}` has no other argument; {shared}"
        ),
        (names, _) => format!(
            "`key` names no argument of `{function}` (`{}`); {shared}",
            names.join("`, `")
        ),
    };
    Some((span, message))
}

/// A set with random iteration order that is used directly as the key.
fn unordered(key: &Expr, parameters: &[Parameter]) -> Option<(Span, String)> {
    match key {
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            let mut sets = parameters.iter().filter(|set| set.unordered.is_some());
            sets.find(|set| matches!(&*set.names, [only] if only == name))?;
            let message = format!(
                "the order of the `HashSet` in `{name}` differs each time, so that a repeated call would not be recognized; \
                 make a `BTreeSet` or a sorted `Vec` of it"
            );
            Some((name.span(), message))
        }
        Expr::Tuple(tuple) => (tuple.elems.iter()).find_map(|part| unordered(part, parameters)),
        Expr::Reference(reference) => unordered(&reference.expr, parameters),
        Expr::Paren(paren) => unordered(&paren.expr, parameters),
        Expr::Group(group) => unordered(&group.expr, parameters),
        Expr::MethodCall(call) if call.method == "clone" => unordered(&call.receiver, parameters),
        _ => None,
    }
}

/// Checks `scope`. A constant that is not a literal is accepted: it may be the region of a deployment.
pub(super) fn scope(
    scope: Scope<Expr>,
    parameters: &[Parameter],
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Scope<Value>> {
    let names = names(parameters);
    let scope = match scope {
        Scope::Public(span) => {
            if names.iter().any(|name| name == "public") {
                let message = format!(
                    "`public` is an argument of `{}`, and the keyword for one namespace that all callers share; for the \
                     argument write `scope = &public`, for the keyword rename the argument",
                    sig.ident
                );
                errors.at(span, message);
            }
            return Some(Scope::Public(span));
        }
        Scope::Of(scope) => scope,
    };
    let span = key::span(&scope);
    let misspelt = misspelt_public(&scope, &names);
    let constant = key::is_constant(&scope);
    let value = errors.ok(Value::new(scope))?;
    if let Some(message) = misspelt {
        errors.at(span, message);
    } else if constant {
        errors.at(
            span,
            "this scope is the same for every caller; name what distinguishes them, such as `scope = tenant` or \
             `scope = \"{tenant}\"`",
        );
    }
    Some(Scope::Of(value))
}

/// `"public"`, and other spellings of it by analogy.
fn misspelt_public(scope: &Expr, names: &[String]) -> Option<String> {
    match scope {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if text.value() == "public" => {
            Some("`public` is a keyword; remove the quotes: `scope = public`".to_owned())
        }
        Expr::Path(path) => {
            let word = path.path.get_ident()?.to_string();
            let mistaken = matches!(&*word, "none" | "Public") && !names.contains(&word);
            mistaken.then(|| {
                format!(
                    "`scope` has no value `{word}`; if all callers share one namespace, write `scope = public`"
                )
            })
        }
        _ => None,
    }
}
