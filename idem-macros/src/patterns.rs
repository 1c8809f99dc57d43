//! Names that a pattern binds.

use crate::types;
use syn::{Ident, Pat, Type};

/// The patterns inside a pattern.
fn parts(pat: &Pat) -> Vec<&Pat> {
    match pat {
        Pat::Ident(pat) => pat.subpat.iter().map(|(_, pat)| &**pat).collect(),
        Pat::Or(pat) => pat.cases.iter().collect(),
        Pat::Paren(pat) => vec![&*pat.pat],
        Pat::Reference(pat) => vec![&*pat.pat],
        Pat::Slice(pat) => pat.elems.iter().collect(),
        Pat::Struct(pat) => pat.fields.iter().map(|field| &*field.pat).collect(),
        Pat::Tuple(pat) => pat.elems.iter().collect(),
        Pat::TupleStruct(pat) => pat.elems.iter().collect(),
        Pat::Type(pat) => vec![&*pat.pat],
        _ => Vec::new(),
    }
}

pub(crate) fn names(pat: &Pat) -> Vec<Ident> {
    let own = match pat {
        Pat::Ident(pat) => Some(pat.ident.clone()),
        _ => None,
    };
    let mut parts = parts(pat);
    if matches!(pat, Pat::Or(_)) {
        // All alternatives bind the same names.
        parts.truncate(1);
    }
    own.into_iter()
        .chain(parts.into_iter().flat_map(names))
        .collect()
}

/// Names of a parameter that hold a client's key: all names if its type has one, else those in `IdempotencyKey(key)`
/// at any depth of the pattern.
pub(crate) fn client_keys(pat: &Pat, ty: &Type) -> Vec<Ident> {
    if types::has_client_key(ty) {
        return names(pat);
    }
    extracted(pat)
}

fn extracted(pat: &Pat) -> Vec<Ident> {
    match pat {
        Pat::TupleStruct(outer) if types::is_client_key(&outer.path) => names(pat),
        Pat::Struct(outer) if types::is_client_key(&outer.path) => names(pat),
        _ => parts(pat).into_iter().flat_map(extracted).collect(),
    }
}

/// Whether the names of a pattern bind the whole value.
pub(crate) fn binds_all(pat: &Pat) -> bool {
    match pat {
        Pat::Ident(_) => true,
        Pat::Struct(outer) if outer.rest.is_some() => false,
        Pat::Paren(_)
        | Pat::Reference(_)
        | Pat::Struct(_)
        | Pat::Tuple(_)
        | Pat::TupleStruct(_)
        | Pat::Type(_) => parts(pat).into_iter().all(binds_all),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{binds_all, client_keys};
    use syn::parse::Parser;
    use syn::{Pat, parse_str};

    fn pattern(text: &str) -> Pat {
        Pat::parse_single.parse_str(text).expect("a pattern")
    }

    #[test]
    fn a_client_key_is_found_at_any_depth() {
        for (pat, ty, expected) in [
            ("key", "&idem_runtime::http::IdempotencyKey", 1),
            ("mut key", "Option<IdempotencyKey>", 1),
            ("Extension(key)", "Extension<IdempotencyKey>", 1),
            ("Extension(IdempotencyKey(key))", "ClientKey", 1),
            ("http::IdempotencyKey { 0: key }", "ClientKey", 1),
            ("Request { key: IdempotencyKey(key), order }", "Request", 1),
            ("(order, Some(IdempotencyKey(key)))", "Request", 1),
            ("key", "fn(IdempotencyKey) -> String", 0),
            ("key", "impl Fn(IdempotencyKey)", 0),
            ("Json(order)", "Json<NewOrder>", 0),
        ] {
            let found = client_keys(&pattern(pat), &parse_str(ty).expect("a type"));
            assert_eq!(found.len(), expected, "{pat}: {ty}");
            assert!(found.iter().all(|name| name == "key"), "{pat}: {ty}");
        }
    }

    #[test]
    fn a_pattern_may_leave_something_out() {
        for text in [
            "a",
            "mut a",
            "(a, b)",
            "Json(a)",
            "A { b, c: (d, e) }",
            "&a",
        ] {
            assert!(binds_all(&pattern(text)), "{text}");
        }
        for text in ["_", "(a, _)", "(a, ..)", "A { b, .. }", "[a, ..]"] {
            assert!(!binds_all(&pattern(text)), "{text}");
        }
    }
}
