//! `on_cancel = finish`: a body that outlives its caller must own all that it uses.

use crate::borrows;
use crate::errors::Errors;
use proc_macro2::Span;
use syn::{FnArg, Receiver, ReceiverKind, Signature};

/// Rejects borrowed arguments.
pub(super) fn check(sig: &Signature, errors: &mut Errors) {
    for input in &sig.inputs {
        let (span, instead) = match input {
            FnArg::Receiver(receiver) => (receiver_borrow(receiver), "`self: Arc<Self>` or `self`"),
            FnArg::Typed(typed) => (
                borrows::borrowed(&typed.ty),
                "an owned value, such as a `String` for a `&str`, or an `Arc`",
            ),
        };
        if let Some(span) = span {
            errors.at(
                span,
                format!(
                    "with `on_cancel = finish` the body runs in a task of its own, which may outlive what is \
                     borrowed here; take {instead}"
                ),
            );
        }
    }
}

/// The span of the borrow in `&self` or `self: Pin<&Self>`.
fn receiver_borrow(receiver: &Receiver) -> Option<Span> {
    match &receiver.kind {
        ReceiverKind::Reference(and, ..) => Some(and.span),
        ReceiverKind::Typed(_, ty) => borrows::borrowed(ty),
        _ => None,
    }
}
