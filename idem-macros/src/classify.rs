//! `#[derive(Classify)]`, in the same stages as the attribute.

use crate::errors::Errors;
use crate::nearest::nearest;
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
    Business,
    System,
    Unknown,
    /// Delegate to the only field, of this name and type.
    Delegate(syn::Member, Box<Type>),
}

/// One match arm: a pattern and its class.
struct Arm {
    pattern: TokenStream,
    class: Class,
}

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let krate = krate(&input.attrs, &mut errors);
    let arms = arms(&input, &mut errors);
    match errors.finish(arms) {
        Ok(arms) => print(&input, &krate, &arms),
        Err(error) => {
            // The body is unreachable, but the implementation has to exist: bounds on this type elsewhere
            // must not fail as well.
            let body = quote_spanned!(Span::mixed_site()=> ::core::unreachable!());
            crate::errors::error_and_item(&error, &implementation(&input, &krate, &[], &body))
        }
    }
}

fn krate(attrs: &[Attribute], errors: &mut Errors) -> Path {
    let mut krate = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("classify")) {
        let path = attr.parse_args_with(|input: ParseStream<'_>| {
            let usage = "the only option here is `#[classify(crate = ::facade::idem)]`";
            input
                .parse::<Token![crate]>()
                .map_err(|error| Error::new(error.span(), usage))?;
            input.parse::<Token![=]>()?;
            input
                .call(Path::parse_mod_style)
                .map_err(|error| Error::new(error.span(), usage))
        });
        if let Some(path) = errors.ok(path)
            && krate.replace(path).is_some()
        {
            errors.at(span_of(attr), "`#[classify(crate = ..)]` is given twice");
        }
    }
    krate.unwrap_or_else(crate::runtime::default_path)
}

fn arms(input: &DeriveInput, errors: &mut Errors) -> Option<Vec<Arm>> {
    let arms = match &input.data {
        Data::Union(data) => {
            errors.at(
                data.union_token.span,
                "the active field of a union is unknown; implement `Classify` by hand",
            );
            return None;
        }
        Data::Struct(data) => {
            let class = class(&input.attrs, &input.ident, &data.fields, false, errors);
            class.map(|class| {
                vec![Arm {
                    pattern: quote!(Self),
                    class,
                }]
            })
        }
        Data::Enum(data) => {
            let mut misplaced = false;
            for attr in input
                .attrs
                .iter()
                .filter(|attr| attr.path().is_ident("class"))
            {
                if names_crate(attr) {
                    errors.at(span_of(attr), OTHER);
                    continue;
                }
                misplaced = true;
                errors.at(
                    span_of(attr),
                    "`#[class(..)]` goes on each variant of an enum",
                );
            }
            let mut arms = Vec::new();
            for variant in &data.variants {
                let name = &variant.ident;
                // `#[classify(..)]` belongs on the enum, where it names the crate.
                let mut attrs = variant.attrs.iter();
                if let Some(attr) = attrs.find(|attr| attr.path().is_ident("classify")) {
                    errors.at(span_of(attr), format!("a class is written as {CHOICE}"));
                    continue;
                }
                let pattern = quote_spanned!(Span::mixed_site()=> Self::#name);
                if let Some(class) = class(&variant.attrs, name, &variant.fields, misplaced, errors)
                {
                    arms.push(Arm { pattern, class });
                }
            }
            Some(arms)
        }
    };
    errors.is_empty().then_some(arms).flatten()
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
    for field in fields {
        for attr in field
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("class"))
        {
            errors.at(
                span_of(attr),
                format!("`#[class(..)]` goes on `{name}`, not on its field"),
            );
            misplaced = true;
        }
    }
    let mut written = attrs.iter().filter(|attr| attr.path().is_ident("class"));
    let Some(first) = written.next() else {
        if misplaced {
            return None;
        }
        errors.at(name.span(), format!("`{name}` has no class; add {CHOICE}"));
        return None;
    };
    for second in written {
        errors.at(
            span_of(second),
            format!("`{name}` has a class already; keep one"),
        );
    }
    let word = errors.ok(match &first.meta {
        Meta::List(_) => first.parse_args_with(word),
        _ => Err(Error::new(
            span_of(first),
            format!("expected one class: {CHOICE}"),
        )),
    })?;
    match word.to_string().as_str() {
        "business" => Some(Class::Business),
        "system" => Some(Class::System),
        "unknown" => Some(Class::Unknown),
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
    let word = input
        .parse::<Ident>()
        .map_err(|error| Error::new(error.span(), &usage))?;
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

fn span_of(attr: &Attribute) -> Span {
    attr.path()
        .segments
        .first()
        .map_or_else(Span::call_site, |segment| segment.ident.span())
}

fn print(input: &DeriveInput, krate: &Path, arms: &[Arm]) -> TokenStream {
    let here = Span::mixed_site();
    let delegated: Vec<&Type> = arms
        .iter()
        .filter_map(|arm| match &arm.class {
            Class::Delegate(_, ty) => Some(&**ty),
            _ => None,
        })
        .collect();
    let printed = arms.iter().map(|Arm { pattern, class }| {
        let known = |name| {
            let name = Ident::new(name, here);
            quote_spanned!(here=> #pattern { .. } => #krate::Class::#name,)
        };
        match class {
            Class::Business => known("Business"),
            Class::System => known("System"),
            Class::Unknown => known("Unknown"),
            // The type is located where rustc reports that it is not `Classify`.
            Class::Delegate(member, ty) => quote_spanned! {here=>
                #pattern { #member: inner } => <#ty as #krate::Classify>::class(inner),
            },
        }
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

/// Adds a `Classify` bound for each delegated field whose type depends on a parameter.
fn bounded(generics: &Generics, krate: &Path, delegated: &[&Type]) -> Generics {
    let mut generics = generics.clone();
    let parameters: Vec<String> = generics
        .type_params()
        .map(|param| param.ident.to_string())
        .collect();
    for ty in delegated
        .iter()
        .filter(|ty| names_any(quote!(#ty), &parameters))
    {
        generics
            .make_where_clause()
            .predicates
            .push(syn::parse_quote!(#ty: #krate::Classify));
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
