//! Sets whose serialized order differs between processes and between instances.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    GenericArgument, ParenthesizedGenericArguments, Pat, Path, PathArguments, PathSegment, Type,
    TypeFnPtr, TypeParamBound,
};

/// The first `HashSet` in the type with the default, randomly seeded hasher.
pub(crate) fn unordered(ty: &Type) -> Option<Span> {
    let mut unordered = Unordered(None);
    // `visit-mut` is the only visitor feature that is enabled, so reading needs a clone too.
    unordered.visit_type_mut(&mut ty.clone());
    unordered.0
}

/// Whether the names of a pattern bind the whole value.
pub(crate) fn binds_all(pat: &Pat) -> bool {
    match pat {
        Pat::Ident(_) => true,
        Pat::Paren(pat) => binds_all(&pat.pat),
        Pat::Reference(pat) => binds_all(&pat.pat),
        Pat::Struct(pat) => {
            pat.rest.is_none() && pat.fields.iter().all(|field| binds_all(&field.pat))
        }
        Pat::Tuple(pat) => pat.elems.iter().all(binds_all),
        Pat::TupleStruct(pat) => pat.elems.iter().all(binds_all),
        Pat::Type(pat) => binds_all(&pat.pat),
        _ => false,
    }
}

struct Unordered(Option<Span>);

impl VisitMut for Unordered {
    fn visit_path_mut(&mut self, path: &mut Path) {
        if let Some(last) = path.segments.last().filter(|last| is_random(last)) {
            self.0.get_or_insert(last.ident.span());
        }
        visit_mut::visit_path_mut(self, path);
    }

    // The types named in these are not serialized.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_type_param_bound_mut(&mut self, _: &mut TypeParamBound) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
}

/// A second type argument is a custom hasher, which may be the same in every process.
fn is_random(segment: &PathSegment) -> bool {
    let PathArguments::AngleBracketed(generics) = &segment.arguments else {
        return false;
    };
    let types = generics
        .args
        .iter()
        .filter(|argument| matches!(argument, GenericArgument::Type(_)));
    segment.ident == "HashSet" && types.count() == 1
}

#[cfg(test)]
mod tests {
    use super::{binds_all, unordered};
    use syn::parse::Parser;
    use syn::{Pat, parse_str};

    #[test]
    fn a_random_set_is_found_at_any_depth() {
        for text in [
            "HashSet<u32>",
            "std::collections::HashSet<u32>",
            "&HashSet<T>",
            "&'a mut HashSet<&'a str>",
            "Option<Vec<HashSet<u32>>>",
            "HashSet<HashSet<u32>, Fixed>",
            "(u8, [HashSet<u32>; 2])",
            "HashMap<u32, Box<HashSet<u32>>>",
            "Json<HashSet<u32>>",
        ] {
            let ty = parse_str(text).expect("a type");
            assert!(unordered(&ty).is_some(), "{text}");
        }
    }

    #[test]
    fn another_type_is_accepted() {
        for text in [
            "HashSet<u32, Fixed>",
            "BTreeSet<u32>",
            "HashSet",
            "Tags",
            "HashMap<u32, u32>",
            "fn(HashSet<u32>) -> HashSet<u32>",
            "Box<dyn Fn(HashSet<u32>)>",
            "impl Trait<HashSet<u32>>",
        ] {
            let ty = parse_str(text).expect("a type");
            assert!(unordered(&ty).is_none(), "{text}");
        }
    }

    #[test]
    fn a_pattern_may_leave_something_out() {
        let all = |text| binds_all(&Pat::parse_single.parse_str(text).expect("a pattern"));
        for text in [
            "a",
            "mut a",
            "(a, b)",
            "Json(a)",
            "A { b, c: (d, e) }",
            "&a",
        ] {
            assert!(all(text), "{text}");
        }
        for text in ["_", "(a, _)", "(a, ..)", "A { b, .. }", "[a, ..]"] {
            assert!(!all(text), "{text}");
        }
    }
}
