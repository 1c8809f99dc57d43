//! Room for one argument of the attribute.

use super::value::{Fingerprint, Time, Word};
use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Error, Ident, Result, Token};

pub(crate) struct Slot<T> {
    /// Where it was named; `value` is `None` then only beside an error.
    pub(crate) named: Option<Span>,
    pub(crate) value: Option<T>,
}

// Derived, it would ask for `T: Default`.
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
        input.parse::<Token![=]>().map_err(|_| valueless())?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(valueless());
        }
        self.value = Some(value(input)?);
        Ok(())
    }
}

impl Slot<Fingerprint> {
    /// `fingerprint(a, b.c)` or `fingerprint = none`
    pub(crate) fn list(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        self.open(name)?.value = Some(Fingerprint::parse(name, input)?);
        Ok(())
    }
}

impl Slot<Time> {
    /// `name = "24h"`
    pub(crate) fn time(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        self.fill(name, input, |input| Time::parse(input, name))
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
