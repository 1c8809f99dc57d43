//! Key and scope: the identity of a call.

use super::function::Function;
use crate::args::Scope;
use crate::key::{self, Value, peeled};
use crate::types::is_optional_client_key;
use syn::{Error, Expr, Result};

pub(super) fn key(key: Expr, function: &Function<'_>) -> Result<Value> {
    let checked = check(&key, function);
    let value = Value::new(key, &function.names)?;
    checked.map(|()| value)
}

fn check(key: &Expr, function: &Function<'_>) -> Result<()> {
    let span = key::span(key);
    if key::is_constant(key) {
        let message = "this key is the same for every call; name what distinguishes two calls, such as \
                       `key = order_id` or `key = \"{order_id}\"`";
        return Err(Error::new(span, message));
    }
    let (name, names) = (&function.sig.ident, &function.names);
    if key::mentions(key, names) || key::mentions(key, &["self".to_owned()]) {
        return check_parts(key, function, false);
    }
    function.check_names(key)?;
    if let Some(hint) = function.hidden() {
        let message = format!("`key` names no argument of `{name}`; {hint}");
        return Err(Error::new(span, message));
    }
    let shared = "every call would share one record and get its answer";
    let message = match (&**names, function.sig.receiver()) {
        ([], None) => format!(
            "`{name}` has no argument, so that {shared}; pass what distinguishes two calls, as in \
             `async fn {name}(day: Date)`, and write `key = day`"
        ),
        ([], Some(_)) => {
            format!("`key` does not depend on `self`, and `{name}` has no other argument; {shared}")
        }
        (names, _) => {
            let names = names.join("`, `");
            format!("`key` names no argument of `{name}` (`{names}`); {shared}")
        }
    };
    Err(Error::new(span, message))
}

/// Refuses a part that changes between repeats, or joins different calls.
fn check_parts(key: &Expr, function: &Function<'_>, is_part: bool) -> Result<()> {
    let part = |part: &Expr| check_parts(part, function, is_part);
    match peeled(key) {
        Expr::Path(path) => {
            let Some(name) = path.path.get_ident() else {
                return Ok(());
            };
            let parameter = function
                .parameters
                .iter()
                .find(|parameter| matches!(&*parameter.names, [only] if only == name));
            let message = match parameter {
                Some(set) if set.unordered.is_some() => format!(
                    "the order of the `HashSet` in `{name}` differs each time, so that a repeated call would not be \
                     recognized; make a `BTreeSet` or a sorted `Vec` of it"
                ),
                Some(key) if is_part && key.ty.as_ref().is_some_and(is_optional_client_key) => {
                    format!(
                        "`{name}` is `None` in every request without a key, and these would be one call by the other \
                         parts; take an `IdempotencyKey`, which a request must have"
                    )
                }
                _ => return Ok(()),
            };
            Err(Error::new(name.span(), message))
        }
        Expr::Tuple(tuple) => {
            (tuple.elems.iter()).try_for_each(|part| check_parts(part, function, true))
        }
        Expr::Reference(reference) => part(&reference.expr),
        Expr::MethodCall(call) if call.method == "clone" || call.method == "as_ref" => {
            part(&call.receiver)
        }
        _ => Ok(()),
    }
}

/// Checks `scope`. A constant that is not a literal is accepted: it may be the region of a deployment.
pub(super) fn scope(scope: Scope<Expr>, function: &Function<'_>) -> Result<Scope<Value>> {
    let scope = match scope {
        Scope::Public(span) if function.names.iter().any(|name| name == "public") => {
            let message = format!(
                "`public` is an argument of `{}`, and the keyword for one namespace that all callers share; for the \
                 argument write `scope = &public`, for the keyword rename the argument",
                function.sig.ident
            );
            return Err(Error::new(span, message));
        }
        Scope::Public(span) => return Ok(Scope::Public(span)),
        Scope::Of(scope) => scope,
    };
    let span = key::span(&scope);
    let misspelt = misspelt_public(&scope, &function.names);
    let constant = key::is_constant(&scope).then(|| {
        "this scope is the same for every caller; name what distinguishes them, such as `scope = tenant` or \
         `scope = \"{tenant}\"`"
            .to_owned()
    });
    let value = Value::new(scope, &function.names)?;
    match misspelt.or(constant) {
        Some(message) => Err(Error::new(span, message)),
        None => Ok(Scope::Of(value)),
    }
}

/// `"public"`, and other spellings of it by analogy.
fn misspelt_public(scope: &Expr, names: &[String]) -> Option<String> {
    if key::literal(scope).is_some_and(|text| text.value() == "public") {
        return Some("`public` is a keyword; remove the quotes: `scope = public`".to_owned());
    }
    let Expr::Path(path) = scope else { return None };
    let word = path.path.get_ident()?.to_string();
    let mistaken = matches!(&*word, "none" | "Public") && !names.contains(&word);
    mistaken.then(|| {
        format!(
            "`scope` has no value `{word}`; if all callers share one namespace, write `scope = public`"
        )
    })
}
