//! The identity of a call: operation, scope, key and fingerprint.

use crate::error::{Error, ErrorKind};
use crate::identity::fingerprint::{Fingerprint, FingerprintBuilder, ToFingerprint};
use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, ToKey};
use crate::identity::operation::Operation;
use crate::identity::presented_token::PresentedToken;

/// The inputs that identify a call: operation, scope, key, fingerprint.
///
/// Not generic, so that the expansion of the attribute costs little to compile.
pub struct Inputs {
    pub(crate) operation: Operation,
    key: Key,
    asked: Option<FingerprintBuilder>,
}

enum Key {
    /// No key yet; without one the fingerprint becomes the key.
    Open(KeyBuilder),
    Given(Result<KeyDigest, KeyError>),
    /// A one-time token; `None` if the text is not that of a token.
    #[cfg(feature = "tokens")]
    Token(Option<Result<PresentedToken, KeyError>>),
    /// A misuse of the builder, with its message.
    Refused(&'static str),
}

// Without the digest of the key, against which a reader could verify guesses.
debug_fields!(Inputs { operation });

/// The digests of a call's inputs, before any digest key.
pub(crate) struct CallDigests {
    pub(crate) operation: Operation,
    pub(crate) key: KeyDigest,
    pub(crate) fingerprint: Fingerprint,
    /// The token that the engine has yet to verify.
    pub(crate) token: Option<PresentedToken>,
}

/// A value that can be the whole key of a call.
///
/// Any [`ToKey`] value, or a one-time token (`idem_runtime::token::token`, feature `tokens`).
///
/// Do not implement this trait; derive `Serialize`.
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
#[cfg_attr(
    feature = "tokens",
    diagnostic::on_unimplemented(
        note = "a one-time token is the whole key, `key = token(…)`: other values that identify the call go into its subject"
    )
)]
pub trait CallKey {
    #[doc(hidden)]
    fn __name(&self, inputs: &mut Inputs);
}

#[diagnostic::do_not_recommend]
impl<T: ToKey + ?Sized> CallKey for T {
    fn __name(&self, inputs: &mut Inputs) {
        inputs.plain(self);
    }
}

/// A key that `scope` can apply to: any but a one-time token.
#[diagnostic::on_unimplemented(
    message = "a one-time token takes no `scope`",
    label = "remove it: the subject of the token names its owner",
    note = "of several parts, such as tenant and user, make a tuple: `key = token(form_token, (tenant, user))`"
)]
pub trait KeyInScope: CallKey {}

#[diagnostic::do_not_recommend]
impl<T: ToKey + ?Sized> KeyInScope for T {}

/// A key that identifies its owner: a one-time token, by its subject.
#[diagnostic::on_unimplemented(
    message = "a client chooses what this key is made of, and it has no scope",
    label = "without a scope, another client that sends the same key gets the stored answer",
    note = "name the authenticated owner of the key, such as `scope = user.id`, or write `scope = public` if all \
            clients share one namespace; a one-time token (`idem_runtime::token::token`) needs none"
)]
pub trait KeyOfSubject: CallKey {}

const LATE: &str = "give the scope before the key";
const TWICE: &str = "give one key; of several parts make a tuple";
#[cfg(feature = "tokens")]
const SCOPED: &str = "a token takes no `scope`: its subject is that; of several parts, such as tenant and user, make a tuple";

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

    /// Continues an open key; a given key is `refused`.
    fn open(&mut self, refused: &'static str, then: impl FnOnce(KeyBuilder) -> Key) {
        self.key = match std::mem::replace(&mut self.key, Key::Refused(refused)) {
            Key::Open(builder) => then(builder),
            earlier @ Key::Refused(_) => earlier,
            #[cfg(feature = "tokens")]
            Key::Token(_) if refused == LATE => Key::Refused(SCOPED),
            _ => return,
        };
    }

    /// Sets the scope of the key; before the key.
    pub fn scope<K: ToKey + ?Sized>(&mut self, scope: &K) {
        self.open(LATE, |builder| Key::Open(builder.scope(scope)));
    }

    /// Shares one namespace among all callers; before the key.
    pub fn public(&mut self) {
        self.open(LATE, |builder| Key::Open(builder.public()));
    }

    /// Sets the key.
    pub fn key<K: CallKey + ?Sized>(&mut self, key: &K) {
        key.__name(self);
    }

    fn plain<K: ToKey + ?Sized>(&mut self, key: &K) {
        self.open(TWICE, |builder| Key::Given(builder.key(key)));
    }

    /// A token that the engine verifies later.
    #[cfg(feature = "tokens")]
    pub(crate) fn token<S: ToKey + ?Sized>(&mut self, text: &str, subject: &S) {
        self.open(TWICE, |builder| {
            if builder.is_unscoped() {
                Key::Token(PresentedToken::read(text, builder, subject))
            } else {
                Key::Refused(SCOPED)
            }
        });
    }

    /// Announces the arguments that take part in the fingerprint; as many calls of [`arg`](Self::arg) follow.
    pub fn fingerprint(&mut self, arguments: usize) {
        self.asked = Some(FingerprintBuilder::new(self.operation.as_str(), arguments));
    }

    /// Adds an announced argument.
    pub(crate) fn arg<T: ToFingerprint + ?Sized>(&mut self, name: &'static str, value: &T) {
        if let Some(asked) = &mut self.asked {
            asked.arg(name, value);
        }
    }

    pub(crate) fn request<T: ToFingerprint + ?Sized>(&mut self, request: &T) {
        self.asked = Some(FingerprintBuilder::value(self.operation.as_str(), request));
    }

    pub(crate) fn finish(self) -> Result<CallDigests, Error> {
        let Self {
            operation,
            key,
            asked,
        } = self;
        let invalid = || operation.error(ErrorKind::InvalidKey);
        let of_client = (asked.as_ref()).is_some_and(FingerprintBuilder::holds_client_key);
        let asked = match asked.map(FingerprintBuilder::finish).transpose() {
            Ok(asked) => asked,
            Err(error) => return Err(invalid().because(error)),
        };
        let (key, token) = match (key, &asked) {
            (Key::Given(key), _) => (key, None),
            #[cfg(feature = "tokens")]
            (Key::Token(Some(Ok(shown))), _) => (Ok(shown.digest()), Some(shown)),
            #[cfg(feature = "tokens")]
            (Key::Token(Some(Err(error))), _) => (Err(error), None),
            #[cfg(feature = "tokens")]
            (Key::Token(None), _) => return Err(Error::new(ErrorKind::TokenInvalid, operation)),
            // The fingerprint is the key.
            (Key::Open(builder), Some(_)) if of_client && builder.is_unscoped() => {
                (Err(KeyError::Unscoped), None)
            }
            (Key::Open(builder), Some(asked)) => (builder.digest(asked), None),
            (Key::Open(_), None) => {
                return Err(invalid().detail("give a key, a fingerprint, or both"));
            }
            (Key::Refused(why), _) => return Err(invalid().detail(why)),
        };
        match key {
            Ok(key) => Ok(CallDigests {
                operation,
                key,
                fingerprint: asked.map_or(Fingerprint::NONE, |asked| asked.fingerprint()),
                token,
            }),
            // A mistake of the program, which a retry cannot repair.
            Err(error @ KeyError::Unscoped) => {
                let refused = Error::new(ErrorKind::InvalidPolicy, operation);
                Err(refused.detail(error.to_string()))
            }
            Err(error) => Err(invalid().because(error)),
        }
    }
}
