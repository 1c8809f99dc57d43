//! `#[idempotent(..)]`: what was written, not yet whether it makes sense.

use crate::errors::Errors;
use crate::nearest::nearest;
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Lit, LitStr, Path, Result, Token, UnOp};

/// In the order of the manual.
const NAMES: [&str; 12] = [
    "key",
    "fingerprint",
    "op",
    "scope",
    "ttl",
    "error_ttl",
    "lease",
    "on_error",
    "on_duplicate",
    "on_running",
    "engine",
    "crate",
];

/// Not said by an operation, but known to whoever read the manual.
const OF_THE_ENGINE: [&str; 8] = [
    "prefix",
    "max_attempts",
    "max_run",
    "claim_deadline",
    "complete_deadline",
    "max_value_bytes",
    "observer",
    "clock",
];

#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Slot<Expr>,
    pub(crate) fingerprint: Slot<Fingerprint>,
    pub(crate) op: Slot<LitStr>,
    pub(crate) scope: Slot<Expr>,
    pub(crate) ttl: Slot<Time>,
    pub(crate) error_ttl: Slot<Time>,
    pub(crate) lease: Slot<Time>,
    pub(crate) on_error: Slot<OnError>,
    pub(crate) on_duplicate: Slot<OnDuplicate>,
    pub(crate) on_running: Slot<OnRunning>,
    pub(crate) engine: Slot<Expr>,
    pub(crate) krate: Slot<Path>,
}

/// Room for one argument.
pub(crate) struct Slot<T> {
    /// Whether it was named; `value` is `None` then only beside an error.
    pub(crate) named: bool,
    pub(crate) value: Option<T>,
}

// Derived, it would ask for `T: Default`.
impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            named: false,
            value: None,
        }
    }
}

pub(crate) enum Fingerprint {
    /// `fingerprint = none`, and where it says so.
    None(Span),
    List(Punctuated<Expr, Token![,]>),
}

pub(crate) enum Time {
    Text(LitStr),
    Expr(Expr),
    Forever(Ident),
}

pub(crate) enum OnError {
    Classify,
    Release,
    Keep,
    Unknown,
    By(Path),
}

#[derive(Clone, Copy)]
pub(crate) enum OnDuplicate {
    Replay,
    Reject,
}

pub(crate) enum OnRunning {
    Wait(Time),
    Reject,
}

impl Args {
    /// Whatever can be understood; the rest is in `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let list = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.argument(input).and_then(|()| separated(input)) {
                    errors.push(error);
                    to_next_comma(input)?;
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = list.parse2(tokens)
            && errors.is_empty()
        {
            errors.push(error);
        }
        args
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name = input.call(Ident::parse_any).map_err(|error| {
            Error::new(
                error.span(),
                "expected an argument, such as `key = order_id`",
            )
        })?;
        match name.to_string().as_str() {
            "key" => self.key.fill(&name, input, Expr::parse),
            "fingerprint" => self.fingerprint.open(&name)?.parse(&name, input),
            "op" => self.op.fill(&name, input, |input| text(input, &name)),
            "scope" => self.scope.fill(&name, input, Expr::parse),
            "ttl" => self
                .ttl
                .fill(&name, input, |input| Time::parse(input, &name)),
            "error_ttl" => self
                .error_ttl
                .fill(&name, input, |input| Time::parse(input, &name)),
            "lease" => self
                .lease
                .fill(&name, input, |input| Time::parse(input, &name)),
            "on_error" => self.on_error.fill(&name, input, OnError::parse),
            "on_duplicate" => self.on_duplicate.fill(&name, input, OnDuplicate::parse),
            "on_running" => self.on_running.fill(&name, input, OnRunning::parse),
            "engine" => self.engine.fill(&name, input, Expr::parse),
            "crate" => self.krate.fill(&name, input, krate),
            unknown => {
                let valued = input.peek(Token![=]) || input.peek(syn::token::Paren);
                Err(Error::new(name.span(), unknown_argument(unknown, valued)))
            }
        }
    }
}

fn unknown_argument(name: &str, valued: bool) -> String {
    match nearest(name, &NAMES) {
        _ if OF_THE_ENGINE.contains(&name) => {
            format!(
                "`{name}` is a setting of the engine; write `Engine::builder(store).{name}(..)`"
            )
        }
        Some(known) => format!("unknown argument `{name}`; did you mean `{known}`?"),
        None if !valued => {
            format!("unknown argument `{name}`; if this is the key, write `key = {name}`")
        }
        None => format!(
            "unknown argument `{name}`; supported are `{}`",
            NAMES.join("`, `")
        ),
    }
}

fn separated(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error("expected `,` before the next argument"))
}

fn to_next_comma(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

impl<T> Slot<T> {
    /// Refuses a second argument of this name.
    fn open(&mut self, name: &Ident) -> Result<&mut Self> {
        if std::mem::replace(&mut self.named, true) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice")));
        }
        Ok(self)
    }

    /// `name = value`
    fn fill(
        &mut self,
        name: &Ident,
        input: ParseStream<'_>,
        value: impl FnOnce(ParseStream<'_>) -> Result<T>,
    ) -> Result<()> {
        self.open(name)?;
        let valueless = || {
            Error::new(
                name.span(),
                format!("`{name}` needs a value: `{name} = ..`"),
            )
        };
        input.parse::<Token![=]>().map_err(|_| valueless())?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(valueless());
        }
        self.value = Some(value(input)?);
        Ok(())
    }
}

impl Slot<Fingerprint> {
    /// `fingerprint(a, b.c)` or `fingerprint = none`, of which the name has been read.
    fn parse(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        let usage =
            "`fingerprint` takes the arguments to compare, `fingerprint(a, b.c)`, or `= none`";
        if input.peek(syn::token::Paren) {
            let content;
            let paren = syn::parenthesized!(content in input);
            let list = content.call(Punctuated::parse_terminated)?;
            if list.is_empty() {
                let message = "`fingerprint()` compares nothing; say so with `fingerprint = none`";
                return Err(Error::new(paren.span.join(), message));
            }
            self.value = Some(Fingerprint::List(list));
            return Ok(());
        }
        input
            .parse::<Token![=]>()
            .map_err(|_| Error::new(name.span(), usage))?;
        let word = input
            .parse::<Ident>()
            .map_err(|error| Error::new(error.span(), usage))?;
        if word != "none" {
            return Err(Error::new(word.span(), usage));
        }
        self.value = Some(Fingerprint::None(word.span()));
        Ok(())
    }
}

impl Time {
    fn parse(input: ParseStream<'_>, name: &Ident) -> Result<Self> {
        let mut expr = input.parse::<Expr>()?;
        // `$ttl:literal` of a `macro_rules!` comes in invisible delimiters.
        while let Expr::Group(group) = expr {
            expr = *group.expr;
        }
        if is_number(&expr) {
            let message = match unquoted(&expr) {
                Some(text) => format!("a duration stands in quotes; write \"{text}\""),
                None if name == "wait" => "a number has no unit; write `wait(\"5s\")`".to_owned(),
                None => {
                    format!("a number has no unit; write `{name}` as \"30s\", \"24h\" or \"7d\"")
                }
            };
            return Err(Error::new(crate::key::span(&expr), message));
        }
        Ok(match expr {
            Expr::Lit(syn::ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Self::Text(text),
            Expr::Path(path) if path.path.is_ident("forever") => {
                let word = path.path.get_ident().expect("`is_ident` said so");
                Self::Forever(word.clone())
            }
            other => Self::Expr(other),
        })
    }
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => !matches!(lit.lit, Lit::Str(_)),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_number(&unary.expr),
        Expr::Group(group) => is_number(&group.expr),
        _ => false,
    }
}

/// `24h` where `"24h"` is meant.
fn unquoted(expr: &Expr) -> Option<String> {
    let Expr::Lit(syn::ExprLit {
        lit: Lit::Int(number),
        ..
    }) = expr
    else {
        return None;
    };
    let text = format!("{}{}", number.base10_digits(), number.suffix());
    crate::duration::millis(&text).is_ok().then_some(text)
}

impl OnError {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let path = input.parse::<Path>().map_err(|error| {
            let message = "`on_error` takes `classify`, `release`, `keep`, `unknown`, or the path of a \
                           function `fn(&E) -> Class`";
            Error::new(error.span(), message)
        })?;
        let word = path.get_ident().map(ToString::to_string);
        Ok(match word.as_deref() {
            Some("classify") => Self::Classify,
            Some("release") => Self::Release,
            Some("keep") => Self::Keep,
            Some("unknown") => Self::Unknown,
            _ => Self::By(path),
        })
    }
}

impl OnDuplicate {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let usage = "`on_duplicate` takes `replay` or `reject`";
        let word = input
            .parse::<Ident>()
            .map_err(|error| Error::new(error.span(), usage))?;
        match word.to_string().as_str() {
            "replay" => Ok(Self::Replay),
            "reject" => Ok(Self::Reject),
            _ => Err(Error::new(word.span(), usage)),
        }
    }
}

impl OnRunning {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let usage = "`on_running` takes `wait(\"5s\")` or `reject`";
        let word = input
            .parse::<Ident>()
            .map_err(|error| Error::new(error.span(), usage))?;
        match word.to_string().as_str() {
            "reject" => Ok(Self::Reject),
            "wait" => {
                let how_long = || Error::new(word.span(), "say how long to wait: `wait(\"5s\")`");
                if !input.peek(syn::token::Paren) {
                    return Err(how_long());
                }
                let content;
                syn::parenthesized!(content in input);
                if content.is_empty() {
                    return Err(how_long());
                }
                let time = Time::parse(&content, &word)?;
                if content.is_empty() {
                    return Ok(Self::Wait(time));
                }
                Err(content.error("`wait` takes one duration"))
            }
            _ => Err(Error::new(word.span(), usage)),
        }
    }
}

fn text(input: ParseStream<'_>, name: &Ident) -> Result<LitStr> {
    let text = input.parse::<LitStr>().map_err(|error| {
        let message = format!("`{name}` takes a string literal, such as \"payments.pay\"");
        Error::new(error.span(), message)
    })?;
    if text.value().trim().is_empty() {
        let message =
            format!("`{name}` is empty; name what the function does, such as \"payments.pay\"");
        return Err(Error::new(text.span(), message));
    }
    Ok(text)
}

fn krate(input: ParseStream<'_>) -> Result<Path> {
    Path::parse_mod_style(input).map_err(|error| {
        Error::new(
            error.span(),
            "`crate` takes a path without quotes, such as `crate = ::facade::idem`",
        )
    })
}

#[cfg(test)]
mod tests;
