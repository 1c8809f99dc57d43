//! Pointers into JSON documents ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).

use std::fmt;

/// A pointer into a document, other than to the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// `None` for text that is no pointer, and for the whole document.
    pub(super) fn read(text: &str) -> Option<Self> {
        let tokens = text.strip_prefix('/')?.split('/').map(|token| {
            let mut rest = token.split('~');
            let mut name = rest.next()?.to_owned();
            for escaped in rest {
                let (sign, rest) = match escaped.split_at_checked(1)? {
                    ("0", rest) => ('~', rest),
                    ("1", rest) => ('/', rest),
                    _ => return None,
                };
                name.push(sign);
                name.push_str(rest);
            }
            Some(name)
        });
        tokens.collect::<Option<_>>().map(Self)
    }

    /// A pointer of these names.
    pub(super) fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Names of members or indices, from document to value. Never empty.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.0 {
            write!(f, "/{}", name.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}
