//! The companion function that finds the record of a call.

use super::here;
use crate::output::{self, Shape};
use crate::plan::Plan;
use crate::target::Target;
use proc_macro2::{Delimiter, Group, Ident, TokenStream};
use quote::quote_spanned;
use syn::{Attribute, FnArg, Meta, Pat, Signature};

/// Input:
/// ```text
/// #[idempotent(.., entry = pay_entry)]
/// async fn pay(req: Req) -> Result<T, E> { BODY }
/// ```
/// Output:
/// ```text
/// async fn pay_entry(req: Req) -> Result<Option<Entry>, Error> {
///     <the call, from references to the arguments>
///     entry(call).await
/// }
/// ```
pub(super) fn function(
    name: &Ident,
    plan: &Plan,
    target: &Target,
    call: &TokenStream,
    rt: &TokenStream,
) -> TokenStream {
    let attrs = target.attrs.iter().filter_map(shared);
    let (vis, sig) = (&target.vis, signature(name, plan, &target.sig));
    let body = match &plan.shape {
        Shape::Async(_) => quote_spanned!(here()=> #call #rt::entry(call).await),
        Shape::Boxed(_) => quote_spanned! {here()=>
            ::std::boxed::Box::pin(async move {
                #call
                #rt::entry(call).await
            })
        },
    };
    let doc = format!(
        "The stored entry of a call of `{}` with these arguments, or `None`.\n\n# Errors\n\nThose of \
         `idem_runtime::CallBuilder::entry`.",
        target.sig.ident
    );
    let mut braces = Group::new(Delimiter::Brace, body);
    braces.set_span(name.span());
    quote_spanned! {here()=>
        #(#attrs)*
        #[doc = #doc]
        // Clippy reads no documentation of a macro: it misses the section that is there.
        #[allow(unused_mut, unused_variables, clippy::missing_errors_doc, clippy::needless_pass_by_ref_mut)]
        #vis #sig #braces
    }
}

/// An attribute of the function that applies to the companion as well.
fn shared(attr: &Attribute) -> Option<TokenStream> {
    match &attr.meta {
        _ if attr.path().is_ident("cfg") || attr.path().is_ident("allow") => {
            Some(quote_spanned!(here()=> #attr))
        }
        // An expected lint may not fire here, so `expect` becomes `allow`.
        Meta::List(list) if attr.path().is_ident("expect") => {
            let lints = &list.tokens;
            Some(quote_spanned!(here()=> #[allow(#lints)]))
        }
        _ => None,
    }
}

/// The same arguments, without the transaction.
fn signature(name: &Ident, plan: &Plan, sig: &Signature) -> Signature {
    let krate = &plan.krate;
    let mut sig = sig.clone();
    sig.ident = name.clone();
    // Lints about the whole companion function are located on its name.
    sig.fn_token.span = name.span();
    if let Some(asyncness) = &mut sig.asyncness {
        asyncness.span = name.span();
    }
    sig.output = output::returning(
        &sig,
        syn::parse_quote_spanned!(here()=>
            ::core::result::Result<::core::option::Option<#krate::admin::Entry>, #krate::Error>
        ),
    );
    if let Some(tx) = &plan.tx {
        let is_tx = |input: &FnArg| match input {
            FnArg::Typed(typed) => matches!(&*typed.pat, Pat::Ident(pat) if pat.ident == tx.name),
            FnArg::Receiver(_) => false,
        };
        sig.inputs = sig
            .inputs
            .into_iter()
            .filter(|input| !is_tx(input))
            .collect();
    }
    sig
}
