//! Names within a type: an attribute does not see types.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    AssocType, GenericArgument, Ident, Lifetime, ParenthesizedGenericArguments, Path,
    PathArguments, PathSegment, TraitBound, Type, TypeFnPtr, TypeParamBound, TypeReference,
};

/// The extractor of `idem_runtime::http`.
const CLIENT_KEY: &str = "IdempotencyKey";

// `visit-mut` is the only visitor feature that is enabled, so reading needs a clone too.

/// The first reference or lifetime in the type that is not `'static`.
pub(crate) fn borrowed(ty: &Type) -> Option<Span> {
    let mut borrows = Borrows(None);
    borrows.visit_type_mut(&mut ty.clone());
    borrows.0
}

/// The first `HashSet` in the type with the default, randomly seeded hasher: its serialized order differs between
/// processes and between instances.
pub(crate) fn unordered(ty: &Type) -> Option<Span> {
    // A second type argument is a custom hasher, which may be the same in every process.
    find(ty, |last| {
        let types = generics(last).filter(|it| matches!(it, GenericArgument::Type(_)));
        last.ident == "HashSet" && types.count() == 1
    })
}

/// Whether a client's key is part of a value of this type.
pub(crate) fn has_client_key(ty: &Type) -> bool {
    find(ty, |last| last.ident == CLIENT_KEY).is_some()
}

pub(crate) fn is_optional_client_key(ty: &Type) -> bool {
    let ty = match peeled(ty) {
        Type::Reference(reference) => peeled(&reference.elem),
        ty => ty,
    };
    let Type::Path(path) = ty else { return false };
    let is_client_key = |argument: &GenericArgument| match argument {
        GenericArgument::Type(Type::Path(path)) => is_client_key(&path.path),
        _ => false,
    };
    let last = path.path.segments.last();
    last.is_some_and(|last| last.ident == "Option" && generics(last).any(is_client_key))
}

pub(crate) fn is_client_key(path: &Path) -> bool {
    (path.segments.last()).is_some_and(|last| last.ident == CLIENT_KEY)
}

/// Whether the type cannot be written outside a signature.
pub(crate) fn mentions_impl(ty: &Type) -> bool {
    let mut inferred = Inferred(false);
    inferred.visit_type_mut(&mut ty.clone());
    inferred.0
}

/// The type with `_` for each `impl Trait`.
pub(crate) fn nameable(mut ty: Type) -> Type {
    Inferred(false).visit_type_mut(&mut ty);
    ty
}

/// The type with every lifetime replaced by this one: `static` or `_`.
pub(crate) fn with_lifetimes(mut ty: Type, lifetime: &'static str) -> Type {
    Relabel(lifetime).visit_type_mut(&mut ty);
    ty
}

/// The type without parentheses, and without the invisible delimiters of a `$ty:ty`.
pub(crate) fn peeled(ty: &Type) -> &Type {
    match ty {
        Type::Paren(paren) => peeled(&paren.elem),
        Type::Group(group) => peeled(&group.elem),
        other => other,
    }
}

pub(crate) fn is_reference(ty: &Type) -> bool {
    matches!(peeled(ty), Type::Reference(_))
}

/// `A` and `B` of `name<A, B>`.
pub(crate) fn generics(segment: &PathSegment) -> impl Iterator<Item = &GenericArgument> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten()
}

/// The last segment of the first wanted path in the type.
fn find(ty: &Type, is_wanted: impl Fn(&PathSegment) -> bool) -> Option<Span> {
    let mut paths = Paths(is_wanted, None);
    paths.visit_type_mut(&mut ty.clone());
    paths.1
}

struct Paths<F>(F, Option<Span>);

impl<F: Fn(&PathSegment) -> bool> VisitMut for Paths<F> {
    fn visit_path_mut(&mut self, path: &mut Path) {
        if let Some(last) = path.segments.last().filter(|last| (self.0)(last)) {
            self.1.get_or_insert(last.ident.span());
        }
        visit_mut::visit_path_mut(self, path);
    }

    // The types named in these are not part of the value.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_type_param_bound_mut(&mut self, _: &mut TypeParamBound) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
}

struct Borrows(Option<Span>);

impl VisitMut for Borrows {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        let is_static = |lifetime: &Lifetime| lifetime.ident == "static";
        if !reference.lifetime.as_ref().is_some_and(is_static) {
            self.0.get_or_insert(reference.and_token.span);
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            self.0.get_or_insert(lifetime.span());
        }
    }

    // `fn(&str)`, `Fn(&str)` and `for<'a> Trait<'a>` hold no borrowed value.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
    fn visit_trait_bound_mut(&mut self, bound: &mut TraitBound) {
        if bound.lifetimes.is_none() {
            visit_mut::visit_trait_bound_mut(self, bound);
        }
    }
}

struct Relabel(&'static str);

impl VisitMut for Relabel {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        lifetime.ident = Ident::new(self.0, lifetime.ident.span());
    }

    // The answer's type borrows nothing: its lifetimes belong to a `for<'a>`.
    fn visit_assoc_type_mut(&mut self, _: &mut AssocType) {}
}

struct Inferred(bool);

impl VisitMut for Inferred {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if matches!(ty, Type::ImplTrait(_)) {
            *ty = syn::parse_quote!(_);
            self.0 = true;
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{borrowed, has_client_key, is_optional_client_key, unordered};
    use syn::{Type, parse_str};

    fn all(are: bool, found: impl Fn(&Type) -> bool, types: &[&str]) {
        for text in types {
            assert_eq!(found(&parse_str(text).expect("a type")), are, "{text}");
        }
    }

    #[test]
    fn a_borrow_is_found_at_any_depth() {
        let found = |ty: &Type| borrowed(ty).is_some();
        let borrows = [
            "&str",
            "&'static [&'a str]",
            "Cow<'_, str>",
            "Option<(u8, &mut T)>",
            "impl Trait + '_",
            "Box<dyn Trait + 'a>",
            "[&'a u8; 4]",
        ];
        all(true, found, &borrows);
        let others = [
            "String",
            "&'static str",
            "Cow<'static, str>",
            "impl Trait + 'static",
            "fn(&str) -> &str",
            "Box<dyn Fn(&str) -> bool + Send>",
            "Box<dyn for<'a> Visitor<'a>>",
        ];
        all(false, found, &others);
    }

    #[test]
    fn a_random_set_is_found_at_any_depth() {
        let found = |ty: &Type| unordered(ty).is_some();
        let sets = [
            "HashSet<u32>",
            "std::collections::HashSet<u32>",
            "&'a mut HashSet<&'a str>",
            "Option<Vec<HashSet<u32>>>",
            "HashSet<HashSet<u32>, Fixed>",
            "(u8, [HashSet<u32>; 2])",
            "HashMap<u32, Box<HashSet<u32>>>",
        ];
        all(true, found, &sets);
        let others = [
            "HashSet<u32, Fixed>",
            "BTreeSet<u32>",
            "HashSet",
            "HashMap<u32, u32>",
            "fn(HashSet<u32>) -> HashSet<u32>",
            "Box<dyn Fn(HashSet<u32>)>",
            "impl Trait<HashSet<u32>>",
        ];
        all(false, found, &others);
    }

    #[test]
    fn a_client_key_is_found_by_its_whole_name() {
        let keys = [
            "&idem_runtime::http::IdempotencyKey",
            "Result<IdempotencyKey, Problem>",
        ];
        all(true, has_client_key, &keys);
        all(false, has_client_key, &["String", "IdempotencyKeys"]);
        all(
            true,
            is_optional_client_key,
            &["std::option::Option<IdempotencyKey>"],
        );
        all(
            false,
            is_optional_client_key,
            &["IdempotencyKey", "Option<String>"],
        );
    }
}
