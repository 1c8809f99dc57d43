//! All mistakes of one expansion, reported together.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{Error, Result};

#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(Error::new(span, message));
    }

    /// Returns the value, or records the error.
    pub(crate) fn ok<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The errors, followed by the item, so that its callers compile.
    pub(crate) fn and_item(self, item: &TokenStream) -> TokenStream {
        let error = self.0.map(|error| error.to_compile_error());
        quote!(#error #item)
    }

    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        let errors = self.0.into_iter().flatten();
        errors.map(|error| error.to_string()).collect()
    }
}

/// The value, or an error that shows how it is written.
pub(crate) fn or_usage<T>(value: Result<T>, usage: impl std::fmt::Display) -> Result<T> {
    value.map_err(|error| Error::new(error.span(), usage))
}

/// Removes `#[idem(..)]` from a parameter list that could not be parsed.
pub(crate) fn without_helpers(item: TokenStream) -> TokenStream {
    let mut kept = TokenStream::new();
    let mut tokens = item.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        if hash && tokens.next_if(is_helper).is_some() {
            continue;
        }
        kept.extend([match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                let mut new = Group::new(Delimiter::Parenthesis, without_helpers(group.stream()));
                new.set_span(group.span());
                TokenTree::Group(new)
            }
            other => other,
        }]);
    }
    kept
}

fn is_helper(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else {
        return false;
    };
    group.delimiter() == Delimiter::Bracket
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "idem")
}
