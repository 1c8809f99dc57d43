//! `#[derive(Classify)]`, in the same stages as the attribute.

use crate::errors::{Errors, or_usage};
use crate::nearest::nearest;
use crate::target::first_span;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::ParseStream;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Generics, Meta, Path, Result, Token, Type};

const CLASSES: [&str; 4] = ["business", "system", "unknown", "delegate"];
const CHOICE: &str =
    "`#[class(business)]`, `#[class(system)]`, `#[class(unknown)]` or `#[class(delegate)]`";
/// The other helper attribute, named in the error about this one.
const OTHER: &str = "the option for the crate is `#[classify(crate = ..)]`";

enum Class {
    /// A variant of `idem_runtime::Class`.
    Known(&'static str),
    /// Delegate to the only field, of this name and type.
    Delegate(syn::Member, Box<Type>),
}

/// One match arm: a pattern and its class.
type Arm = (TokenStream, Class);

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let krate = krate(&input.attrs, &mut errors);
    if let Some(arms) = arms(&input, &mut errors) {
        return print(&input, &krate, &arms);
    }
    // The body is unreachable, but the implementation has to exist: bounds on this type elsewhere
    // must not fail as well.
    let body = quote_spanned!(Span::mixed_site()=> ::core::unreachable!());
    errors.and_item(&implementation(&input, &krate, &[], &body))
}

fn named<'a>(attrs: &'a [Attribute], name: &str) -> impl Iterator<Item = &'a Attribute> {
    attrs.iter().filter(move |attr| attr.path().is_ident(name))
}

fn krate(attrs: &[Attribute], errors: &mut Errors) -> Path {
    let mut krate = None;
    for attr in named(attrs, "classify") {
        let usage = "the only option here is `#[classify(crate = ::facade::idem)]`";
        let path = |input: ParseStream<'_>| {
            or_usage(input.parse::<Token![crate]>(), usage)?;
            or_usage(input.parse::<Token![=]>(), usage)?;
            let path = or_usage(input.call(Path::parse_mod_style), usage)?;
            if input.is_empty() {
                Ok(path)
            } else {
                Err(input.error(usage))
            }
        };
        let path = match &attr.meta {
            Meta::List(_) => attr.parse_args_with(path),
            _ => Err(Error::new(first_span(attr.path()), usage)),
        };
        if let Some(path) = errors.ok(path)
            && krate.replace(path).is_some()
        {
            errors.at(
                first_span(attr.path()),
                "`#[classify(crate = ..)]` is given twice",
            );
        }
    }
    krate.unwrap_or_else(crate::runtime::default_path)
}

/// The arms, or `None` after an error.
fn arms(input: &DeriveInput, errors: &mut Errors) -> Option<Vec<Arm>> {
    let mut arms = Vec::new();
    match &input.data {
        Data::Union(data) => {
            let message = "the active field of a union is unknown; implement `Classify` by hand";
            errors.at(data.union_token.span, message);
        }
        Data::Struct(data) => {
            let class = class(&input.attrs, &input.ident, &data.fields, false, errors);
            arms.extend(class.map(|class| (quote!(Self), class)));
        }
        Data::Enum(data) => {
            let mut misplaced = false;
            for attr in named(&input.attrs, "class") {
                let of_crate = names_crate(attr);
                misplaced |= !of_crate;
                let message = if of_crate {
                    OTHER
                } else {
                    "`#[class(..)]` goes on each variant of an enum"
                };
                errors.at(first_span(attr.path()), message);
            }
            for variant in &data.variants {
                let name = &variant.ident;
                // `#[classify(..)]` belongs on the enum, where it names the crate.
                if let Some(attr) = named(&variant.attrs, "classify").next() {
                    let message = format!("a class is written as {CHOICE}");
                    errors.at(first_span(attr.path()), message);
                    continue;
                }
                let class = class(&variant.attrs, name, &variant.fields, misplaced, errors);
                let pattern = quote_spanned!(Span::mixed_site()=> Self::#name);
                arms.extend(class.map(|class| (pattern, class)));
            }
        }
    }
    errors.is_empty().then_some(arms)
}

/// The class written on a variant or struct called `name`.
///
/// A missing class is not reported in addition to a `misplaced` one: that is one mistake.
fn class(
    attrs: &[Attribute],
    name: &Ident,
    fields: &Fields,
    mut misplaced: bool,
    errors: &mut Errors,
) -> Option<Class> {
    for attr in fields.iter().flat_map(|field| named(&field.attrs, "class")) {
        let message = format!("`#[class(..)]` goes on `{name}`, not on its field");
        errors.at(first_span(attr.path()), message);
        misplaced = true;
    }
    let mut written = named(attrs, "class");
    let Some(first) = written.next() else {
        if !misplaced {
            errors.at(name.span(), format!("`{name}` has no class; add {CHOICE}"));
        }
        return None;
    };
    for second in written {
        let message = format!("`{name}` has a class already; keep one");
        errors.at(first_span(second.path()), message);
    }
    let message = format!("expected one class: {CHOICE}");
    let word = errors.ok(match &first.meta {
        Meta::List(_) => first.parse_args_with(word),
        _ => Err(Error::new(first_span(first.path()), message)),
    })?;
    match word.to_string().as_str() {
        "business" => Some(Class::Known("Business")),
        "system" => Some(Class::Known("System")),
        "unknown" => Some(Class::Known("Unknown")),
        "delegate" => delegate(&word, name, fields, errors),
        other => {
            let hint = match nearest(&other.to_lowercase(), &CLASSES) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("write {CHOICE}"),
            };
            errors.at(word.span(), format!("unknown class `{other}`; {hint}"));
            None
        }
    }
}

/// `#[class(crate = ..)]`
fn names_crate(attr: &Attribute) -> bool {
    let Meta::List(list) = &attr.meta else {
        return false;
    };
    let first = list.tokens.clone().into_iter().next();
    matches!(first, Some(TokenTree::Ident(word)) if word == "crate")
}

fn word(input: ParseStream<'_>) -> Result<Ident> {
    if input.peek(Token![crate]) {
        return Err(input.error(OTHER));
    }
    let usage = format!("expected one class: {CHOICE}");
    let word = or_usage(input.parse::<Ident>(), &usage)?;
    if !input.is_empty() {
        return Err(input.error(usage));
    }
    Ok(word)
}

fn delegate(word: &Ident, name: &Ident, fields: &Fields, errors: &mut Errors) -> Option<Class> {
    let mut members = fields.members().zip(fields);
    if let (Some((member, field)), None) = (members.next(), members.next()) {
        return Some(Class::Delegate(member, Box::new(field.ty.clone())));
    }
    let count = fields.len();
    let message = format!(
        "`delegate` takes the class of the only field, but `{name}` has {count} fields; write a class"
    );
    errors.at(word.span(), message);
    None
}

fn print(input: &DeriveInput, krate: &Path, arms: &[Arm]) -> TokenStream {
    let here = Span::mixed_site();
    let delegated = arms.iter().filter_map(|(_, class)| match class {
        Class::Delegate(_, ty) => Some(&**ty),
        Class::Known(_) => None,
    });
    let delegated: Vec<&Type> = delegated.collect();
    let printed = arms.iter().map(|(pattern, class)| match class {
        Class::Known(name) => {
            let name = Ident::new(name, here);
            quote_spanned!(here=> #pattern { .. } => #krate::Class::#name,)
        }
        // The type is located where rustc reports that it is not `Classify`.
        Class::Delegate(member, ty) => quote_spanned! {here=>
            #pattern { #member: inner } => <#ty as #krate::Classify>::class(inner),
        },
    });
    // An enum without variants matches by value.
    let matched = if arms.is_empty() {
        quote_spanned!(here=> *self)
    } else {
        quote_spanned!(here=> self)
    };
    let body = quote_spanned!(here=> match #matched { #(#printed)* });
    implementation(input, krate, &delegated, &body)
}

fn implementation(
    input: &DeriveInput,
    krate: &Path,
    delegated: &[&Type],
    body: &TokenStream,
) -> TokenStream {
    let name = &input.ident;
    let generics = bounded(&input.generics, krate, delegated);
    let (left, right, bounds) = generics.split_for_impl();
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        #[allow(clippy::match_same_arms)]
        impl #left #krate::Classify for #name #right #bounds {
            fn class(&self) -> #krate::Class {
                #body
            }
        }
    }
}

/// Adds a `Classify` bound for each delegated generic field.
fn bounded(generics: &Generics, krate: &Path, delegated: &[&Type]) -> Generics {
    let mut generics = generics.clone();
    let parameters = generics.type_params().map(|param| param.ident.to_string());
    let parameters: Vec<String> = parameters.collect();
    for ty in delegated {
        if names_any(quote!(#ty), &parameters) {
            let clause = generics.make_where_clause();
            clause
                .predicates
                .push(syn::parse_quote!(#ty: #krate::Classify));
        }
    }
    generics
}

fn names_any(tokens: TokenStream, names: &[String]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&ident.to_string()),
        TokenTree::Group(group) => names_any(group.stream(), names),
        _ => false,
    })
}
