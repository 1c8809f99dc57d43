//! Slot for one argument of the attribute.

use super::value::{DurationArg, Fingerprint, Word};
use proc_macro2::{Span, TokenStream};
use syn::parse::ParseStream;
use syn::token::Paren;
use syn::{Error, Ident, Lifetime, Result, Token};

pub(crate) struct Slot<T> {
    /// Span of the argument's name. If it is set and `value` is `None`, an error was reported.
    pub(crate) named: Option<Span>,
    pub(crate) value: Option<T>,
}

// Written by hand because the derived impl would require `T: Default`.
impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            named: None,
            value: None,
        }
    }
}

impl<T> Slot<T> {
    /// Refuses a second argument of this name.
    fn open(&mut self, name: &Ident) -> Result<&mut Self> {
        if self.named.replace(name.span()).is_some() {
            return Err(Error::new(name.span(), format!("`{name}` is given twice")));
        }
        Ok(self)
    }

    /// `name = value`
    pub(crate) fn fill(
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
        if input.peek(Token![==]) || input.peek(Token![:]) || input.peek(Paren) {
            let message = format!("`{name}` takes its value after one `=`: `{name} = ..`");
            return Err(input.error(message));
        }
        input.parse::<Token![=]>().map_err(|_| valueless())?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(valueless());
        }
        if input.peek(Lifetime) {
            return Err(input.error(format!("`{name}` takes a value, not a lifetime")));
        }
        let rest = input.fork();
        self.value = Some(value(input).map_err(|error| locate_at_end(name, &rest, error))?);
        Ok(())
    }
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

impl Slot<Fingerprint> {
    /// `fingerprint(a, b.c)` or `fingerprint = none`
    pub(crate) fn list(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        self.open(name)?.value = Some(Fingerprint::parse(name, input)?);
        Ok(())
    }
}

impl Slot<DurationArg> {
    /// `name = "24h"`
    pub(crate) fn duration(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        self.fill(name, input, |input| DurationArg::parse(input, name))
    }
}

impl Slot<Word> {
    /// `name = word`
    pub(crate) fn word(
        &mut self,
        name: &Ident,
        input: ParseStream<'_>,
        words: &[&'static str],
    ) -> Result<()> {
        self.fill(name, input, |input| Word::parse(input, name, words))
    }
}
