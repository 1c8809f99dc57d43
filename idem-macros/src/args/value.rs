//! The values of the arguments, as they are written.

use crate::errors::or_usage;
use crate::key::{literal, peeled, span, ungrouped};
use crate::nearest::nearest;
use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Error, Expr, ExprClosure, ExprLit, Ident, Lit, LitInt, LitStr, Path, Result, Token, UnOp,
};

pub(crate) enum Fingerprint {
    /// `fingerprint = none`, with the span of `none`.
    None(Span),
    List(Punctuated<Expr, Token![,]>),
}

/// Namespace of the keys.
pub(crate) enum Scope<T> {
    /// `scope = public`: all callers share one namespace.
    Public(Span),
    Of(T),
}

/// A duration as written.
pub(crate) enum DurationArg {
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

/// Value of `on_running`, its duration as written or checked.
pub(crate) enum OnRunning<T> {
    Wait(T),
    Reject,
}

/// A word of a fixed set, a variant of a runtime enum.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub(crate) text: &'static str,
    pub(crate) span: Span,
}

/// Value of `max_attempts`.
#[derive(Clone, Copy)]
pub(crate) enum Attempts {
    Most(u16),
    Unlimited,
}

impl Fingerprint {
    /// Parses what follows the name: `(a, b.c)` or `= none`.
    pub(super) fn parse(name: &Ident, input: ParseStream<'_>) -> Result<Self> {
        let usage =
            "`fingerprint` takes the arguments to compare, `fingerprint(a, b.c)`, or `= none`";
        if input.peek(syn::token::Paren) {
            let content;
            let paren = syn::parenthesized!(content in input);
            let list = content.call(Punctuated::parse_terminated)?;
            if list.is_empty() {
                let message = "`fingerprint()` compares nothing; write `fingerprint = none`";
                return Err(Error::new(paren.span.join(), message));
            }
            return Ok(Self::List(list));
        }
        let equals = input.parse::<Token![=]>();
        equals.map_err(|_| Error::new(name.span(), usage))?;
        let word = or_usage(input.parse::<Ident>(), usage)?;
        if word != "none" {
            return Err(Error::new(word.span(), usage));
        }
        Ok(Self::None(word.span()))
    }
}

impl Scope<Expr> {
    pub(super) fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(match ungrouped(input.parse()?) {
            Expr::Path(path) if path.path.is_ident("public") => {
                Self::Public(span(&Expr::Path(path)))
            }
            other => Self::Of(other),
        })
    }
}

impl DurationArg {
    pub(super) fn parse(input: ParseStream<'_>, name: &Ident) -> Result<Self> {
        Self::of(ungrouped(input.parse()?), name)
    }

    fn of(expr: Expr, name: &Ident) -> Result<Self> {
        match peeled(&expr) {
            Expr::Closure(closure) => {
                let message = match name.to_string().as_str() {
                    "ttl" => "the maximum is a duration: `ttl = (\"7d\", |answer| ..)`".to_owned(),
                    "error_ttl" => {
                        "only a value chooses its life: `ttl = |answer| ..`; `error_ttl` takes a duration".to_owned()
                    }
                    _ => format!("`{name}` takes a duration; only `ttl` takes a closure"),
                };
                return Err(Error::new(closure.span(), message));
            }
            Expr::Tuple(tuple) => {
                let message = format!("`{name}` takes one duration, such as \"30s\"");
                return Err(Error::new(tuple.span(), message));
            }
            _ => {}
        }
        if is_number(&expr) {
            let message = match unquoted(&expr) {
                Some(text) => format!("a duration is a string literal; write \"{text}\""),
                None if name == "wait" => "a number has no unit; write `wait(\"5s\")`".to_owned(),
                None => {
                    format!("a number has no unit; write `{name}` as \"30s\", \"24h\" or \"7d\"")
                }
            };
            return Err(Error::new(span(&expr), message));
        }
        Ok(match expr {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Self::Text(text),
            Expr::Path(path) if path.path.is_ident("forever") => {
                let word = path.path.get_ident().expect("`is_ident` was true");
                Self::Forever(word.clone())
            }
            other => Self::Expr(other),
        })
    }
}

/// Parses the value of `ttl`: a duration, a closure that takes the answer, or a pair of both.
pub(super) fn ttl(
    input: ParseStream<'_>,
    name: &Ident,
) -> Result<(Option<DurationArg>, Option<ExprClosure>)> {
    let value = ungrouped(input.parse()?);
    match peeled(&value) {
        Expr::Closure(closure) => Ok((None, Some(of_answer(closure)?))),
        Expr::Tuple(pair) => {
            let mut elements = pair.elems.iter();
            let (most, closure, more) = (elements.next(), elements.next(), elements.next());
            let (most, closure) = match (most, closure.map(peeled), more) {
                (Some(most), Some(Expr::Closure(closure)), None) => (most, closure),
                (Some(_), Some(Expr::Path(path)), None) => {
                    let function = tidy(&path.to_token_stream().to_string());
                    let message = format!(
                        "the second of a pair is a closure; a function goes in one: `ttl = (\"7d\", |answer| {function}(answer))`"
                    );
                    return Err(Error::new(path.span(), message));
                }
                _ => {
                    let usage =
                        "a pair is the maximum and the closure: `ttl = (\"7d\", |answer| ..)`";
                    return Err(Error::new(pair.span(), usage));
                }
            };
            let most = DurationArg::of(ungrouped(most.clone()), name)?;
            Ok((Some(most), Some(of_answer(closure)?)))
        }
        _ => Ok((Some(DurationArg::of(value, name)?), None)),
    }
}

/// Checks that the closure takes one argument.
fn of_answer(closure: &ExprClosure) -> Result<ExprClosure> {
    let (span, message) = match (&closure.asyncness, closure.inputs.len()) {
        (Some(asyncness), _) => (
            asyncness.span,
            "the closure of `ttl` cannot wait; remove `async`",
        ),
        (None, 1) => return Ok(closure.clone()),
        (None, 0) => (
            closure.span(),
            "the closure of `ttl` takes the answer: `ttl = |answer| ..`",
        ),
        (None, _) => (
            closure.inputs[1].span(),
            "the closure of `ttl` takes the answer alone, as a reference to the value in `Ok`: `ttl = |answer| ..`",
        ),
    };
    Err(Error::new(span, message))
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => !matches!(lit.lit, Lit::Str(_)),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_number(&unary.expr),
        Expr::Group(group) => is_number(&group.expr),
        _ => false,
    }
}

/// Text of an unquoted duration: `24h` where `"24h"` is meant.
fn unquoted(expr: &Expr) -> Option<String> {
    let Expr::Lit(ExprLit {
        lit: Lit::Int(number),
        ..
    }) = expr
    else {
        return None;
    };
    let text = format!("{}{}", number.base10_digits(), number.suffix());
    let millis = crate::duration::parse_millis(&text);
    millis.is_ok_and(|millis| millis > 0).then_some(text)
}

impl OnError {
    pub(super) fn parse(input: ParseStream<'_>) -> Result<Self> {
        let usage = "`on_error` takes `classify`, `release`, `keep`, `unknown`, or the path of a \
                     function `fn(&E) -> Class`";
        let path = or_usage(input.parse::<Path>(), usage)?;
        if let Some(meant) = class(&path) {
            let message = format!(
                "`on_error` treats all errors alike: write `on_error = {meant}`. To classify each error, implement `Classify`, \
                 or write the path of a function `fn(&E) -> Class`"
            );
            return Err(Error::new_spanned(path, message));
        }
        let word = path.get_ident().map(ToString::to_string);
        if let Some(word) = &word
            && let Some(meant) =
                synonym(word).or_else(|| almost(word, &["classify", "release", "keep", "unknown"]))
        {
            // A function is never called `Keep`, so a word that differs only in case is a mistake for the keyword.
            let function = if word.eq_ignore_ascii_case(meant) {
                String::new()
            } else {
                format!(" (a function of that name: `self::{word}`)")
            };
            let message =
                format!("`on_error` has no value `{word}`; did you mean `{meant}`?{function}");
            return Err(Error::new_spanned(path, message));
        }
        Ok(match word.as_deref() {
            Some("classify") => Self::Classify,
            Some("release") => Self::Release,
            Some("keep") => Self::Keep,
            Some("unknown") => Self::Unknown,
            _ => Self::By(path),
        })
    }
}

/// The keyword for errors of the class that the path names.
fn class(path: &Path) -> Option<&'static str> {
    let mut last = path.segments.iter().rev();
    let (variant, of) = (last.next()?, last.next()?);
    if of.ident != "Class" {
        return None;
    }
    match &*variant.ident.to_string() {
        "Business" => Some("keep"),
        "System" => Some("release"),
        "Unknown" => Some("unknown"),
        _ => None,
    }
}

fn synonym(word: &str) -> Option<&'static str> {
    Some(match word {
        "business" | "kept" | "store" | "stored" => "keep",
        "released" | "retry" | "system" => "release",
        "classified" => "classify",
        _ => return None,
    })
}

/// The keyword that a similar word may stand for.
fn almost(word: &str, words: &[&'static str]) -> Option<&'static str> {
    if words.contains(&word) {
        return None;
    }
    let lower = word.to_lowercase();
    let meant = nearest(&lower, words)?;
    // A function may be called `reclassify`, so a word that contains the keyword is accepted as a name.
    (lower == meant || !lower.contains(meant)).then_some(meant)
}

impl Word {
    pub(super) fn parse(
        input: ParseStream<'_>,
        name: &Ident,
        words: &[&'static str],
    ) -> Result<Self> {
        if let Some(text) = input.parse::<Option<LitStr>>()? {
            return Err(Error::new(text.span(), quoted(name, &text, words)));
        }
        // `parse_any`, because `continue` is a Rust keyword.
        let word = or_usage(input.call(Ident::parse_any), choice(name, words))?;
        let text = word.to_string();
        match words.iter().find(|known| **known == text) {
            Some(text) => Ok(Self {
                text,
                span: word.span(),
            }),
            None => Err(Error::new(word.span(), unknown(name, &text, words))),
        }
    }
}

/// "`on_panic` takes `release` or `unknown`"
fn choice(name: &Ident, words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => {
            format!("`{name}` takes `{}` or `{last}`", others.join("`, `"))
        }
        _ => format!("`{name}` takes `{}`", words.concat()),
    }
}

fn unknown(name: &Ident, text: &str, words: &[&str]) -> String {
    nearest(text, words).map_or_else(
        || choice(name, words),
        |known| format!("`{name}` has no value `{text}`; did you mean `{known}`?"),
    )
}

fn quoted(name: &Ident, text: &LitStr, words: &[&str]) -> String {
    let text = text.value();
    if words.contains(&text.as_str()) {
        return format!("`{text}` is a keyword; remove the quotes: `{name} = {text}`");
    }
    choice(name, words)
}

impl Attempts {
    pub(super) fn parse(input: ParseStream<'_>) -> Result<Self> {
        let usage = "`max_attempts` takes a whole number from 1 to 65535, or `unlimited`";
        if let Some(word) = input.parse::<Option<Ident>>()? {
            if word == "unlimited" {
                return Ok(Self::Unlimited);
            }
            return Err(Error::new(word.span(), usage));
        }
        let number = or_usage(input.parse::<LitInt>(), usage)?;
        let most = number.base10_parse::<u16>().ok();
        match most.filter(|_| number.suffix().is_empty()) {
            None => Err(Error::new(number.span(), usage)),
            Some(0) => {
                let message = "no attempt would ever start; with `max_attempts = 1` the body starts at most once, and \
                               `unlimited` sets no limit";
                Err(Error::new(number.span(), message))
            }
            Some(most) => Ok(Self::Most(most)),
        }
    }
}

impl OnRunning<DurationArg> {
    pub(super) fn parse(input: ParseStream<'_>) -> Result<Self> {
        let usage = "`on_running` takes `wait(\"5s\")` or `reject`";
        let word = or_usage(input.parse::<Ident>(), usage)?;
        match word.to_string().as_str() {
            "reject" => Ok(Self::Reject),
            "wait" => {
                let missing = || Error::new(word.span(), "`wait` needs a duration: `wait(\"5s\")`");
                if !input.peek(syn::token::Paren) {
                    return Err(missing());
                }
                let content;
                syn::parenthesized!(content in input);
                if content.is_empty() {
                    return Err(missing());
                }
                let duration = DurationArg::parse(&content, &word)?;
                if content.is_empty() {
                    return Ok(Self::Wait(duration));
                }
                Err(content.error("`wait` takes one duration"))
            }
            _ => Err(Error::new(word.span(), usage)),
        }
    }
}

pub(super) fn text(input: ParseStream<'_>, name: &Ident) -> Result<LitStr> {
    let usage = format!("`{name}` takes a string literal, such as \"payments.pay\"");
    let text = or_usage(input.parse::<LitStr>(), usage)?;
    let defect = if text.value().trim().is_empty() {
        "is empty"
    } else if text.value().contains(char::is_control) {
        "contains a control character"
    } else {
        return Ok(text);
    };
    let message =
        format!("`{name}` {defect}; name what the function does, such as \"payments.pay\"");
    Err(Error::new(text.span(), message))
}

/// Consumes a value without a name: the second of `key = a.id, a.cents`.
pub(super) fn unnamed(input: ParseStream<'_>, is_argument: impl Fn(&str) -> bool) -> Option<Expr> {
    let ahead = input.fork();
    let expr = ahead.parse::<Expr>().ok()?;
    let is_value = match &expr {
        Expr::Path(path) => !is_argument(&path.path.get_ident()?.to_string()),
        _ => matches!(
            expr,
            Expr::Field(_) | Expr::MethodCall(_) | Expr::Reference(_)
        ),
    };
    let ends = ahead.is_empty() || ahead.peek(Token![,]);
    (is_value && ends).then(|| input.parse().ok()).flatten()
}

/// Printed tokens without the spaces that are not written.
pub(super) fn tidy(tokens: &str) -> String {
    let mut text = tokens.to_owned();
    for (printed, written) in [
        (" . ", "."),
        (" :: ", "::"),
        (" ,", ","),
        ("& ", "&"),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        (",(", ", ("),
    ] {
        text = text.replace(printed, written);
    }
    text
}

/// Parses the value of `tx`.
pub(super) fn parameter(input: ParseStream<'_>) -> Result<Ident> {
    let usage =
        "`tx` takes the name of the parameter that is the caller's transaction, such as `tx = tx`";
    let expr = or_usage(input.parse::<Expr>(), usage)?;
    if let Expr::Field(field) = &expr {
        let message = "`tx` takes the name of a parameter, not a field: the call borrows the transaction for as long as \
                       the body runs, which could then not use the struct that contains it; take it as `tx: &mut PgTransaction<'_>`, and \
                       write `tx = tx`";
        return Err(Error::new(span(&field.base), message));
    }
    if let Some(name) = bare_name(&expr) {
        return Ok(name);
    }
    let meant = match &expr {
        Expr::Reference(reference) => bare_name(&reference.expr),
        _ => literal(&expr).and_then(|text| text.parse().ok()),
    };
    let message = meant.map_or_else(
        || usage.to_owned(),
        |name| format!("`tx` takes the name of a parameter and nothing else; write `tx = {name}`"),
    );
    Err(Error::new(span(&expr), message))
}

/// Parses the value of `entry`.
pub(super) fn function(input: ParseStream<'_>) -> Result<Ident> {
    let usage = "`entry` takes a name for the function that finds the record of a call, such as `entry = pay_entry`";
    if let Some(text) = input.parse::<Option<LitStr>>()? {
        let message = match text.parse::<Ident>() {
            Ok(name) => format!("`entry` takes a name without quotes; write `entry = {name}`"),
            Err(_) => usage.to_owned(),
        };
        return Err(Error::new(text.span(), message));
    }
    let name = or_usage(input.parse::<Ident>(), usage)?;
    if !input.is_empty() && !input.peek(Token![,]) {
        return Err(Error::new(name.span(), usage));
    }
    Ok(name)
}

fn bare_name(expr: &Expr) -> Option<Ident> {
    match peeled(expr) {
        Expr::Path(path) => path.path.get_ident().cloned(),
        _ => None,
    }
}
