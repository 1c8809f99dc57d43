//! The key that a client sends with its request.

use std::fmt;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Serialize, Serializer};
use sfv::{BareItem, Item, Parser, Version};

use crate::identity::canonical::CLIENT_KEY;

/// The request header that names a request: `Idempotency-Key`.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of a request, as its client chose it.
///
/// In an axum handler it is an extractor, and `#[idempotent(key = idempotency_key, …)]` names it. Its text is untrusted
/// client input: it is not logged, and [`Debug`](fmt::Debug) does not show it.
///
/// Any client can send the key of another one, so that a call with it needs an owner of the key: `scope = user.id`, or
/// `scope = public` where all clients share one namespace. The attribute checks that at compile time, wherever it sees
/// the name of this type; a call that bypasses the check (the type has another name there, or is a field of a key) is
/// refused as [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy). A copy of its text is a text like any
/// other.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub String);

/// Serializes as text in a newtype, by which the encoder recognizes it.
impl Serialize for IdempotencyKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(CLIENT_KEY, &self.0)
    }
}

impl IdempotencyKey {
    /// The text of the key, without its quotation marks.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} bytes)", self.0.len())
    }
}

/// The longest key in bytes: 255 characters of any kind.
///
/// With its length it stays under the 1,024 bytes that any key may take.
const MAX_BYTES: usize = 255 * 4;

/// Rules for accepted keys.
///
/// The default is the draft's ([draft-ietf-httpapi-idempotency-key-header-07, section
/// 2.1](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2.1)): one header,
/// whose value is a String of [RFC 8941, section 3.3.3](https://www.rfc-editor.org/rfc/rfc8941#section-3.3.3):
/// printable ASCII in quotation marks, of 1 to 255 characters. Parameters after it are ignored, as RFC 8941 requires
/// for undefined ones. Beyond the draft, a key without quotation marks is accepted: [`bare`](Self::bare).
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use idem_runtime::http::{IDEMPOTENCY_KEY, KeyRefusal, KeyRules};
///
/// let mut headers = HeaderMap::new();
/// let read = |rules: KeyRules, headers: &HeaderMap| rules.read(headers);
/// assert_eq!(read(KeyRules::default(), &headers), Ok(None));
///
/// headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("\"8e03978e\""));
/// let key = read(KeyRules::default(), &headers).unwrap().unwrap();
/// assert_eq!(key.as_str(), "8e03978e");
///
/// // As most clients send it: the same key. The draft requires the quotation marks.
/// headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("8e03978e"));
/// assert_eq!(read(KeyRules::default(), &headers), Ok(Some(key)));
/// assert_eq!(read(KeyRules::default().bare(false), &headers), Err(KeyRefusal::NotAString));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KeyRules {
    syntax: Syntax,
    max_chars: usize,
    form: Option<KeyForm>,
    ignores_case: bool,
}

/// How the value of a header is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    /// A String of RFC 8941.
    Quoted,
    /// The same, or the text of one without quotation marks.
    QuotedOrBare,
    /// The whole value is the text.
    Verbatim,
}

/// A form that keys must have, and its name.
#[derive(Clone, Copy, Debug)]
struct KeyForm {
    name: &'static str,
    accept: fn(&str) -> bool,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            syntax: Syntax::QuotedOrBare,
            max_chars: 255,
            form: None,
            ignores_case: false,
        }
    }
}

impl KeyRules {
    /// Whether keys without quotation marks are accepted; default yes, draft no.
    ///
    /// Most clients and SDKs send it so: visible ASCII other than `"`, `\`, `,` and `;`. With and without the marks it
    /// is the same key, and no other text is: a value that a proxy joined from two headers, or a part of a quoted key,
    /// is refused.
    #[must_use]
    pub fn bare(mut self, bare: bool) -> Self {
        self.syntax = if bare {
            Syntax::QuotedOrBare
        } else {
            Syntax::Quoted
        };
        self
    }

    /// Takes the whole value of the header as the key.
    ///
    /// For an API that says no more of its keys than "a string". Quotation marks are a part of it, and `"a"` and `a` are two keys. It must be UTF-8; blanks around it are none of it.
    /// A value that a proxy joined from two headers is a key too.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue};
    /// use idem_runtime::http::{IDEMPOTENCY_KEY, KeyRules};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("order 7, second"));
    /// assert!(KeyRules::default().read(&headers).is_err());
    /// let key = KeyRules::default().verbatim().read(&headers)?.unwrap();
    /// assert_eq!(key.as_str(), "order 7, second");
    /// # Ok::<(), idem_runtime::http::KeyRefusal>(())
    /// ```
    #[must_use]
    pub fn verbatim(mut self) -> Self {
        self.syntax = Syntax::Verbatim;
        self
    }

    /// Ignores the case of ASCII letters: every key is in lower case.
    ///
    /// For UUIDs, which some clients write in upper case.
    #[must_use]
    pub fn ignore_case(mut self) -> Self {
        self.ignores_case = true;
        self
    }

    /// The limit of a key in characters; default 255, at most 900.
    ///
    /// A key of more than 255 characters may have 1,020 bytes.
    #[must_use]
    pub fn max_chars(mut self, max_chars: usize) -> Self {
        self.max_chars = max_chars.min(900);
        self
    }

    /// Accepts only keys of your own form, such as a UUID.
    ///
    /// Others are refused with 400. The last call counts: a form of several parts is one function. The form of a
    /// [`Profile`](super::Profile) is a part of its rules, which [`Profile::keys`](super::Profile::keys) replaces.
    #[must_use]
    pub fn accept(self, accept: fn(&str) -> bool) -> Self {
        self.form("a form of the service's own", accept)
    }

    /// As [`accept`](Self::accept), with a name of the form.
    pub(super) fn form(mut self, name: &'static str, accept: fn(&str) -> bool) -> Self {
        self.form = Some(KeyForm { name, accept });
        self
    }

    pub(super) fn counted(&self, mut key: String) -> String {
        if self.ignores_case {
            key.make_ascii_lowercase();
        }
        key
    }

    /// Reads the key of a request; `None`: it has no such header.
    ///
    /// # Errors
    ///
    /// [`KeyRefusal`], if the header is not a valid key.
    pub fn read(&self, headers: &HeaderMap) -> Result<Option<IdempotencyKey>, KeyRefusal> {
        self.read_from(headers, &IDEMPOTENCY_KEY)
    }

    /// Reads the key from the header of this name.
    pub(super) fn read_from(
        &self,
        headers: &HeaderMap,
        name: &HeaderName,
    ) -> Result<Option<IdempotencyKey>, KeyRefusal> {
        let mut lines = headers.get_all(name).iter();
        let Some(line) = lines.next() else {
            return Ok(None);
        };
        if lines.next().is_some() {
            return Err(KeyRefusal::Repeated);
        }
        let key = self.text(line)?;
        self.check(key).map(Some)
    }

    /// Checks the text of a key, wherever it was.
    pub(super) fn check(&self, key: String) -> Result<IdempotencyKey, KeyRefusal> {
        if key.trim().is_empty() {
            return Err(KeyRefusal::Empty);
        }
        let is_too_long = |max_chars| key.len() > max_chars && key.chars().count() > max_chars;
        let refused = |max_chars| Err(KeyRefusal::TooLong { max_chars });
        if is_too_long(self.max_chars) {
            return refused(self.max_chars);
        }
        if key.len() > MAX_BYTES {
            return refused(MAX_BYTES / 4);
        }
        if self.form.is_some_and(|form| !(form.accept)(&key)) {
            return Err(KeyRefusal::NotAccepted);
        }
        Ok(IdempotencyKey(self.counted(key)))
    }

    fn text(&self, line: &HeaderValue) -> Result<String, KeyRefusal> {
        let bytes = line.as_bytes().trim_ascii();
        if self.syntax == Syntax::Verbatim {
            let text = std::str::from_utf8(bytes).map_err(|_| KeyRefusal::Unreadable)?;
            return Ok(text.to_owned());
        }
        let plain = match bytes {
            // The form of nearly every key, which needs no parser.
            [b'"', text @ .., b'"'] if text.iter().copied().all(is_unescaped) => Some(text),
            text if self.syntax == Syntax::QuotedOrBare
                && !text.is_empty()
                && text.iter().copied().all(is_bare) =>
            {
                Some(text)
            }
            _ => None,
        };
        if let Some(Ok(text)) = plain.map(std::str::from_utf8) {
            return Ok(text.to_owned());
        }
        let parser = Parser::new(bytes).with_version(Version::Rfc8941);
        match parser.parse::<Item>() {
            Ok(Item {
                bare_item: BareItem::String(text),
                ..
            }) => Ok(text.into()),
            _ if bytes.is_empty() => Err(KeyRefusal::Empty),
            _ => Err(KeyRefusal::NotAString),
        }
    }
}

impl fmt::Display for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.syntax {
            Syntax::Quoted => "quoted in a header",
            Syntax::QuotedOrBare => "quoted or bare in a header",
            Syntax::Verbatim => "the whole value of a header",
        })?;
        write!(f, "; at most {} characters", self.max_chars)?;
        if let Some(form) = self.form {
            write!(f, "; {}", form.name)?;
        }
        if self.ignores_case {
            f.write_str("; in any case")?;
        }
        Ok(())
    }
}

/// Whether the byte stands for itself in a String of RFC 8941.
fn is_unescaped(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

/// Whether the byte is visible, and no delimiter of header values.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';')
}

/// Reason of a refused key, with no part of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRefusal {
    /// It is absent, and the operation requires it.
    Missing,
    /// The header occurs more than once.
    Repeated,
    /// It is no String of RFC 8941, or no string of JSON.
    ///
    /// In a header: a list, with other characters, or without quotation marks where [`KeyRules::bare`] does not accept
    /// that.
    NotAString,
    /// It is empty.
    Empty,
    /// It is longer than allowed.
    TooLong {
        /// The limit in characters.
        max_chars: usize,
    },
    /// [`KeyRules::accept`] does not accept it.
    NotAccepted,
    /// Its place cannot be read.
    ///
    /// A body that is no JSON, an escape that is none, a header that is read [verbatim](KeyRules::verbatim) and no UTF-8.
    Unreadable,
}

impl fmt::Display for KeyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = "Idempotency-Key header";
        f.write_str(&self.text(&format!("an {place}"), &place))
    }
}

impl KeyRefusal {
    /// The text of the refusal. `needed` and `place` name the key's place.
    pub(super) fn text(&self, needed: &str, place: &dyn fmt::Display) -> String {
        match self {
            Self::Missing => format!(
                "this operation needs {needed}: send one that no other request has, such as a UUID, and the same one \
                 when you repeat the request"
            ),
            Self::Repeated => format!("the {place} came more than once: send one"),
            Self::NotAString => format!(
                "the {place} is not one string of printable ASCII characters, best in quotation marks, such as \
                 \"8e03978e-40d5-43dd-bc93-6894a57f9324\" (RFC 8941, section 3.3.3)"
            ),
            Self::Empty => format!("the {place} is empty"),
            Self::TooLong { max_chars } => {
                format!("the {place} is longer than {max_chars} characters")
            }
            Self::NotAccepted => {
                format!("the {place} does not have the form that this API asks for")
            }
            Self::Unreadable => format!("the {place} cannot be read: it must be UTF-8"),
        }
    }
}

impl std::error::Error for KeyRefusal {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(rules: KeyRules, line: &[u8]) -> Result<Option<IdempotencyKey>, KeyRefusal> {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        rules.read(&headers)
    }

    proptest! {
        /// A quoted plain text, read without the parser, is the parser's text.
        #[test]
        fn a_key_is_the_string_that_the_parser_reads(text in "[ -~\u{e9}]{0,40}", is_quoted in any::<bool>()) {
            let line = if is_quoted { format!("\"{text}\"") } else { text };
            let parsed = Parser::new(line.trim()).with_version(Version::Rfc8941).parse::<Item>();
            let parsed = match parsed.map(|item| item.bare_item) {
                Ok(BareItem::String(text)) => Some(String::from(text)),
                _ => None,
            };
            let key = |bare| {
                let key = read(KeyRules::default().bare(bare), line.as_bytes()).ok().flatten();
                key.map(|key| key.0)
            };
            let parsed = parsed.filter(|text| !text.trim().is_empty());
            prop_assert_eq!(key(false), parsed.clone());
            // Without quotation marks the key is the text itself, or none.
            let text = line.trim();
            let is_bare = !text.is_empty() && text.bytes().all(is_bare);
            prop_assert_eq!(key(true), parsed.or(is_bare.then(|| text.to_owned())));
        }
    }
}
