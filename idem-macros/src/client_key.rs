//! Arguments that hold the key that a client sent.

use crate::target::bound_names;
use syn::visit_mut::{self, VisitMut};
use syn::{Ident, ParenthesizedGenericArguments, Pat, Path, Type, TypeFnPtr, TypeParamBound};

/// The extractor of `idem_runtime::http`, recognized by its name because an attribute does not see types.
const NAME: &str = "IdempotencyKey";

/// Names of a parameter that hold a client's key: all names if its type names one, else those in a pattern of one.
pub(crate) fn names(pat: &Pat, ty: &Type, bound: &[Ident]) -> Vec<Ident> {
    if is_in(ty) {
        return bound.to_vec();
    }
    let mut names = Vec::new();
    collect_names(pat, &mut names);
    names
}

fn is_in(ty: &Type) -> bool {
    let mut named = Named(false);
    // `visit-mut` is the only visitor feature that is enabled, so reading needs a clone too.
    named.visit_type_mut(&mut ty.clone());
    named.0
}

/// Collects the names in `IdempotencyKey(key)`, at any depth of a pattern.
fn collect_names(pat: &Pat, names: &mut Vec<Ident>) {
    let path = match pat {
        Pat::TupleStruct(outer) => Some(&outer.path),
        Pat::Struct(outer) => Some(&outer.path),
        _ => None,
    };
    if path.is_some_and(is_name) {
        bound_names(pat, names);
        return;
    }
    match pat {
        Pat::TupleStruct(outer) => outer.elems.iter().for_each(|pat| collect_names(pat, names)),
        Pat::Struct(outer) => {
            let fields = outer.fields.iter();
            fields.for_each(|field| collect_names(&field.pat, names));
        }
        Pat::Ident(outer) => {
            if let Some((_, pat)) = &outer.subpat {
                collect_names(pat, names);
            }
        }
        Pat::Or(outer) => outer.cases.iter().for_each(|pat| collect_names(pat, names)),
        Pat::Paren(outer) => collect_names(&outer.pat, names),
        Pat::Reference(outer) => collect_names(&outer.pat, names),
        Pat::Slice(outer) => outer.elems.iter().for_each(|pat| collect_names(pat, names)),
        Pat::Tuple(outer) => outer.elems.iter().for_each(|pat| collect_names(pat, names)),
        Pat::Type(outer) => collect_names(&outer.pat, names),
        _ => {}
    }
}

fn is_name(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == NAME)
}

struct Named(bool);

impl VisitMut for Named {
    fn visit_path_mut(&mut self, path: &mut Path) {
        self.0 |= is_name(path);
        visit_mut::visit_path_mut(self, path);
    }

    // The types named in these are not part of the value.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_type_param_bound_mut(&mut self, _: &mut TypeParamBound) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
}

#[cfg(test)]
mod tests {
    use super::names;
    use crate::target::bound_names;
    use syn::parse::Parser;
    use syn::{Pat, parse_str};

    fn found(pat: &str, ty: &str) -> Vec<String> {
        let pat = Pat::parse_single.parse_str(pat).expect("a pattern");
        let mut bound = Vec::new();
        bound_names(&pat, &mut bound);
        let found = names(&pat, &parse_str(ty).expect("a type"), &bound);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_client_key_is_found_at_any_depth() {
        for (pat, ty) in [
            ("key", "IdempotencyKey"),
            ("key", "&idem_runtime::http::IdempotencyKey"),
            ("mut key", "Option<IdempotencyKey>"),
            ("key", "Result<IdempotencyKey, Problem>"),
            ("key", "Box<[IdempotencyKey; 2]>"),
            ("Extension(key)", "Extension<IdempotencyKey>"),
            (
                "Extension(IdempotencyKey(key))",
                "Extension<IdempotencyKey>",
            ),
            ("IdempotencyKey(key)", "ClientKey"),
            ("http::IdempotencyKey { 0: key }", "ClientKey"),
            ("Request { key: IdempotencyKey(key), order }", "Request"),
            ("(order, Some(IdempotencyKey(key)))", "Request"),
        ] {
            assert_eq!(found(pat, ty), ["key"], "{pat}: {ty}");
        }
    }

    #[test]
    fn another_argument_is_accepted() {
        for (pat, ty) in [
            ("key", "String"),
            ("key", "IdempotencyKeys"),
            ("key", "fn(IdempotencyKey) -> String"),
            ("key", "impl Fn(IdempotencyKey)"),
            ("Json(order)", "Json<NewOrder>"),
        ] {
            assert!(found(pat, ty).is_empty(), "{pat}: {ty}");
        }
    }
}
