//! The stable name of an operation.

use std::borrow::Cow;
#[cfg(feature = "redis")]
use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::identity::key::KeyDigest;

/// The name of an operation, part of every key.
///
/// An explicit name (`op = "payments.pay"`) survives refactoring; the default of the attribute, the path of the
/// function, does not, and a renamed operation has new keys. Two functions of one name share keys and answers: give
/// each its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Operation(Cow<'static, str>);

impl Operation {
    /// The operation of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    /// The default name of a method's operation.
    pub(crate) fn of_method<S: ?Sized>(function: &str) -> Self {
        let name = format!("{}::{function}", std::any::type_name::<S>());
        Self::new(Cow::Owned(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.clone())
    }

    /// Appends the name in the form of [`RecordKey::name`].
    pub(crate) fn plain(&self, out: &mut String) {
        const MOST: usize = 48;
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'_' | b'-');
        if self.0.len() <= MOST && self.0.bytes().all(plain) {
            out.push_str(&self.0);
        } else {
            let plainly = |byte| if plain(byte) { char::from(byte) } else { '_' };
            out.extend(self.0.bytes().take(MOST).map(plainly));
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({})", self.0)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Operation> for Cow<'static, str> {
    fn from(operation: Operation) -> Self {
        operation.0
    }
}

/// The prefix of an application's keys. Every call holds one, and every record in memory, so its reference count
/// has a cache line of its own; see [`Lanes`](crate::env::striped::Lanes).
#[derive(Clone, Debug)]
pub(crate) struct Prefix(Arc<Apart>);

/// Padding against false sharing with the prefix's reference count.
#[derive(Debug)]
#[repr(align(128))]
struct Apart(Box<str>);

impl Prefix {
    pub(crate) fn new(text: &str) -> Self {
        Self(Arc::new(Apart(text.into())))
    }
}

impl Deref for Prefix {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.0
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Prefix {}

/// The key of a record in a store.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordKey {
    digest: KeyDigest,
    prefix: Prefix,
    operation: Operation,
}

impl RecordKey {
    /// The key of a call's record. Two keys are equal if all three parts are.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "what the key keeps of it may change"
    )]
    #[must_use]
    pub fn new(prefix: Arc<str>, operation: Operation, digest: KeyDigest) -> Self {
        Self::under(Prefix::new(&prefix), operation, digest)
    }

    pub(crate) fn under(prefix: Prefix, operation: Operation, digest: KeyDigest) -> Self {
        Self {
            digest,
            prefix,
            operation,
        }
    }

    /// The prefix that separates applications in a shared store.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The operation that the key belongs to.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        self.operation.error(kind)
    }

    /// The digest of operation, scope and key.
    #[must_use]
    pub fn digest(&self) -> &KeyDigest {
        &self.digest
    }

    /// The key as text, for stores that name records: `prefix:operation:digest`.
    ///
    /// It contains no user text. The operation is cut to 48 bytes, and each byte other than a letter, a digit or one of
    /// `.:_-` becomes `_`, so that the name needs no quoting and cannot contain a cluster's hash tag; the digest still
    /// distinguishes operations.
    #[must_use]
    pub fn name(&self) -> String {
        let operation = self.operation.as_str().len().min(48);
        let mut name = String::with_capacity(self.prefix.len() + operation + 45);
        self.append_name(&mut name);
        name
    }

    /// Calls `work` with the key as text, in a reused buffer.
    #[cfg(feature = "redis")]
    pub(crate) fn with_name<T>(&self, work: impl FnOnce(&str) -> T) -> T {
        thread_local! {
            static NAME: Cell<String> = const { Cell::new(String::new()) };
        }
        // A name within `work`, or at the end of the thread, is allocated: the text is taken meanwhile.
        let mut name = NAME.try_with(Cell::take).unwrap_or_default();
        name.clear();
        self.append_name(&mut name);
        let done = work(&name);
        let _ = NAME.try_with(|slot| slot.set(name));
        done
    }

    fn append_name(&self, name: &mut String) {
        name.push_str(&self.prefix);
        name.push(':');
        self.operation.plain(name);
        name.push(':');
        self.digest.text(name);
    }
}

impl Hash for RecordKey {
    /// Hashes the digest alone: it covers the operation, and few stores hold one digest under two prefixes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, operation) = (self.prefix(), &self.operation);
        write!(f, "{prefix}:{operation}:{:?}", self.digest)
    }
}
