//! Fingerprint of a request: distinguishes a repeated call from a different one under the same key.

use std::any::type_name;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::identity::canonical::{CanonicalError, Encoder, FORMAT, Major};

const DOMAIN: &str = "idempotency fingerprint";

/// The version of the layout of `value`; part of the hashed data.
const SCHEMA: u64 = 1;

/// Identifies the request of a call: 16 bytes, comparable across processes, platforms and releases.
///
/// Equal requests have equal fingerprints: the order of map entries and struct fields, the width of
/// integers and added optional fields that are `None` make no difference. Everything else does.
///
/// It is the beginning of a SHA-256 without a secret: a reader can confirm a guess, so treat the fingerprint of a card
/// number like the card number. An engine with a [digest key](crate::EngineBuilder::digest_key) stores an HMAC of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The comparison is off: it [matches](Self::matches) every fingerprint. Sixteen zero bytes.
    pub const NONE: Self = Self([0; 16]);

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A fingerprint that was stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Whether this is [`NONE`](Self::NONE).
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether both are of one request, or one is [`NONE`](Self::NONE).
    ///
    /// Not transitive, which is why it is not `==`.
    #[must_use]
    pub fn matches(self, other: Self) -> bool {
        self == other || self.is_none() || other.is_none()
    }
}

/// The first four bytes in hex, to compare requests in a log.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("Fingerprint(none)");
        }
        write_redacted(f, "Fingerprint", &self.0)
    }
}

/// The whole SHA-256 of a request. In fingerprint mode it replaces the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 bytes.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut first = [0; 16];
        first.copy_from_slice(&self.0[..16]);
        Fingerprint(first)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_redacted(f, "Digest", &self.0)
    }
}

/// Writes the first four bytes in hex: enough to tell values apart in a log.
pub(crate) fn write_redacted(f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8]) -> fmt::Result {
    write!(f, "{name}(")?;
    for byte in &bytes[..4] {
        write!(f, "{byte:02x}")?;
    }
    f.write_str("…)")
}

/// A value that can take part in a [`Fingerprint`]: any [`serde::Serialize`] type.
///
/// Do not implement this trait; derive `Serialize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be fingerprinted",
    label = "this argument takes part in the fingerprint",
    note = "derive `serde::Serialize` for the type and for what it holds, or mark the argument `#[idem(skip)]`; an array of generic length, or of more than 32, has no `Serialize`: take a `Vec` or a slice",
    note = "an `Arc<T>` or `Rc<T>` has one with serde's feature `rc`; without it take `&T`"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "an axum extractor is written as a pattern, `Json(order): Json<Order>`, so that its value is compared; what is no part of the request is skipped: `#[idem(skip)] State(shop): State<Shop>`"
    )
)]
pub trait ToFingerprint {
    #[doc(hidden)]
    fn __fingerprint<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> ToFingerprint for T {
    #[inline]
    fn __fingerprint<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

/// Builds the fingerprint of a call, argument by argument.
pub struct FingerprintBuilder {
    encoder: Box<Encoder>,
    /// The last argument's name, and the number of missing arguments.
    last: &'static str,
    missing: usize,
    /// The first argument that could not be encoded. Boxed because builders are moved and errors are rare.
    invalid: Option<Box<FingerprintError>>,
}

impl FingerprintBuilder {
    /// Starts the fingerprint of a call to `op`.
    #[must_use]
    pub fn new(op: &str, arguments: usize) -> Self {
        let mut builder = Self::begin(op);
        builder.missing = arguments;
        builder.encoder.head(Major::Map, arguments as u64);
        builder
    }

    /// The fingerprint of a call whose request is one value.
    #[must_use]
    pub fn value<T>(op: &str, value: &T) -> Self
    where
        T: ToFingerprint + ?Sized,
    {
        let mut builder = Self::begin(op);
        builder.append(None, value);
        builder
    }

    fn begin(op: &str) -> Self {
        let mut encoder = Encoder::take();
        encoder.head(Major::Array, 5);
        encoder.name(DOMAIN);
        encoder.head(Major::Unsigned, FORMAT);
        encoder.name(op);
        encoder.head(Major::Unsigned, SCHEMA);
        Self {
            encoder,
            last: "",
            missing: 0,
            invalid: None,
        }
    }

    /// Appends an argument. A `None` counts: it is written as null.
    ///
    /// The names come in canonical order, the shorter first and those of one length by their bytes; each once, and as
    /// many as were announced. Anything else is a mistake of the caller, detected in debug builds only.
    #[inline]
    pub fn arg<T>(&mut self, name: &'static str, value: &T)
    where
        T: ToFingerprint + ?Sized,
    {
        self.begin_arg(name);
        self.append(Some(name), value);
    }

    // Not generic, because generic code is compiled with each type of an argument.
    fn begin_arg(&mut self, name: &'static str) {
        debug_assert!(self.missing > 0, "more arguments than were announced");
        debug_assert!(
            self.last.is_empty() || (self.last.len(), self.last) < (name.len(), name),
            "argument `{name}` comes before `{}` in canonical order",
            self.last
        );
        self.last = name;
        self.missing = self.missing.saturating_sub(1);
        self.encoder.flow();
        self.encoder.name(name);
    }

    #[inline]
    fn append<T>(&mut self, argument: Option<&'static str>, value: &T)
    where
        T: ToFingerprint + ?Sized,
    {
        if self.invalid.is_none() {
            let result = value.__fingerprint(&mut *self.encoder);
            self.note(argument, type_name::<T>, result);
        }
    }

    fn note(
        &mut self,
        argument: Option<&'static str>,
        type_name: fn() -> &'static str,
        result: Result<(), CanonicalError>,
    ) {
        if let Err(source) = self.encoder.note(result) {
            self.invalid = Some(Box::new(FingerprintError {
                argument,
                type_name: type_name(),
                source,
            }));
        }
    }

    /// Whether the encoded values include a key that the client chose.
    pub(crate) fn holds_client_key(&self) -> bool {
        self.encoder.holds_client_key()
    }

    /// The digest of all arguments.
    ///
    /// # Errors
    ///
    /// [`FingerprintError`], naming the first argument that has no canonical encoding.
    pub fn finish(self) -> Result<Digest, FingerprintError> {
        debug_assert_eq!(self.missing, 0, "fewer arguments than were announced");
        let digest = self.encoder.finish();
        match self.invalid {
            Some(invalid) => Err(*invalid),
            None => Ok(Digest(digest)),
        }
    }
}

debug_fields!(FingerprintBuilder {});

/// A value in the fingerprint has no canonical encoding.
///
/// Neither this text nor that of its source contains the value.
#[derive(Debug)]
pub struct FingerprintError {
    argument: Option<&'static str>,
    type_name: &'static str,
    source: CanonicalError,
}

impl FingerprintError {
    /// The name of the argument, where the fingerprint is made of arguments.
    #[must_use]
    pub const fn argument(&self) -> Option<&'static str> {
        self.argument
    }
}

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.argument {
            Some(name) => write!(f, "argument `{name}` of type `{}`", self.type_name)?,
            None => write!(f, "the request of type `{}`", self.type_name)?,
        }
        f.write_str(" cannot be fingerprinted")
    }
}

impl std::error::Error for FingerprintError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests;
