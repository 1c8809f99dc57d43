//! Calls of the setters of the given arguments; the defaults are the engine's.

use super::{at, here};
use crate::args::{Attempts, OnRunning};
use crate::key;
use crate::plan::{DurationSetting, Label, Plan};
use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::Expr;

pub(super) fn setters(plan: &Plan, rt: &TokenStream) -> TokenStream {
    let here = here();
    let settings = &plan.settings;
    let durations = settings.durations.iter().map(|(name, value)| {
        let setter = Ident::new(name, here);
        let value = match value {
            // Perhaps that of a function, which needs a closure.
            DurationSetting::Expr(expr)
                if *name == "ttl" && matches!(key::peeled(expr), Expr::Path(_)) =>
            {
                quote_spanned!(here=> #rt::ttl(#expr))
            }
            value => duration(value, rt),
        };
        quote_spanned!(here=> call.#setter(#value);)
    });
    // `call.on_panic(OnPanic::Release);` of `on_panic = release`
    let words = settings.words.iter().map(|(name, word)| {
        let setter = Ident::new(name, here);
        let ty = Ident::new(&pascal(name), here);
        let variant = Ident::new(&pascal(word.text), here);
        quote_spanned!(here=> call.#setter(#rt::#ty::#variant);)
    });
    let on_running = settings.on_running.as_ref().map(|what| {
        let what = match what {
            OnRunning::Wait(time) => {
                let time = duration(time, rt);
                quote_spanned!(here=> Wait(#time))
            }
            OnRunning::Reject => quote_spanned!(here=> Reject),
        };
        quote_spanned!(here=> call.on_running(#rt::OnRunning::#what);)
    });
    let attempts = settings.max_attempts.map(|attempts| match attempts {
        Attempts::Most(most) => quote_spanned!(here=> #rt::NonZeroU16::new(#most)),
        Attempts::Unlimited => quote_spanned!(here=> ::core::option::Option::None),
    });
    let attempts = attempts.map(|most| quote_spanned!(here=> call.max_attempts(#most);));
    let count = settings
        .count_errors
        .map(|count| quote_spanned!(here=> call.count_errors(#count);));
    let reconciles = plan
        .reconcile
        .as_ref()
        .map(|_| quote_spanned!(here=> call.reconciles();));
    quote_spanned!(here=> #(#durations)* #(#words)* #on_running #attempts #count #reconciles)
}

/// Output, for `"order {order}"`:
/// ```text
/// call.label(&format_args!("order {order}"));
/// ```
pub(super) fn label(label: &Label) -> TokenStream {
    let label = match label {
        // The whole literal, so that rustc can point at the name inside it.
        Label::Format(text) => {
            let span = at(text.span());
            quote_spanned!(span=> &::core::format_args!(#text))
        }
        Label::Expr(expr) => quote_spanned!(at(key::span(expr))=> &(#expr)),
    };
    quote_spanned!(here()=> call.label(#label);)
}

fn duration(value: &DurationSetting, rt: &TokenStream) -> TokenStream {
    match value {
        DurationSetting::Millis(millis) => {
            quote_spanned!(here()=> #rt::Duration::from_millis(#millis))
        }
        DurationSetting::Forever => quote_spanned!(here()=> #rt::FOREVER),
        // A binding of this type, so that rustc reports another one at the expression.
        DurationSetting::Expr(expr) => {
            quote_spanned!(here()=> { let time: #rt::Duration = #expr; time })
        }
    }
}

/// `OnLeaseLost` of `on_lease_lost`
fn pascal(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}
