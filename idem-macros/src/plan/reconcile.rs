//! The hook that reconciles an earlier attempt.

use super::fingerprint::Compared;
use crate::key;
use crate::types::is_reference;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Expr, ExprPath, ReceiverKind, Result, Signature};

const USAGE: &str = "`reconcile` takes the path of an async function, or a call of one, such as `find_charge` or \
                     `self.find_charge(&order_no)`";

pub(crate) enum Hook {
    /// A path, called with these values and then the context.
    Path(ExprPath, Vec<HookArgument>),
    /// An expression, called as written.
    Call(Expr),
}

/// A value that is passed to the hook.
pub(crate) struct HookArgument {
    pub(crate) value: Expr,
    /// Whether the type is a written reference, which is passed on itself.
    pub(crate) reference: bool,
}

pub(super) fn plan(hook: Expr, compared: &[Compared], sig: &Signature) -> Result<Hook> {
    match key::unwrapped(hook) {
        Expr::Path(path) => {
            let Some(argument) = compared.iter().find(|argument| !argument.is_certain) else {
                return Ok(Hook::Path(path, arguments(compared, sig)));
            };
            let hook = path.path.segments.last().map(|segment| &segment.ident);
            let message = format!(
                "`{}` is under `#[cfg]` and cannot be passed on; write the call of the hook, \
                 `reconcile = {}(..)`",
                argument.name,
                hook.to_token_stream()
            );
            Err(Error::new(argument.span, message))
        }
        hook @ (Expr::Call(_) | Expr::MethodCall(_)) => {
            let Some(span) = question_mark(hook.to_token_stream()) else {
                return Ok(Hook::Call(hook));
            };
            let message = "`?` is not allowed here; use it in the hook, whose error means that the outcome is still unknown";
            Err(Error::new(span, message))
        }
        Expr::Await(hook) => {
            let message = "the generated code awaits the hook; remove this `.await`";
            Err(Error::new(hook.await_token.span, message))
        }
        other => Err(Error::new(key::span(&other), USAGE)),
    }
}

/// The receiver and the compared values.
fn arguments(compared: &[Compared], sig: &Signature) -> Vec<HookArgument> {
    let receiver = sig.receiver().map(|receiver| {
        let token = receiver.self_token;
        HookArgument {
            value: syn::parse_quote!(#token),
            reference: match &receiver.kind {
                ReceiverKind::Reference(..) => true,
                ReceiverKind::Typed(_, ty) => is_reference(ty),
                _ => false,
            },
        }
    });
    let compared = compared.iter().map(|argument| HookArgument {
        value: argument.value.clone(),
        reference: argument.reference,
    });
    receiver.into_iter().chain(compared).collect()
}

fn question_mark(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Punct(punct) if punct.as_char() == '?' => Some(punct.span()),
        TokenTree::Group(group) => question_mark(group.stream()),
        _ => None,
    })
}
