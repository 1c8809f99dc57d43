//! Arguments of `#[idempotent(..)]` as written, not yet checked against each other.

mod slot;
mod value;

pub(crate) use self::slot::Slot;
pub(crate) use self::value::{Attempts, DurationArg, Fingerprint, OnError, OnRunning, Scope, Word};

use crate::errors::Errors;
use crate::nearest::nearest;
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, Ident, LitBool, LitStr, Path, Result, Token};

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

/// Settings of the engine, documented in the manual, that an operation cannot set.
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
    pub(crate) key: Slot<Expr>,
    pub(crate) fingerprint: Slot<Fingerprint>,
    pub(crate) op: Slot<LitStr>,
    pub(crate) scope: Slot<Scope<Expr>>,
    pub(crate) ttl: Slot<DurationArg>,
    pub(crate) error_ttl: Slot<DurationArg>,
    pub(crate) lease: Slot<DurationArg>,
    pub(crate) max_run: Slot<DurationArg>,
    pub(crate) on_error: Slot<OnError>,
    pub(crate) on_running: Slot<OnRunning>,
    pub(crate) max_attempts: Slot<Attempts>,
    pub(crate) count_errors: Slot<LitBool>,
    /// In the order of [`WORDS`].
    pub(crate) words: [Slot<Word>; WORDS.len()],
    pub(crate) reconcile: Slot<Expr>,
    pub(crate) entry: Slot<Ident>,
    pub(crate) label: Slot<Expr>,
    pub(crate) engine: Slot<Expr>,
    pub(crate) tx: Slot<Ident>,
    pub(crate) krate: Slot<Path>,
    /// Whether `key` is the argument that was parsed last.
    last_is_key: bool,
}

/// Argument names of other crates and specifications, and their equivalent here.
const SYNONYMS: [(&str, &str); 10] = [
    ("expire", "ttl = \"24h\""),
    ("expires", "ttl = \"24h\""),
    ("expiry", "ttl = \"24h\""),
    ("finish", "on_cancel = finish"),
    ("idempotency_key", "key = .."),
    ("lock", "lease = \"30s\""),
    ("name", "op = \"..\""),
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

    /// The slot of a setting among [`WORDS`].
    pub(crate) fn word(&self, setting: &str) -> &Slot<Word> {
        let index = WORDS.iter().position(|(name, _)| *name == setting);
        &self.words[index.expect("a setting of `WORDS`")]
    }

    /// The error for `key = a, b`, which consumes all values after the first.
    fn tuple(&mut self, input: ParseStream<'_>) -> Option<Error> {
        let key = self.key.value.as_ref().filter(|_| self.last_is_key)?;
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
        let name = input.call(Ident::parse_any).map_err(|error| {
            Error::new(
                error.span(),
                "expected an argument, such as `key = order_id`",
            )
        })?;
        let name = &name;
        self.last_is_key = name == "key";
        match name.to_string().as_str() {
            "key" => self.key.fill(name, input, Expr::parse),
            "fingerprint" => self.fingerprint.list(name, input),
            "op" => self.op.fill(name, input, |input| value::text(input, name)),
            "scope" => self.scope.fill(name, input, Scope::parse),
            "ttl" => self.ttl.duration(name, input),
            "error_ttl" => self.error_ttl.duration(name, input),
            "lease" => self.lease.duration(name, input),
            "max_run" => self.max_run.duration(name, input),
            "on_error" => self.on_error.fill(name, input, OnError::parse),
            "on_running" => self.on_running.fill(name, input, OnRunning::parse),
            "max_attempts" => self.max_attempts.fill(name, input, Attempts::parse),
            "count_errors" => self.count_errors.fill(name, input, value::yes_or_no),
            "reconcile" => self.reconcile.fill(name, input, Expr::parse),
            "entry" => self.entry.fill(name, input, value::function),
            "label" => self.label.fill(name, input, Expr::parse),
            "engine" => self.engine.fill(name, input, Expr::parse),
            "tx" => self.tx.fill(name, input, value::parameter),
            "crate" => self.krate.fill(name, input, value::krate),
            other => {
                if let Some(index) = WORDS.iter().position(|(name, _)| *name == other) {
                    return self.words[index].word(name, input, WORDS[index].1);
                }
                let valued = input.peek(Token![=]) || input.peek(syn::token::Paren);
                Err(Error::new(name.span(), unknown_argument(other, valued)))
            }
        }
    }
}

/// Whether the word is an argument, resembles one, or is a word for one or of one.
fn is_argument(word: &str) -> bool {
    NAMES.contains(&word)
        || nearest(word, &NAMES).is_some()
        || ENGINE_SETTINGS.contains(&word)
        || SYNONYMS.iter().any(|(synonym, _)| *synonym == word)
        || WORDS.iter().any(|(_, words)| words.contains(&word))
}

fn unknown_argument(name: &str, valued: bool) -> String {
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == name);
    match (nearest(name, &NAMES), synonym) {
        _ if ENGINE_SETTINGS.contains(&name) => {
            format!(
                "`{name}` is a setting of the engine; write `Engine::builder(store).{name}(..)`"
            )
        }
        (Some(known), _) => format!("unknown argument `{name}`; did you mean `{known}`?"),
        (None, Some((_, meant))) => format!("unknown argument `{name}`; write `{meant}`"),
        (None, None) if !valued => {
            format!("unknown argument `{name}`; if this is the key, write `key = {name}`")
        }
        (None, None) => format!(
            "unknown argument `{name}`; supported are `{}`",
            NAMES.join("`, `")
        ),
    }
}

fn expect_comma(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    if input.peek(syn::token::Paren) {
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
