//! `on_cancel = finish`: a body that outlives its caller must own all that it uses.

use crate::errors::Errors;
use crate::types::borrowed;
use proc_macro2::Span;
use syn::{
    FnArg, Receiver, ReceiverKind, Signature, Type, TypeParam, TypeParamBound, WherePredicate,
};

/// Rejects borrowed arguments.
pub(super) fn check(sig: &Signature, errors: &mut Errors) {
    for input in &sig.inputs {
        let (span, instead) = match input {
            FnArg::Receiver(receiver) => (receiver_borrow(receiver), "`self: Arc<Self>` or `self`"),
            FnArg::Typed(typed) => (
                borrowed(&typed.ty),
                "an owned value, such as a `String` for a `&str`, or an `Arc`",
            ),
        };
        if let Some(span) = span {
            let message = format!(
                "with `on_cancel = finish` the body runs in a task of its own, which may outlive what is \
                 borrowed here; take {instead}"
            );
            errors.at(span, message);
        }
    }
    for param in sig.generics.type_params() {
        let bounds = bounds(param, sig);
        let mut missing = vec!["Send", "'static"];
        missing.retain(|wanted| !bounds.iter().any(|bound| bound == wanted));
        if !missing.is_empty() && bounds.iter().all(|bound| KNOWN.contains(&&**bound)) {
            let message = format!(
                "with `on_cancel = finish` the body runs in a task of its own; add the bounds `{}: {}`",
                param.ident,
                missing.join(" + ")
            );
            errors.at(param.ident.span(), message);
        }
    }
}

/// Bounds whose implications are known; any other trait may imply `Send` or `'static`.
const KNOWN: [&str; 17] = [
    "Send",
    "Sync",
    "'static",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Deserialize",
    "DeserializeOwned",
    "Display",
    "Eq",
    "Hash",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Serialize",
    "ToString",
];

/// The last names of a parameter's bounds, `where` included.
fn bounds(param: &TypeParam, sig: &Signature) -> Vec<String> {
    let clauses = sig.generics.where_clause.iter();
    let more =
        clauses
            .flat_map(|clause| &clause.predicates)
            .filter_map(|predicate| match predicate {
                WherePredicate::Type(clause) => match &clause.bounded_ty {
                    Type::Path(path) if path.path.is_ident(&param.ident) => Some(&clause.bounds),
                    _ => None,
                },
                _ => None,
            });
    let all = param.bounds.iter().chain(more.flatten());
    all.map(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            (bound.path.segments.last()).map_or_else(String::new, |last| last.ident.to_string())
        }
        TypeParamBound::Lifetime(lifetime) => lifetime.to_string(),
        _ => String::new(),
    })
    .collect()
}

/// The span of the borrow in `&self` or `self: Pin<&Self>`.
fn receiver_borrow(receiver: &Receiver) -> Option<Span> {
    match &receiver.kind {
        ReceiverKind::Reference(and, ..) => Some(and.span),
        ReceiverKind::Typed(_, ty) => borrowed(ty),
        _ => None,
    }
}
