//! The hook that reconciles an earlier attempt.

use super::fingerprint::Compared;
use crate::errors::Errors;
use crate::key;
use crate::target::is_reference;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, ExprPath, ReceiverKind, Signature};

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
    /// Whether the type is written as a reference, which is then passed on itself.
    pub(crate) reference: bool,
}

pub(super) fn plan(
    hook: Expr,
    compared: &[Compared],
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Hook> {
    match hook {
        Expr::Group(group) => plan(*group.expr, compared, sig, errors),
        Expr::Paren(paren) => plan(*paren.expr, compared, sig, errors),
        Expr::Path(path) => {
            if let Some(argument) = compared.iter().find(|argument| !argument.cfgs.is_empty()) {
                let hook = path.path.segments.last().map(|segment| &segment.ident);
                let message = format!(
                    "`{}` is under `#[cfg]` and cannot be passed on; write the call of the hook, \
                     `reconcile = {}(..)`",
                    argument.name,
                    hook.to_token_stream()
                );
                errors.at(argument.span, message);
                return None;
            }
            Some(Hook::Path(path, arguments(compared, sig)))
        }
        Expr::Call(_) | Expr::MethodCall(_) => {
            if let Some(span) = question_mark(hook.to_token_stream()) {
                errors.at(
                    span,
                    "`?` is not allowed here; use it in the hook, whose error means that the outcome is still unknown",
                );
                return None;
            }
            Some(Hook::Call(hook))
        }
        Expr::Await(hook) => {
            let message = "the generated code awaits the hook; remove this `.await`";
            errors.at(hook.await_token.span, message);
            None
        }
        other => {
            errors.at(key::span(&other), USAGE);
            None
        }
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
