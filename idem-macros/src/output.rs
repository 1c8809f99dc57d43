//! The return type: position of the answer's type, and its restrictions.

use crate::errors::Errors;
use crate::types::{borrowed, generics, peeled};
use proc_macro2::Span;
use syn::visit_mut::VisitMut;
use syn::{
    AssocType, Error, GenericArgument, PathSegment, Result, ReturnType, Signature, Token, Type,
    TypeParamBound,
};

/// How the function becomes a future.
pub(crate) enum Shape {
    /// `async fn`
    Async(Token![async]),
    /// `fn .. -> Pin<Box<dyn Future<Output = R>>>`, the form that `#[async_trait]` generates.
    Boxed(Box<Type>),
}

pub(crate) fn shape(sig: &Signature, errors: &mut Errors) -> Option<(Shape, Type)> {
    errors.ok(checked(sig))
}

fn checked(sig: &Signature) -> Result<(Shape, Type)> {
    let name = &sig.ident;
    let declared = match &sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(&**ty),
    };
    let (shape, output) = if let Some(asyncness) = sig.asyncness {
        (Shape::Async(asyncness), declared)
    } else if let Some((whole, output)) = declared.and_then(|ty| Some((ty, boxed(ty)?))) {
        (Shape::Boxed(Box::new(whole.clone())), Some(output))
    } else {
        let message = match declared {
            Some(Type::ImplTrait(_)) => {
                "`#[idempotent]` needs an `async fn`; it also implements a method declared `-> impl Future`"
            }
            _ => {
                "`#[idempotent]` needs an `async fn`: add `async`; if it is there, put `#[idempotent]` above the attribute \
                 that removes it"
            }
        };
        return Err(Error::new(sig.fn_token.span, message));
    };
    let Some(output) = output.filter(|ty| !is_unit(ty)) else {
        let message = format!(
            "`{name}` returns nothing; return a `Result<T, E>`: the answer to store, and an error for a call \
             that is refused"
        );
        return Err(Error::new(name.span(), message));
    };
    if let Some(span) = static_answer(output) {
        let message = "a stored answer is deserialized without borrowing; return an owned value";
        return Err(Error::new(span, message));
    }
    if let Some(span) = borrowed(output) {
        let message = "the answer outlives the call; return an owned value";
        return Err(Error::new(span, message));
    }
    if let Some((span, message)) = unusable(output) {
        return Err(Error::new(span, message));
    }
    Ok((shape, output.clone()))
}

/// The error for an output that is neither stored nor refused; reported here, because otherwise rustc reports each
/// missing trait.
fn unusable(output: &Type) -> Option<(Span, &'static str)> {
    let is_response = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => {
            (bound.path.segments.last()).is_some_and(|last| last.ident == "IntoResponse")
        }
        _ => false,
    };
    match argument(output, "Result").unwrap_or(output) {
        Type::ImplTrait(opaque) if opaque.bounds.iter().any(is_response) => {
            let message = "a response cannot be read back from the store; return `Result<Reply<T>, E>`: \
                           `idem_runtime::http::Reply` holds the status, headers and a value";
            return Some((opaque.impl_token.span, message));
        }
        _ => {}
    }
    let Type::Path(path) = error(output)? else {
        return None;
    };
    let last = &path.path.segments.last()?.ident;
    is_std(&path.path, "string", "String").then(|| {
        let message = "a `String` cannot hold a refusal of idem; return an error type of your own, with a variant \
                       `Idempotency(idem_runtime::Error)` and `From<idem_runtime::Error>`";
        (last.span(), message)
    })
}

/// Whether this is `name`, `std::module::name` or that of `core` or `alloc`. The `name` of another path may be an alias of
/// another type.
fn is_std(path: &syn::Path, module: &str, name: &str) -> bool {
    let segments = path.segments.iter().map(|it| it.ident.to_string());
    match &*segments.collect::<Vec<_>>() {
        [last] => last == name,
        [root, inner, last] => {
            ["std", "core", "alloc"].contains(&&**root) && inner == module && last == name
        }
        _ => false,
    }
}

/// `E` of `Result<T, E>`.
pub(crate) fn error(output: &Type) -> Option<&Type> {
    let Type::Path(path) = output else {
        return None;
    };
    let last = (path.path.segments.last()).filter(|_| is_std(&path.path, "result", "Result"))?;
    match generics(last).nth(1)? {
        GenericArgument::Type(error) => Some(error),
        _ => None,
    }
}

/// `R` of `Pin<Box<dyn Future<Output = R> + ..>>`.
fn boxed(ty: &Type) -> Option<&Type> {
    let Type::TraitObject(object) = argument(argument(ty, "Pin")?, "Box")? else {
        return None;
    };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let last = named(bound.path.segments.last(), "Future")?;
        generics(last).find_map(|argument| match argument {
            GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
            _ => None,
        })
    })
}

/// `T` of `path::name<T>`.
fn argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = peeled(ty) else {
        return None;
    };
    let last = named(path.path.segments.last(), name)?;
    generics(last).find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn named<'a>(segment: Option<&'a PathSegment>, name: &str) -> Option<&'a PathSegment> {
    segment.filter(|segment| segment.ident == name)
}

/// The `&` of `Result<&'static T, E>`: a decoded answer does not live that long.
fn static_answer(output: &Type) -> Option<Span> {
    match argument(output, "Result")? {
        Type::Reference(reference) => {
            let lifetime = reference.lifetime.as_ref()?;
            (lifetime.ident == "static").then_some(reference.and_token.span)
        }
        _ => None,
    }
}

/// The return type of a function whose answer is `answer`.
pub(crate) fn returning(sig: &Signature, answer: Type) -> ReturnType {
    let ReturnType::Type(arrow, declared) = &sig.output else {
        unreachable!("a function that returns nothing has no shape")
    };
    let mut declared = declared.clone();
    if sig.asyncness.is_some() {
        *declared = answer;
    } else {
        Answering(answer).visit_type_mut(&mut declared);
    }
    ReturnType::Type(*arrow, declared)
}

/// Replaces the answer in `Pin<Box<dyn Future<Output = R>>>`.
struct Answering(Type);

impl VisitMut for Answering {
    fn visit_assoc_type_mut(&mut self, assoc: &mut AssocType) {
        if assoc.ident == "Output" {
            assoc.ty = self.0.clone();
        }
    }
}

fn is_unit(ty: &Type) -> bool {
    matches!(peeled(ty), Type::Tuple(tuple) if tuple.elems.is_empty())
}
