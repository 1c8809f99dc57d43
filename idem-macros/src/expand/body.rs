//! The future that replaces the body.

use super::{at, here, located};
use crate::key;
use crate::output::Shape;
use crate::plan::{Hook, HookArgument, Plan};
use crate::target::Target;
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;

/// The body as a block of a written type.
///
/// Input:
/// ```text
/// { BODY }
/// ```
/// Output:
/// ```text
/// async move {
///     if let Some(out) = None::<T> { return out; }
///     <the hook, if there is one>
///     let out: T = { BODY };
///     out
/// }
/// ```
pub(super) fn future(plan: &Plan, target: &Target, rt: &TokenStream) -> TokenStream {
    let ty = &plan.output;
    let body = &target.body;
    let reconciled = plan.reconcile.as_ref().map(|hook| reconciled(hook, rt));
    let early = quote_spanned!(at(ty.span())=> return out);
    let typed = quote_spanned! {here()=>
        if let ::core::option::Option::Some(out) = ::core::option::Option::None::<#ty> {
            #[allow(unreachable_code)]
            #early;
        }
    };
    match &plan.shape {
        // Located on the user's `async`: elsewhere rustc reports a moved value without naming it.
        Shape::Async(asyncness) => {
            let answer = quote_spanned! {here()=>
                #typed
                #reconciled
                #[allow(clippy::diverging_sub_expression)]
                let out: #ty = #body;
                #[allow(unreachable_code)]
                out
            };
            quote_spanned!(asyncness.span=> async move { #answer })
        }
        // A closure keeps a body that returns its own future whole. It is called in this block, because the statements
        // before that future belong to the body as well.
        Shape::Boxed(whole) => {
            let typed = reconciled.as_ref().map(|_| typed);
            quote_spanned! {here()=>
                async move {
                    #typed
                    #reconciled
                    let body: #whole = (move || #body)();
                    body.await
                }
            }
        }
    }
}

/// Most references a hook takes, context included, by the runtime's diagnostics.
const MAX_HOOK_ARGUMENTS: usize = 8;

/// The hook runs inside the body's future, which owns the arguments.
///
/// Output:
/// ```text
/// if unsettled() {
///     let cx = context();
///     let hook = hook(given::<(&_, &_), _>(&(&req, &cx)), HOOK);
///     let hook = async { verdict(hook.call((&req, &cx)).await) };
///     if let Some(answer) = reconciled(hook).await { return Ok(answer); }
/// }
/// ```
fn reconciled(hook: &Hook, rt: &TokenStream) -> TokenStream {
    let (span, prepared, hook) = match hook {
        Hook::Path(path, arguments) if arguments.len() >= MAX_HOOK_ARGUMENTS => {
            let span = path.path.segments.last().map_or_else(here, Spanned::span);
            let references = arguments.iter().map(|argument| reference(argument, span));
            let called = quote_spanned!(at(span)=> #path(#(#references,)* &cx));
            let cx = quote_spanned!(here()=> let cx = #rt::context(););
            (span, Some(cx), called)
        }
        Hook::Path(path, arguments) => {
            let span = path.path.segments.last().map_or_else(here, Spanned::span);
            let rt_at_hook = located(rt, span);
            let placeholders = arguments.iter().map(|_| quote_spanned!(at(span)=> &_,));
            let references = arguments.iter().map(|argument| reference(argument, span));
            let references = quote_spanned!(at(span)=> (#(#references,)* &cx,));
            let hook = quote_spanned! {at(span)=>
                #rt_at_hook::hook(#rt_at_hook::given::<(#(#placeholders)* &_,), _>(&#references), #path)
            };
            let prepared = quote_spanned! {here()=>
                let cx = #rt::context();
                let hook = #hook;
            };
            (
                span,
                Some(prepared),
                quote_spanned!(at(span)=> hook.call(#references)),
            )
        }
        Hook::Call(call) => (key::span(call), None, quote_spanned!(here()=> #call)),
    };
    // Type errors of the hook's arguments and result are located on the hook. In a block of its own they are reported
    // once, and code of the hook before its first await counts as the hook's.
    let rt_at_hook = located(rt, span);
    let verdict = quote_spanned!(at(span)=> #rt_at_hook::HookVerdict::verdict(#hook.await));
    let answer = quote_spanned!(at(span)=> answer);
    quote_spanned! {here()=>
        if #rt::unsettled() {
            #prepared
            let hook = async { #verdict };
            if let ::core::option::Option::Some(answer) = #rt::reconciled(hook).await {
                return ::core::result::Result::Ok(#answer);
            }
        }
    }
}

fn reference(argument: &HookArgument, span: Span) -> TokenStream {
    let value = &argument.value;
    if argument.reference {
        quote_spanned!(at(span)=> &*#value)
    } else {
        quote_spanned!(at(span)=> &(#value))
    }
}
