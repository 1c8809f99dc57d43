//! Keys: the digest under which a call's record is stored.

mod format;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

pub use self::format::FormatKey;
use crate::identity::canonical::{CanonicalError, Encoder, FORMAT, Major};
use crate::identity::fingerprint::Digest;

const DOMAIN: &str = "idempotency key";
const DOMAIN_BY_FINGERPRINT: &str = "idempotency key by fingerprint";
#[cfg(feature = "tokens")]
const DOMAIN_BY_TOKEN: &str = "idempotency key by token";

/// The default limit of key and scope, in encoded bytes.
pub const DEFAULT_MAX_KEY_BYTES: usize = 1024;

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes bytes as base64url without padding. `text` has a character for each 6 bits.
#[inline]
pub(crate) fn encode(bytes: &[u8], text: &mut [u8]) {
    for (group, characters) in bytes.chunks(3).zip(text.chunks_mut(4)) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for (character, shift) in characters.iter_mut().zip([18, 12, 6, 0]) {
            *character = BASE64URL[(bits >> shift & 63) as usize];
        }
    }
}

/// Reads bytes from base64url without padding. Bits that belong to no byte are ignored.
pub(crate) fn decode(text: &[u8], bytes: &mut [u8]) -> Option<()> {
    for (characters, group) in text.chunks(4).zip(bytes.chunks_mut(3)) {
        let mut bits = 0;
        for (character, shift) in characters.iter().zip([18, 12, 6, 0]) {
            let value = BASE64URL.iter().position(|known| known == character)?;
            bits |= u32::try_from(value).ok()? << shift;
        }
        group.copy_from_slice(&bits.to_be_bytes()[1..=group.len()]);
    }
    Some(())
}

/// SHA-256 of operation, scope and key: a call's identity in the store.
///
/// A reader can verify a guess of the key. An engine with a [digest key](crate::EngineBuilder::digest_key) names its
/// records by an HMAC of it; events and entries show that HMAC.
///
/// # Examples
///
/// ```
/// use idem_runtime::{Engine, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// let call = engine.operation("payments.pay").scope("tenant-7").key(&("order", 4711));
/// assert_eq!(call.key_digest()?.to_string().len(), 43);
/// # Ok::<(), idem_runtime::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The length of the text in bytes.
    pub(crate) const TEXT_BYTES: usize = 43;

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest that was stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Appends the digest as 43 characters of base64url without padding: `A–Z a–z 0–9 - _`.
    ///
    /// Allocates only if `out` lacks the capacity.
    pub(crate) fn text(&self, out: &mut String) {
        let text = self.text_bytes();
        // All of them are characters of the alphabet.
        out.push_str(std::str::from_utf8(&text).unwrap_or_default());
    }

    /// The characters of [`text`](Self::text), as bytes.
    #[must_use]
    pub(crate) fn text_bytes(&self) -> [u8; Self::TEXT_BYTES] {
        let mut text = [0; Self::TEXT_BYTES];
        encode(&self.0, &mut text);
        text
    }

    /// The first half, where that distinguishes enough.
    pub(crate) fn half(&self) -> [u8; 16] {
        *self.0.first_chunk().expect("a digest has 32 bytes")
    }
}

/// Writes all 43 characters of the text, as [`Engine::entry`](crate::Engine::entry) takes it.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(Self::TEXT_BYTES);
        self.text(&mut text);
        f.write_str(&text)
    }
}

/// Error of text that is not a digest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyDigestError;

display_text!(ParseKeyDigestError {
    Self => "the text of a digest has 43 characters of `A–Z a–z 0–9 - _`, as an event shows it";
});

impl std::error::Error for ParseKeyDigestError {}

/// Parses the text of a digest.
impl FromStr for KeyDigest {
    type Err = ParseKeyDigestError;

    fn from_str(text: &str) -> Result<Self, ParseKeyDigestError> {
        let mut bytes = [0; 32];
        if text.len() != Self::TEXT_BYTES {
            return Err(ParseKeyDigestError);
        }
        decode(text.as_bytes(), &mut bytes).ok_or(ParseKeyDigestError)?;
        let digest = Self(bytes);
        // The last character holds two bits that belong to no byte: only one text is valid for a digest.
        if digest.text_bytes() == text.as_bytes() {
            Ok(digest)
        } else {
            Err(ParseKeyDigestError)
        }
    }
}

/// Writes the first eight characters of the text.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(")?;
        for byte in &self.text_bytes()[..8] {
            write!(f, "{}", char::from(*byte))?;
        }
        f.write_str("…)")
    }
}

/// A value that can be a key or a scope: any [`serde::Serialize`] type.
///
/// Build keys from tuples, `(tenant, id)`, and not from text: `format!("{tenant}:{id}")` may be the same for two
/// different calls, [`FormatKey`] is not. Do not implement this trait; derive `Serialize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "this value identifies the call",
    note = "every part of a key implements `serde::Serialize`: derive it, or pick a field that identifies the call"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "an axum extractor is written as a pattern, `Path(number): Path<u32>`, and the key is `number`"
    )
)]
pub trait ToKey {
    #[doc(hidden)]
    fn __key<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> ToKey for T {
    #[inline]
    fn __key<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

/// Builds the [`KeyDigest`] of a call: first the optional scope, then the key.
pub struct KeyBuilder {
    encoder: Box<Encoder>,
    /// The length of the bytes before the operation; they differ in fingerprint mode.
    domain_bytes: usize,
    max_bytes: usize,
    scope: Result<Scope, KeyError>,
}

/// The scope of a key, as far as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    None,
    /// All callers share one namespace, explicitly.
    Public,
    Given,
}

impl KeyBuilder {
    /// Starts the key of a call to `op`. Key and scope may take `max_bytes` bytes of canonical encoding each.
    #[must_use]
    pub fn new(op: &str, max_bytes: usize) -> Self {
        let mut encoder = Encoder::take();
        // Held until `key` or `digest` settles the domain.
        encoder.hold();
        write_domain(&mut encoder, DOMAIN);
        let domain_bytes = encoder.held_bytes().len();
        encoder.name(op);
        Self {
            encoder,
            domain_bytes,
            max_bytes,
            scope: Ok(Scope::None),
        }
    }

    /// Sets the owner of the key. Answers are not shared between scopes.
    ///
    /// A second scope replaces nothing: it is a mistake of the caller, detected in debug builds only.
    #[must_use]
    pub fn scope<S>(mut self, scope: &S) -> Self
    where
        S: ToKey + ?Sized,
    {
        debug_assert!(self.scope != Ok(Scope::Given), "a call has one scope");
        self.encoder.head(Major::Array, 1);
        self.scope = self.part(KeyPart::Scope, scope).map(|()| Scope::Given);
        self
    }

    /// Shares one namespace among all callers.
    ///
    /// A key that the client chose (`http::IdempotencyKey`) needs this or a [`scope`](Self::scope). It makes no
    /// difference to the digest.
    #[must_use]
    pub fn public(mut self) -> Self {
        if self.scope == Ok(Scope::None) {
            self.scope = Ok(Scope::Public);
        }
        self
    }

    /// The digest of the call that `key` names.
    ///
    /// # Errors
    ///
    /// [`KeyError`], if the key or the scope is empty, too long or has no canonical encoding, or if the key holds an
    /// `http::IdempotencyKey` and there is neither a [`scope`](Self::scope) nor [`public`](Self::public).
    pub fn key<K>(mut self, key: &K) -> Result<KeyDigest, KeyError>
    where
        K: ToKey + ?Sized,
    {
        self.end_scope()?;
        self.encoder.release();
        self.part(KeyPart::Key, key)?;
        Ok(KeyDigest(self.encoder.finish()))
    }

    /// The digest of a call that its request identifies: fingerprint mode.
    ///
    /// # Errors
    ///
    /// [`KeyError`], if the scope is empty, too long or has no canonical encoding.
    pub fn digest(mut self, asked: &Digest) -> Result<KeyDigest, KeyError> {
        self.end_scope()?;
        Ok(self.named(DOMAIN_BY_FINGERPRINT, asked.as_bytes()))
    }

    /// The digest of a one-time token's call, by its random bytes: the subject is its scope.
    #[cfg(feature = "tokens")]
    pub(crate) fn token<S>(mut self, subject: &S, nonce: &[u8; 16]) -> Result<KeyDigest, KeyError>
    where
        S: ToKey + ?Sized,
    {
        self.encoder.head(Major::Array, 1);
        self.part(KeyPart::Subject, subject)?;
        Ok(self.named(DOMAIN_BY_TOKEN, nonce))
    }

    /// Whether neither a scope nor `public` was given.
    pub(crate) fn is_unscoped(&self) -> bool {
        self.scope == Ok(Scope::None)
    }

    /// The digest in another domain, with bytes in place of a key.
    fn named(mut self, domain: &str, name: &[u8]) -> KeyDigest {
        let rest = self.encoder.held_bytes().split_off(self.domain_bytes);
        self.encoder.held_bytes().clear();
        write_domain(&mut self.encoder, domain);
        self.encoder.held_bytes().extend_from_slice(&rest);
        self.encoder.head(Major::Bytes, name.len() as u64);
        self.encoder.held_bytes().extend_from_slice(name);
        KeyDigest(self.encoder.finish())
    }

    fn end_scope(&mut self) -> Result<(), KeyError> {
        if self.scope.clone()? != Scope::Given {
            self.encoder.head(Major::Array, 0);
        }
        Ok(())
    }

    fn part<T>(&mut self, part: KeyPart, value: &T) -> Result<(), KeyError>
    where
        T: ToKey + ?Sized,
    {
        let is_unscoped = part == KeyPart::Key && self.is_unscoped();
        let encoder = &mut *self.encoder;
        encoder.limit(self.max_bytes);
        let result = value.__key(&mut *encoder);
        if let Err(source) = encoder.note(result).and_then(|()| encoder.room(0)) {
            return Err(match source.bytes_at_limit() {
                Some(bytes) => KeyError::TooLong {
                    part,
                    bytes,
                    max_bytes: self.max_bytes,
                },
                None => KeyError::Unencodable { part, source },
            });
        }
        if !encoder.filled() {
            return Err(KeyError::Empty { part });
        }
        if is_unscoped && encoder.holds_client_key() {
            return Err(KeyError::Unscoped);
        }
        encoder.limit(usize::MAX);
        Ok(())
    }
}

fn write_domain(encoder: &mut Encoder, domain: &str) {
    encoder.head(Major::Array, 5);
    encoder.name(domain);
    encoder.head(Major::Unsigned, FORMAT);
}

debug_fields!(KeyBuilder {});

/// The part of a key that an error refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPart {
    /// The key itself.
    Key,
    /// The scope.
    Scope,
    /// The subject of a one-time token.
    Subject,
}

display_text!(KeyPart {
    Self::Key => "key";
    Self::Scope => "scope";
    Self::Subject => "subject of the token";
});

/// Error of a value that cannot be a key or scope.
///
/// Neither this text nor that of its source contains the value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing in it distinguishes one call from another: every text in it is empty, every sequence has no elements and
    /// every option is `None`. All such calls would get one answer.
    Empty {
        /// Key or scope.
        part: KeyPart,
    },
    /// It is longer than the limit.
    TooLong {
        /// Key or scope.
        part: KeyPart,
        /// The length in encoded bytes, up to the stop of the encoding: at least this.
        bytes: usize,
        /// The limit in bytes of canonical encoding.
        max_bytes: usize,
    },
    /// It has no canonical encoding; the source says why.
    Unencodable {
        /// Key or scope.
        part: KeyPart,
        /// The reason that it has no canonical encoding.
        source: CanonicalError,
    },
    /// It holds a key that the client chose, and no scope: a client that sends the key of another one would get its
    /// answer.
    Unscoped,
}

display_text!(KeyError {
    Self::Empty { part: KeyPart::Key } => "the key is empty: all calls without one would get the answer of the first";
    Self::Empty { part: KeyPart::Scope } => "the scope is empty: all callers without one would see each other's answers";
    Self::Empty { part: KeyPart::Subject } =>
        "the subject of the token is empty: all callers without a subject could use each other's tokens";
    Self::TooLong { part, bytes, max_bytes } =>
        "the {part} takes at least {bytes} bytes, and {max_bytes} are allowed: use what identifies the call, not what it \
         carries";
    Self::Unencodable { part, .. } => "the {part} cannot be encoded";
    Self::Unscoped =>
        "a client chooses its key: without a scope, a client that sends the key of another one gets its answer; give the \
         scope that was authenticated, or say that all clients share one namespace (`scope = public`, `.public()`)";
});

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unencodable { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
