//! The function under the attribute; its body is never parsed.

use crate::errors::{Errors, or_usage};
use crate::patterns;
use crate::types;
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, FnArg, Ident, Meta, Pat, PatIdent, PatType, Result, Signature, Token, Type,
    Visibility,
};

const USAGE: &str = "the only option of a parameter is `#[idem(skip)]`";

pub(crate) struct Target {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// `#![..]` at the start of the body.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// Braces included.
    pub(crate) body: Group,
}

/// A parameter other than `self`.
pub(crate) struct Parameter {
    pub(crate) cfgs: Vec<Attribute>,
    /// Names that the pattern binds.
    pub(crate) names: Vec<Ident>,
    /// Type of the only name, if an expression can name it.
    pub(crate) ty: Option<Type>,
    /// Whether the type of the only name is written as a reference.
    pub(crate) reference: bool,
    /// Span of an unordered set among the types of the names.
    pub(crate) unordered: Option<Span>,
    /// The names that hold a client's key.
    pub(crate) client_keys: Vec<Ident>,
    pub(crate) skip: Option<Span>,
    pub(crate) span: Span,
}

impl Parse for Target {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let begins_fn = input.peek(Token![const])
            || input.peek(Token![async])
            || input.peek(Token![unsafe])
            || input.peek(Token![extern])
            || input.peek(Token![fn]);
        if !begins_fn {
            return Err(input.error(not_a_function(input)));
        }
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            let message = format!(
                "`{}` has no body; put `#[idempotent]` on the implementation, or on a default method",
                sig.ident
            );
            return Err(Error::new(sig.ident.span(), message));
        }
        let content;
        let brace = syn::braced!(content in input);
        let inner_attrs = content.call(Attribute::parse_inner)?;
        let mut body = Group::new(Delimiter::Brace, content.parse()?);
        body.set_span(brace.span.join());
        Ok(Self {
            attrs,
            vis,
            sig,
            inner_attrs,
            body,
        })
    }
}

fn not_a_function(input: ParseStream<'_>) -> &'static str {
    if input.peek(Token![impl]) || input.peek(Token![trait]) {
        return "`#[idempotent]` goes on an `async fn`; put it on each method that needs it";
    }
    "`#[idempotent]` goes on an `async fn`"
}

impl Target {
    /// The function without idem's attributes.
    pub(crate) fn original(&self) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            inner_attrs,
            body,
        } = self;
        let statements = body.stream();
        let mut body = Group::new(Delimiter::Brace, quote!(#(#inner_attrs)* #statements));
        body.set_span(self.body.span());
        quote!(#(#attrs)* #vis #sig #body)
    }

    /// Removes a second `#[idempotent]`, because it would wrap the first.
    pub(crate) fn take_second_attribute(&mut self, errors: &mut Errors) {
        self.attrs.retain(|attr| {
            let last = attr.path().segments.last();
            let second = last.is_some_and(|segment| segment.ident == "idempotent");
            if second {
                let message = "`#[idempotent]` is given twice; keep one, with all arguments";
                errors.at(first_span(&last), message);
            }
            !second
        });
    }

    /// Removes `#[idem(..)]` from the function: it is for parameters.
    pub(crate) fn take_misplaced_options(&mut self, errors: &mut Errors) {
        self.attrs.retain(|attr| {
            let misplaced = attr.path().is_ident("idem");
            if misplaced {
                let message = "`#[idem(skip)]` goes on a parameter; options of the whole function go into `#[idempotent(..)]`";
                errors.at(first_span(attr.path()), message);
            }
            !misplaced
        });
    }

    /// The parameters, with their `#[idem(..)]` removed.
    pub(crate) fn take_parameters(&mut self, errors: &mut Errors) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        for input in &mut self.sig.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    if let Some(skip) = take_skip(&mut receiver.attrs, errors) {
                        let message = "`self` is never part of the fingerprint; remove `skip`";
                        errors.at(skip, message);
                    }
                }
                FnArg::Typed(typed) => {
                    let skip = take_skip(&mut typed.attrs, errors);
                    parameters.push(Parameter::new(typed, skip));
                }
            }
        }
        parameters
    }
}

impl Parameter {
    fn new(typed: &PatType, skip: Option<Span>) -> Self {
        let span = match &*typed.pat {
            Pat::Ident(pat) => pat.ident.span(),
            other => first_span(other),
        };
        let cfgs = typed
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"));
        let plain = matches!(
            &*typed.pat,
            Pat::Ident(PatIdent {
                by_ref: None,
                subpat: None,
                ..
            })
        );
        let ty = plain.then(|| (*typed.ty).clone());
        Self {
            client_keys: patterns::client_keys(&typed.pat, &typed.ty),
            cfgs: cfgs.cloned().collect(),
            names: patterns::names(&typed.pat),
            ty: ty.filter(|ty| !types::mentions_impl(ty)),
            reference: plain && types::is_reference(&typed.ty),
            unordered: types::unordered(&typed.ty).filter(|_| patterns::binds_all(&typed.pat)),
            skip,
            span,
        }
    }
}

pub(crate) fn first_span(tokens: &impl ToTokens) -> Span {
    let first = tokens.to_token_stream().into_iter().next();
    first.map_or_else(Span::call_site, |token| token.span())
}

/// Removes every `#[idem(..)]` and returns the span of the first `skip`.
fn take_skip(attrs: &mut Vec<Attribute>, errors: &mut Errors) -> Option<Span> {
    let mut skip = None;
    attrs.retain(|attr| {
        if is_conditional_helper(attr) {
            let message = "write `#[idem(skip)]` itself; `cfg_attr` is expanded too late for it";
            errors.at(first_span(attr.path()), message);
            return false;
        }
        if attr.path().is_ident("idempotent") {
            errors.at(first_span(attr.path()), "a parameter takes `#[idem(skip)]`");
            return false;
        }
        if !attr.path().is_ident("idem") {
            return true;
        }
        let word = match &attr.meta {
            Meta::List(_) => attr.parse_args_with(skip_word),
            _ => Err(Error::new(first_span(attr.path()), USAGE)),
        };
        match word {
            Ok(span) if skip.is_none() => skip = Some(span),
            Ok(span) => errors.at(span, "`skip` is given twice"),
            Err(error) => errors.push(error),
        }
        false
    });
    skip
}

/// `#[cfg_attr(.., idem(..))]`
fn is_conditional_helper(attr: &Attribute) -> bool {
    let Meta::List(list) = &attr.meta else {
        return false;
    };
    let mut tokens = list.tokens.clone().into_iter();
    list.path.is_ident("cfg_attr")
        && tokens.any(|token| matches!(&token, TokenTree::Ident(name) if name == "idem"))
}

fn skip_word(input: ParseStream<'_>) -> Result<Span> {
    let word = or_usage(input.parse::<Ident>(), USAGE)?;
    if word != "skip" {
        let message = format!("unknown option `{word}`; {USAGE}");
        return Err(Error::new(word.span(), message));
    }
    if !input.is_empty() {
        return Err(input.error(USAGE));
    }
    Ok(word.span())
}
