//! Issue of one-time tokens.

use crate::call::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, ToKey};
use crate::identity::operation::Operation;
use crate::record::Owner;

impl Engine {
    /// Issues a one-time token for this operation and subject.
    ///
    /// The subject identifies the user of the form: for example the user id, or the session id if no user is
    /// logged in. See [`TokenIssuer`](crate::token::TokenIssuer).
    ///
    /// The operation is the `op` of the attribute, letter by letter.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy) if the engine has no
    /// [issuer](crate::EngineBuilder::tokens), [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey) if the subject
    /// is empty, too long or not serializable.
    ///
    /// # Panics
    ///
    /// If the operating system provides no randomness.
    pub fn issue_token<S: ToKey + ?Sized>(
        &self,
        operation: &str,
        subject: &S,
    ) -> Result<String, Error> {
        let core = &self.core;
        let operation = Operation::new(operation.to_owned());
        let issuer = core.tokens.issuer(&operation)?;
        let nonce = *Owner::random().as_bytes();
        let builder = KeyBuilder::new(operation.as_str(), DEFAULT_MAX_KEY_BYTES);
        let digest = builder.token(subject, &nonce);
        let digest =
            digest.map_err(|error| Error::new(ErrorKind::InvalidKey, operation).because(error))?;
        Ok(issuer.issue(nonce, &digest, &core.prefix, core.clock.calendar()))
    }
}
