//! What identifies a call.

use crate::error::{Error, ErrorKind};
use crate::fingerprint::{Fingerprint, FingerprintBuilder, ToFingerprint};
use crate::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, ToKey};
use crate::operation::Operation;

/// What identifies a call: operation, scope, key, fingerprint. Not generic, so that an expansion
/// costs little to compile.
#[derive(Debug)]
pub struct Inputs {
    pub(crate) operation: Operation,
    key: Key,
    asked: Option<FingerprintBuilder>,
}

#[derive(Debug)]
enum Key {
    /// No key yet; without one the fingerprint takes its place.
    Open(KeyBuilder),
    Given(Result<KeyDigest, KeyError>),
    /// Not what was meant, and why.
    Refused(&'static str),
}

const LATE: Key = Key::Refused("give the scope before the key");
const TWICE: Key = Key::Refused("give one key; of several parts make a tuple");

impl Inputs {
    /// The inputs of a call of this operation.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            key: Key::Open(KeyBuilder::new(operation.as_str(), DEFAULT_MAX_KEY_BYTES)),
            operation,
            asked: None,
        }
    }

    /// Whose key it is; before the key.
    pub fn scope<K: ToKey + ?Sized>(&mut self, scope: &K) {
        self.key = match std::mem::replace(&mut self.key, LATE) {
            Key::Open(builder) => Key::Open(builder.scope(scope)),
            Key::Given(_) => LATE,
            refused @ Key::Refused(_) => refused,
        };
    }

    /// Which call it is.
    pub fn key<K: ToKey + ?Sized>(&mut self, key: &K) {
        self.key = match std::mem::replace(&mut self.key, TWICE) {
            Key::Open(builder) => Key::Given(builder.key(key)),
            Key::Given(_) => TWICE,
            refused @ Key::Refused(_) => refused,
        };
    }

    /// Announces the arguments that take part in the fingerprint; as many [`arg`]s follow.
    pub fn fingerprint(&mut self, arguments: usize) {
        self.asked = Some(FingerprintBuilder::new(self.operation.as_str(), arguments));
    }

    pub(crate) fn request<T: ToFingerprint + ?Sized>(&mut self, request: &T) {
        self.asked = Some(FingerprintBuilder::value(self.operation.as_str(), request));
    }

    pub(crate) fn finish(self) -> Result<(Operation, KeyDigest, Fingerprint), Error> {
        let Self {
            operation,
            key,
            asked,
        } = self;
        let invalid = || Error::new(ErrorKind::InvalidKey, operation.clone());
        let asked = match asked.map(FingerprintBuilder::finish).transpose() {
            Ok(asked) => asked,
            Err(error) => return Err(invalid().because(error)),
        };
        let key = match (key, &asked) {
            (Key::Given(key), _) => key,
            (Key::Open(builder), Some(asked)) => builder.digest(asked),
            (Key::Open(_), None) => {
                return Err(invalid().detail("give a key, a fingerprint, or both"));
            }
            (Key::Refused(why), _) => return Err(invalid().detail(why)),
        };
        match key {
            Ok(key) => {
                let fingerprint = asked.map_or(Fingerprint::NONE, |asked| asked.fingerprint());
                Ok((operation, key, fingerprint))
            }
            Err(error) => Err(invalid().because(error)),
        }
    }
}

/// One argument of the fingerprint. A function, so that an expansion can name the written type and
/// have it blamed.
pub fn arg<T: ToFingerprint + ?Sized>(inputs: &mut Inputs, name: &'static str, value: &T) {
    if let Some(asked) = &mut inputs.asked {
        asked.arg(name, value);
    }
}
