//! The macros of `idem-runtime`, which re-exports them: depend on that crate, not on this one.
//!
//! An attribute passes through four stages, a module each: `args` parses the attribute, `target` the function under it,
//! `plan` checks both and decides, `expand` prints. The body of the function is never parsed.

mod args;
mod classify;
mod duration;
mod errors;
mod expand;
mod format;
mod key;
mod nearest;
mod output;
mod patterns;
mod plan;
mod runtime;
mod target;
mod types;

use proc_macro::TokenStream;

/// Makes an `async fn` answer every call with the same key once.
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(args.into(), item.into()).into()
}

/// Its attributes: `#[class(business | system | unknown | delegate)]` on each variant, or on a struct; and
/// `#[classify(crate = ::facade::idem)]` on the type, the path of `idem_runtime` where that is re-exported.
#[proc_macro_derive(Classify, attributes(class, classify))]
pub fn classify(item: TokenStream) -> TokenStream {
    classify::derive(item.into()).into()
}
