//! One-time tokens: the server names a request before it is sent.

mod issuer;

pub use self::issuer::TokenIssuer;
pub(crate) use self::issuer::Tokens;
use crate::identity::call_id::{CallKey, Inputs, KeyOfSubject};
use crate::identity::key::ToKey;

/// A one-time token as the key of a call: what [`token`] returns.
#[derive(Clone, Copy)]
#[must_use = "a token is the key of a call"]
pub struct Token<'t, S> {
    text: &'t str,
    subject: S,
    /// Set at construction, for one compiler error at the subject.
    name: fn(&Self, &mut Inputs),
}

/// The key of a call that a [`TokenIssuer`] has issued.
///
/// `text` comes with the request. `subject` is the subject that the token must have been issued for, as this request
/// authenticates it (from the session, never from the form).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use idem_runtime::{
///     Engine, Error, ErrorKind, idempotent, store::memory::MemoryStore, token::{TokenIssuer, token},
/// };
///
/// #[idempotent(op = "orders.submit", key = token(form_token, user), on_error = release)]
/// async fn submit(form_token: &str, user: u64, item: &str) -> Result<String, Error> {
///     Ok(format!("{item} for {user}"))
/// }
///
/// let issuer = TokenIssuer::new([7; 32]); // from your secret store
/// let engine = Engine::builder(MemoryStore::new()).tokens(issuer).build()?;
/// // With the page that has the form:
/// let hidden = engine.issue_token("orders.submit", &42)?;
/// // With the request, and once more after a double click:
/// let order = engine.scope(submit(&hidden, 42, "tea")).await?;
/// assert_eq!(engine.scope(submit(&hidden, 42, "tea")).await?, order);
/// // Another user presents it:
/// let error = engine.scope(submit(&hidden, 43, "tea")).await.unwrap_err();
/// assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// A token is the whole key, so it cannot be part of a tuple, and it takes no `scope`: its subject is the scope. A
/// subject of several parts, tenant and user, is a tuple.
pub const fn token<S: ToKey>(text: &str, subject: S) -> Token<'_, S> {
    Token {
        text,
        subject,
        name: |token, inputs| inputs.token(token.text, &token.subject),
    }
}

#[diagnostic::do_not_recommend]
impl<S> CallKey for Token<'_, S> {
    fn __name(&self, inputs: &mut Inputs) {
        (self.name)(self, inputs);
    }
}

#[diagnostic::do_not_recommend]
#[doc(hidden)]
impl<S> KeyOfSubject for Token<'_, S> {}

// Leaves out both the text and the subject.
debug_fields!([S] Token<'_, S> {});

#[cfg(test)]
mod tests;
