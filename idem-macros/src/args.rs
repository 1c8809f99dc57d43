//! Arguments of `#[idempotent(..)]` as written, not yet checked against each other.

mod value;

pub(crate) use self::value::{Attempts, DurationArg, Fingerprint, OnError, OnRunning, Scope, Word};

use crate::errors::{Errors, or_usage};
use crate::nearest::nearest;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::token::Paren;
use syn::{Error, Expr, ExprClosure, Ident, Lifetime, LitBool, LitStr, Path, Result, Token};

/// Names of all arguments, in the order of the manual.
const NAMES: [&str; 25] = [
    "key",
    "fingerprint",
    "op",
    "scope",
    "ttl",
    "error_ttl",
    "lease",
    "max_run",
    "on_error",
    "on_duplicate",
    "on_running",
    "on_cancel",
    "on_panic",
    "on_lease_lost",
    "on_unconfirmed",
    "on_outage",
    "on_other_type",
    "max_attempts",
    "count_errors",
    "reconcile",
    "entry",
    "label",
    "engine",
    "tx",
    "crate",
];

/// The settings that take one of a few words, with the words. For each, the runtime has a setter of the same name, and
/// an enum with these variants. The comment at `settings!` in `idem-runtime/src/policy.rs` lists every place of a
/// setting.
pub(crate) const WORDS: [(&str, &[&str]); 7] = [
    ("on_duplicate", &["replay", "reject"]),
    ("on_cancel", &["hold", "finish", "release", "unknown"]),
    ("on_panic", &["release", "unknown"]),
    ("on_lease_lost", &["continue", "cancel"]),
    ("on_unconfirmed", &["within_lease", "fail", "return"]),
    ("on_outage", &["fail", "run"]),
    ("on_other_type", &["reject", "accept"]),
];

/// Engine settings of the manual that an operation cannot set.
const ENGINE_SETTINGS: [&str; 6] = [
    "prefix",
    "claim_deadline",
    "complete_deadline",
    "max_value_bytes",
    "observer",
    "clock",
];

#[derive(Default)]
pub(crate) struct Args {
    /// Names as written. An error was reported for a named argument without a value.
    named: Vec<Ident>,
    pub(crate) key: Option<Expr>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) op: Option<LitStr>,
    pub(crate) scope: Option<Scope<Expr>>,
    /// `ttl`, `error_ttl`, `lease` and `max_run`.
    durations: Vec<(&'static str, DurationArg)>,
    pub(crate) ttl_of: Option<ExprClosure>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) on_running: Option<OnRunning<DurationArg>>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) count_errors: Option<LitBool>,
    /// Those of [`WORDS`].
    words: Vec<(&'static str, Word)>,
    pub(crate) reconcile: Option<Expr>,
    pub(crate) entry: Option<Ident>,
    pub(crate) label: Option<Expr>,
    pub(crate) engine: Option<Expr>,
    pub(crate) tx: Option<Ident>,
    pub(crate) krate: Option<Path>,
    /// Whether `key` is the argument that was parsed last.
    last_is_key: bool,
}

/// Argument names of other crates and specifications, and their equivalent here.
const SYNONYMS: [(&str, &str); 11] = [
    ("expire", "ttl = \"24h\""),
    ("expires", "ttl = \"24h\""),
    ("expiry", "ttl = \"24h\""),
    ("finish", "on_cancel = finish"),
    ("idempotency_key", "key = .."),
    ("lock", "lease = \"30s\""),
    ("name", "op = \"..\""),
    ("retries", "max_attempts = 3"),
    (
        "skip",
        "#[idem(skip)]` before a parameter, as in `#[idem(skip)] bank: &Bank",
    ),
    ("tenant", "scope = .."),
    ("wait", "on_running = wait(\"5s\")"),
];

impl Args {
    /// Parses every argument it can; the errors of the rest go to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let list = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Some(error) = args.tuple(input) {
                    errors.push(error);
                } else if let Err(error) = args.argument(input).and_then(|()| expect_comma(input)) {
                    errors.push(error);
                    skip_to_comma(input)?;
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

    /// Span of the name of a given argument.
    pub(crate) fn named(&self, name: &str) -> Option<Span> {
        let last = self.named.iter().rfind(|given| *given == name);
        last.map(Ident::span)
    }

    pub(crate) fn duration(&self, name: &str) -> Option<&DurationArg> {
        let mut durations = self.durations.iter();
        durations.find_map(|(given, value)| (*given == name).then_some(value))
    }

    /// The word of a setting among [`WORDS`].
    pub(crate) fn word(&self, name: &str) -> Option<Word> {
        let mut words = self.words.iter();
        words.find_map(|(given, word)| (*given == name).then_some(*word))
    }

    /// The error for `key = a, b`; consumes the further values.
    fn tuple(&mut self, input: ParseStream<'_>) -> Option<Error> {
        let key = self.key.as_ref().filter(|_| self.last_is_key)?;
        let mut elements = vec![key.to_token_stream()];
        let mut error = None;
        while let Some(element) = value::unnamed(input, is_argument) {
            error = error.or_else(|| Some(crate::key::span(&element)));
            elements.push(element.to_token_stream());
            if input.peek2(Token![,]) || !input.peek(Token![,]) {
                break;
            }
            let ahead = input.fork();
            let _ = ahead.parse::<Token![,]>();
            if value::unnamed(&ahead, is_argument).is_none() {
                break;
            }
            let _ = input.parse::<Token![,]>();
        }
        self.last_is_key = false;
        let tuple = quote!((#(#elements),*)).to_string();
        let message = format!(
            "`key` takes one value; if several make up the key, write a tuple: `key = {}`",
            value::tidy(&tuple)
        );
        error.map(|span| Error::new(span, message))
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if self.named.last().is_some_and(|last| last == "ttl")
            && input.fork().parse::<ExprClosure>().is_ok()
        {
            let closure = input.parse()?;
            let message = "write a pair: `ttl = (\"7d\", |answer| ..)`";
            return Err(Error::new(
                crate::key::span(&Expr::Closure(closure)),
                message,
            ));
        }
        let usage = "expected an argument, such as `key = order_id`";
        let name = or_usage(input.call(Ident::parse_any), usage)?;
        self.last_is_key = name == "key";
        let Some(known) = NAMES.into_iter().find(|known| name == known) else {
            let valued = input.peek(Token![=]) || input.peek(Paren);
            let message = unknown_argument(&name.to_string(), valued);
            return Err(Error::new(name.span(), message));
        };
        let is_second = self.named(known).is_some();
        self.named.push(name.clone());
        if is_second {
            return Err(Error::new(name.span(), format!("`{name}` is given twice")));
        }
        if known == "fingerprint" {
            self.fingerprint = Some(Fingerprint::parse(&name, input)?);
            return Ok(());
        }
        equals_sign(&name, input)?;
        let rest = input.fork();
        let value = self.value(known, &name, input);
        value.map_err(|error| locate_at_end(&name, &rest, error))
    }

    fn value(&mut self, known: &'static str, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match known {
            "key" => self.key = Some(input.parse()?),
            "op" => self.op = Some(value::text(input, name)?),
            "scope" => self.scope = Some(Scope::parse(input)?),
            "ttl" => {
                let (duration, ttl_of) = value::ttl(input, name)?;
                self.durations.extend(duration.map(|it| (known, it)));
                self.ttl_of = ttl_of;
            }
            "error_ttl" | "lease" | "max_run" => {
                let duration = DurationArg::parse(input, name)?;
                self.durations.push((known, duration));
            }
            "on_error" => self.on_error = Some(OnError::parse(input)?),
            "on_running" => self.on_running = Some(OnRunning::parse(input)?),
            "max_attempts" => self.max_attempts = Some(Attempts::parse(input)?),
            "count_errors" => {
                let usage = "`count_errors` takes `true` or `false`";
                self.count_errors = Some(or_usage(input.parse(), usage)?);
            }
            "reconcile" => self.reconcile = Some(input.parse()?),
            "entry" => self.entry = Some(value::function(input)?),
            "label" => self.label = Some(input.parse()?),
            "engine" => self.engine = Some(input.parse()?),
            "tx" => self.tx = Some(value::parameter(input)?),
            "crate" => {
                let usage = "`crate` takes a path without quotes, such as `crate = ::facade::idem`";
                self.krate = Some(or_usage(Path::parse_mod_style(input), usage)?);
            }
            _ => {
                let setting = WORDS.iter().find(|(setting, _)| *setting == known);
                let (_, words) = setting.expect("every other argument takes a word");
                self.words.push((known, Word::parse(input, name, words)?));
            }
        }
        Ok(())
    }
}

/// Consumes the `=` of `name = value`.
fn equals_sign(name: &Ident, input: ParseStream<'_>) -> Result<()> {
    let is_other = input.peek(Token![==]) || input.peek(Token![=>]) || input.peek(Token![:]);
    if is_other || input.peek(Paren) {
        let message = format!("`{name}` takes its value after one `=`: `{name} = ..`");
        return Err(input.error(message));
    }
    let equals = input.parse::<Token![=]>();
    if equals.is_err() || input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name}` needs a value: `{name} = ..`");
        return Err(Error::new(name.span(), message));
    }
    if input.peek(Lifetime) {
        return Err(input.error(format!("`{name}` takes a value, not a lifetime")));
    }
    Ok(())
}

/// Moves an error at the end of the arguments to `name`: without a span of its own it would point at the
/// whole attribute.
fn locate_at_end(name: &Ident, value: ParseStream<'_>, error: Error) -> Error {
    let text = error.to_string();
    let Some(missing) = text.strip_prefix("unexpected end of input, ") else {
        return error;
    };
    let tokens = value.parse::<TokenStream>().unwrap_or_default();
    let last = tokens.into_iter().last();
    let span = last.map_or_else(|| name.span(), |token| token.span());
    Error::new(span, format!("the value of `{name}` ends here; {missing}"))
}

/// Whether the word is, resembles or belongs to an argument.
fn is_argument(word: &str) -> bool {
    NAMES.contains(&word)
        || nearest(word, &NAMES).is_some()
        || ENGINE_SETTINGS.contains(&word)
        || SYNONYMS.iter().any(|(synonym, _)| *synonym == word)
        || WORDS.iter().any(|(_, words)| words.contains(&word))
}

fn unknown_argument(name: &str, valued: bool) -> String {
    if ENGINE_SETTINGS.contains(&name) {
        return format!(
            "`{name}` is a setting of the engine; write `Engine::builder(store).{name}(..)`"
        );
    }
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == name);
    let hint = match (nearest(name, &NAMES), synonym) {
        (Some(known), _) => format!("did you mean `{known}`?"),
        (None, Some((_, meant))) => format!("write `{meant}`"),
        (None, None) if !valued => format!("if this is the key, write `key = {name}`"),
        (None, None) => format!("supported are `{}`", NAMES.join("`, `")),
    };
    format!("unknown argument `{name}`; {hint}")
}

fn expect_comma(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    if input.peek(Paren) {
        return Err(input.error("unexpected parentheses; remove them"));
    }
    Err(input.error("expected `,` before the next argument"))
}

fn skip_to_comma(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
