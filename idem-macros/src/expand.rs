//! The only stage that prints the expansion of `#[idempotent]`.
//!
//! Tokens resolve at `Span::mixed_site()`, so that neither side sees the other's names. Only keys,
//! the engine, the hook, `finish` and the early `return` are also *located* on the user's tokens: a
//! whole expansion located there would mislead rustc's suggestions and editors.

mod body;
mod entry;
mod settings;
mod transaction;

use crate::args::{Args, OnError, Scope};
use crate::errors::{Errors, without_helpers};
use crate::format::Format;
use crate::key::{self, Value};
use crate::output::Shape;
use crate::plan::{Compared, Label, Op, Plan};
use crate::target::Target;
use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, LitStr, Meta};

pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let Some(mut target) = errors.ok(syn::parse2::<Target>(item.clone())) else {
        return errors.and_item(&without_helpers(item));
    };
    match Plan::new(args, &mut target, &mut errors) {
        Some(plan) => print(&plan, &target),
        None => errors.and_item(&target.original()),
    }
}

/// Points at `span`, while resolving, and being linted, as macro output.
fn at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The same path, pointing at `span`.
fn located(path: &TokenStream, span: Span) -> TokenStream {
    let moved = path.clone().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(span));
        token
    });
    moved.collect()
}

fn here() -> Span {
    Span::mixed_site()
}

/// Input:
/// ```text
/// async fn pay(req: Req) -> Result<T, E> { BODY }
/// ```
/// Output, with the function of `entry` after it:
/// ```text
/// async fn pay(req: Req) -> Result<T, E> {
///     <the call, from references to the arguments>
///     run(call, <the place of its output>, pin!(Some(async move { BODY }))).await
/// }
/// ```
fn print(plan: &Plan, target: &Target) -> TokenStream {
    let rt = runtime(plan);
    let described = call(plan, None, &rt);
    let call = match &plan.label {
        Some(label) => &call(plan, Some(label), &rt),
        None => &described,
    };
    let outcome = outcome(plan, &rt);
    let body = body::future(plan, target, &rt);
    let run = if let Some(word) = plan.finish {
        // The bounds `Send` and `'static` are reported at this word.
        let rt = located(&rt, word);
        quote_spanned!(at(word)=> #rt::run_in_task(call, #outcome, #body).await)
    } else if let Some(tx) = &plan.tx {
        transaction::run(tx, &outcome, &body, &rt)
    } else {
        // In an `Option`, so that the runtime can drop the body before it releases the key.
        let body = quote_spanned!(here()=> ::core::option::Option::Some(#body));
        quote_spanned!(here()=> #rt::run(call, #outcome, ::core::pin::pin!(#body)).await)
    };
    let wrapped = match &plan.shape {
        Shape::Async(_) => quote_spanned!(here()=> #call #run),
        Shape::Boxed(_) => quote_spanned! {here()=>
            ::std::boxed::Box::pin(async move {
                #call
                #run
            })
        },
    };
    let Target {
        attrs,
        vis,
        sig,
        inner_attrs,
        ..
    } = target;
    let sig = match &plan.tx {
        Some(tx) => &transaction::signature(sig, tx),
        None => sig,
    };
    // The user's braces, because otherwise rustc points at the attribute when it means the function.
    let mut braces = Group::new(
        Delimiter::Brace,
        quote_spanned!(here()=> #(#inner_attrs)* #wrapped),
    );
    braces.set_span(target.body.span());
    let entry = plan
        .entry
        .as_ref()
        .map(|name| entry::function(name, plan, target, &described, &rt));
    quote_spanned!(here()=> #(#attrs)* #vis #sig #braces #entry)
}

fn runtime(plan: &Plan) -> TokenStream {
    let krate = &plan.krate;
    quote_spanned!(here()=> #krate::__private)
}

/// `let call = ..;`: all decisions before the body may run. The function of `entry` needs no label.
fn call(plan: &Plan, label: Option<&Label>, rt: &TokenStream) -> TokenStream {
    let here = here();
    let op = op(&plan.op, rt);
    let scope = plan.scope.as_ref().map(|scope| match scope {
        Scope::Public(_) => quote_spanned!(here=> call.public();),
        Scope::Of(scope) => {
            let scope = reference(scope, rt);
            quote_spanned!(here=> call.scope(#scope);)
        }
    });
    let key = plan
        .key
        .as_ref()
        .map(|key| match (key, plan.scope_of_token) {
            (Value::Expr(expr), Some(scope)) => {
                let key = quote_spanned!(at(scope)=> &(#expr));
                quote_spanned!(here=> call.key_in_scope(#key);)
            }
            (key @ Value::Expr(_), None) if plan.token_of_client => {
                let key = reference(key, rt);
                quote_spanned!(here=> call.key_of_subject(#key);)
            }
            (key, _) => {
                let key = reference(key, rt);
                quote_spanned!(here=> call.key(#key);)
            }
        });
    let fingerprint = plan
        .fingerprint
        .as_deref()
        .map(|compared| fingerprint(compared, plan.key.is_some(), rt));
    let engine = plan.engine.as_ref().map(|engine| {
        let engine = quote_spanned!(at(key::span(engine))=> &(#engine));
        quote_spanned!(here=> call.engine(#rt::engine_of(#engine));)
    });
    let settings = settings::setters(plan, rt);
    let label = label.map(settings::label);
    // A block, so that values borrowed for the call do not become part of the future. The builder calls are separate
    // statements on one place: a chain that moves the value would compile and run slower.
    quote_spanned! {here=>
        let call = {
            let mut call = #rt::Call::new(#op);
            #scope
            #key
            #fingerprint
            #engine
            #settings
            #label
            call
        };
    }
}

fn op(op: &Op, rt: &TokenStream) -> TokenStream {
    let here = here();
    // The path of an item in the body is the function's own, with the type where there is one:
    // `module_path!` is the same for two functions of one name in two `impl` blocks.
    let of_path = match op {
        Op::Given(name) => return quote_spanned!(here=> #rt::op(#name)),
        Op::Method(name) => quote_spanned!(here=> op_of::<Self, _>(#name, here)),
        Op::Function => quote_spanned!(here=> op_at(here)),
    };
    quote_spanned! {here=>
        {
            #[allow(clippy::items_after_statements)]
            fn here() {}
            #rt::#of_path
        }
    }
}

/// A reference to the value, located on it: the type of a key is checked here.
fn reference(value: &Value, rt: &TokenStream) -> TokenStream {
    match value {
        Value::Tuple(span, elements) => {
            let elements = elements.iter().map(|element| reference(element, rt));
            quote_spanned!(at(*span)=> &(#(#elements,)*))
        }
        Value::Format(text, format) => {
            let formatted = formatted(text, format, rt);
            quote_spanned!(at(text.span())=> &(#formatted))
        }
        Value::Expr(expr) => quote_spanned!(at(key::span(expr))=> &(#expr)),
    }
}

/// A format string as a key or scope: each placeholder is formatted by itself, so that none can be taken for
/// a part of another.
///
/// Output, for `"{merchant}/{order:>8}"`:
/// ```text
/// FormatKey::new("{}/{}", &[format_args!("{merchant}"), format_args!("{order:>8}")])
/// ```
fn formatted(text: &LitStr, format: &Format, rt: &TokenStream) -> TokenStream {
    let span = text.span();
    let template = &*format.template;
    match &*format.placeholders {
        [] => LitStr::new(&format.text(), span).to_token_stream(),
        // The whole literal, so that rustc can point at the name inside it.
        [_] if template == "{}" => quote_spanned!(at(span)=> ::core::format_args!(#text)),
        placeholders => {
            // The literals keep the span, which resolves their captures.
            let placeholders = placeholders
                .iter()
                .map(|placeholder| LitStr::new(&format!("{{{placeholder}}}"), span));
            quote_spanned! {at(span)=>
                #rt::FormatKey::new(#template, &[#(::core::format_args!(#placeholders)),*])
            }
        }
    }
}

fn fingerprint(compared: &[Compared], has_key: bool, rt: &TokenStream) -> TokenStream {
    let here = here();
    // The order in which the runtime encodes them.
    let mut compared: Vec<&Compared> = compared.iter().collect();
    compared.sort_by_key(|argument| (argument.name.len(), &argument.name));
    let always = compared
        .iter()
        .filter(|argument| argument.cfgs.is_empty())
        .count();
    let sometimes: Vec<TokenStream> = compared
        .iter()
        .filter(|argument| !argument.cfgs.is_empty())
        .map(|argument| {
            let conditions = argument.cfgs.iter().filter_map(condition);
            quote_spanned!(here=> ::core::cfg!(all(#(#conditions),*)))
        })
        .collect();
    // Without any argument, all calls would have one key.
    let distinguishes = (always == 0 && !has_key).then(|| {
        quote_spanned! {here=>
            // An item, because `cargo check` evaluates no constant block.
            #[allow(clippy::items_after_statements)]
            const _: () = ::core::assert!(
                #(#sometimes)||*,
                "no argument that is compiled distinguishes two calls; give `key`",
            );
        }
    });
    let arguments = compared.iter().map(
        |Compared {
             cfgs,
             name,
             value,
             ty,
             span,
             ..
         }| {
            // Errors are located on the type if it can be written, else on the span of the value.
            let (arg, value) = if let Some(ty) = ty {
                (
                    quote_spanned!(here=> #rt::arg::<#ty>),
                    quote_spanned!(here=> &(#value)),
                )
            } else {
                let rt = located(rt, *span);
                (
                    quote_spanned!(at(*span)=> #rt::arg),
                    quote_spanned!(at(*span)=> &(#value)),
                )
            };
            quote_spanned! {here=>
                #(#cfgs)*
                #[allow(clippy::used_underscore_binding)]
                #arg(&mut call, #name, #value);
            }
        },
    );
    quote_spanned! {here=>
        #distinguishes
        call.fingerprint(
            #always
            #(+ <::core::primitive::usize as ::core::convert::From<::core::primitive::bool>>::from(#sometimes))*
        );
        #(#arguments)*
    }
}

/// The `feature = "x"` of `#[cfg(feature = "x")]`.
fn condition(cfg: &Attribute) -> Option<&TokenStream> {
    match &cfg.meta {
        Meta::List(list) => Some(&list.tokens),
        _ => None,
    }
}

/// Typed place of the output: the only place where the bounds of the return type are checked.
fn outcome(plan: &Plan, rt: &TokenStream) -> TokenStream {
    let ty = &plan.output;
    let here = here();
    // The policy type is written out: if it were inferred, rustc's error would name an arbitrary policy.
    let (policy, value) = match &plan.on_error {
        OnError::Classify => (quote_spanned!(here=> Classified), None),
        OnError::Release => (quote_spanned!(here=> Release), None),
        OnError::Keep => (quote_spanned!(here=> Keep), None),
        OnError::Unknown => (quote_spanned!(here=> Unknown), None),
        OnError::By(path) => (quote_spanned!(here=> By), Some(path)),
    };
    // The signature is written out, so that rustc compares it at the path.
    let error = crate::output::error(ty)
        .map_or_else(|| quote_spanned!(here=> _), ToTokens::to_token_stream);
    let function = quote_spanned!(here=> fn(&#error) -> #rt::Class);
    let generics = value.map(|_| quote_spanned!(here=> <#function>));
    let value = value.map(|path| quote_spanned!(here=> ({ let by: #function = #path; by })));
    let policy = quote_spanned!(here=> #rt::#policy);
    match &plan.ttl_of {
        None => {
            quote_spanned!(here=> #rt::outcome::<#ty, #policy #generics>(#policy #value))
        }
        Some(ttl) => {
            // A life of another type is reported at the closure.
            let rt = located(rt, ttl.span());
            let outcome = quote_spanned! {at(ttl.span())=>
                #rt::outcome_with::<#ty, #policy #generics, _, _, _>
            };
            // `ttl` takes no path of a function, which clippy would write in place of the closure.
            quote_spanned! {here=>
                {
                    #[allow(clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
                    let output = #outcome(#policy #value, #ttl);
                    output
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
