//! Borrows in a type.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    AssocType, Ident, Lifetime, ParenthesizedGenericArguments, TraitBound, Type, TypeFnPtr,
    TypeReference,
};

/// The first reference or lifetime in the type that is not `'static`.
pub(crate) fn borrowed(ty: &Type) -> Option<Span> {
    let mut borrows = Borrows(None);
    // `visit-mut` is the only visitor feature that is enabled, so reading needs a clone too.
    borrows.visit_type_mut(&mut ty.clone());
    borrows.0
}

/// The type with every lifetime replaced by `'static`.
pub(crate) fn owned(mut ty: Type) -> Type {
    Relabel("static").visit_type_mut(&mut ty);
    ty
}

/// The type with every lifetime replaced by `'_`.
pub(crate) fn inferred(mut ty: Type) -> Type {
    Relabel("_").visit_type_mut(&mut ty);
    ty
}

struct Relabel(&'static str);

impl VisitMut for Relabel {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        lifetime.ident = Ident::new(self.0, lifetime.ident.span());
    }

    // The answer's type borrows nothing: its lifetimes belong to a `for<'a>`.
    fn visit_assoc_type_mut(&mut self, _: &mut AssocType) {}
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

#[cfg(test)]
mod tests {
    use super::borrowed;
    use syn::parse_str;

    #[test]
    fn a_borrow_is_found_at_any_depth() {
        for text in [
            "&str",
            "&'static [&'a str]",
            "Cow<'_, str>",
            "Option<(u8, &mut T)>",
            "impl Trait + '_",
            "Box<dyn Trait + 'a>",
            "[&'a u8; 4]",
        ] {
            let ty = parse_str(text).expect("a type");
            assert!(borrowed(&ty).is_some(), "{text}");
        }
    }

    #[test]
    fn a_type_without_a_borrowed_value_is_accepted() {
        for text in [
            "String",
            "&'static str",
            "Cow<'static, str>",
            "impl Trait + 'static",
            "fn(&str) -> &str",
            "Box<dyn Fn(&str) -> bool + Send>",
            "Box<dyn for<'a> Visitor<'a>>",
        ] {
            let ty = parse_str(text).expect("a type");
            assert!(borrowed(&ty).is_none(), "{text}");
        }
    }
}
