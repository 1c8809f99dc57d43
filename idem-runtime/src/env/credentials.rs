//! Credentials of connections, and the provider that is called for them.

use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::env::catch_unwind::unwind;

/// The password of a connection, with or without a user name.
///
/// `Debug` shows neither.
///
/// ```
/// use idem_runtime::credentials::Credentials;
///
/// let credentials = Credentials::new("secret").user("payments");
/// assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
/// ```
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// A password, for the user of the URL.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    /// The name of the user, in place of the URL's.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The name of the user, if there is one, and the password.
    #[must_use]
    pub fn into_parts(self) -> (Option<String>, String) {
        (self.user, self.password)
    }
}

debug_fields!(Credentials {});

type Provided = Result<Credentials, Box<dyn Error + Send + Sync>>;
type Providing = Pin<Box<dyn Future<Output = Provided> + Send>>;

/// An async function that returns the credentials of the next connection.
///
/// Every such function is one: `Fn() -> impl Future<Output = Result<Credentials, E>>`. Clones share it. See
/// [the module](crate::credentials).
#[derive(Clone)]
pub struct CredentialsProvider(Arc<dyn Fn() -> Providing + Send + Sync>);

impl<F, Fut, E> From<F> for CredentialsProvider
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn from(provider: F) -> Self {
        Self(Arc::new(move || {
            let called = provider();
            Box::pin(async move { called.await.map_err(Into::into) })
        }))
    }
}

impl CredentialsProvider {
    /// Connects with the credentials of a call of the provider.
    ///
    /// After a refusal once more, with those of another call. The same ones are not sent again, because a server may lock
    /// a user after some failures.
    ///
    /// For a connection that is none of this crate's. The outer error is that of the provider, which may take half of
    /// `connect_timeout` for each call.
    ///
    /// # Errors
    ///
    /// The provider fails, panics, or takes too long. Within it: the error of the connection.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, with the connection in progress.
    #[doc(hidden)] // for the connections of idem-consumers
    pub async fn log_in<T, E, F>(
        &self,
        connect_timeout: Duration,
        connect: impl Fn(Credentials) -> F,
        is_refused: impl Fn(&E) -> bool,
    ) -> Result<Result<T, E>, ProviderError>
    where
        F: Future<Output = Result<T, E>>,
    {
        let first = self.credentials(connect_timeout).await?;
        match connect(first.clone()).await {
            Err(error) if is_refused(&error) => {
                let next = self.credentials(connect_timeout).await?;
                if (&next.user, &next.password) == (&first.user, &first.password) {
                    return Ok(Err(error));
                }
                Ok(connect(next).await)
            }
            connected => Ok(connected),
        }
    }

    /// The credentials of a call of the provider.
    ///
    /// The provider may take half of `connect_timeout`. For a client library that asks for them; otherwise
    /// [`log_in`](Self::log_in).
    ///
    /// # Errors
    ///
    /// The provider fails, panics, or takes too long.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    #[doc(hidden)] // for the connections of idem-consumers
    pub async fn credentials(
        &self,
        connect_timeout: Duration,
    ) -> Result<Credentials, ProviderError> {
        let patience = connect_timeout / 2;
        // An uncaught panic would end the renewal of a lease, or lose an answer on its way to the store.
        let provided = pin!(async { (self.0)().await });
        match timeout(patience, unwind(provided)).await {
            Ok(Ok(provided)) => provided.map_err(|error| ProviderError {
                message: PROVIDER_FAILED.to_owned(),
                source: Some(error),
            }),
            Ok(Err(_)) => Err(ProviderError {
                message: "the provider of credentials panicked".to_owned(),
                source: None,
            }),
            Err(_) => Err(ProviderError {
                message: format!(
                    "the provider of credentials returned none within {patience:?}; cache them in the provider, or raise the \
                     time limit of a connection"
                ),
                source: None,
            }),
        }
    }
}

debug_fields!(CredentialsProvider {});

/// The error of a provider that returned no credentials.
///
/// Its text names what failed, and is without a secret; its source is the provider's own error.
#[doc(hidden)]
#[derive(Debug)]
pub struct ProviderError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ProviderError {
    /// The provider's own error.
    #[cfg(feature = "_server")]
    pub(crate) fn into_source(self) -> Option<Box<dyn Error + Send + Sync>> {
        self.source
    }
}

const PROVIDER_FAILED: &str =
    "the provider of credentials failed; see its own error, and check its source of secrets";

#[doc(hidden)]
impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[doc(hidden)]
impl Error for ProviderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use super::*;

    /// The passwords of this provider that a refusing server received.
    async fn refused(passwords: [&'static str; 2]) -> Vec<String> {
        let (rest, sent) = (Mutex::new(passwords.into_iter()), Mutex::new(Vec::new()));
        let provider = CredentialsProvider::from(move || {
            let next = rest.lock().unwrap().next();
            async move { Ok::<_, Infallible>(Credentials::new(next.unwrap())) }
        });
        let connect = async |credentials: Credentials| {
            sent.lock().unwrap().push(credentials.password);
            Err::<(), _>("refused")
        };
        let connected = provider.log_in(Duration::from_secs(1), connect, |_| true);
        assert_eq!(connected.await.unwrap(), Err("refused"));
        sent.into_inner().unwrap()
    }

    #[tokio::test]
    async fn refused_credentials_are_not_sent_again_unless_they_have_changed() {
        assert_eq!(refused(["old", "old"]).await, ["old"]);
        assert_eq!(refused(["old", "new"]).await, ["old", "new"]);
    }
}
