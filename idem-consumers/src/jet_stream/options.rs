//! The URL and the login, as options of a connection.

use std::time::Duration;

use async_nats::{Auth, AuthError, ConnectOptions, ServerAddr};
use idem_runtime::credentials::CredentialsProvider;

/// The time that a request may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two pings. With the third that has no reply, the client drops the connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Options whose connections log in by this provider.
fn options_by(provider: &CredentialsProvider) -> ConnectOptions {
    let provider = provider.clone();
    ConnectOptions::with_auth_callback(move |_| {
        let provider = provider.clone();
        // A task, because the client needs a future that is `Sync`.
        let called = tokio::spawn(async move { provider.credentials(PATIENCE).await });
        async move {
            let credentials = called.await.map_err(AuthError::new)?;
            let (user, password) = credentials.map_err(AuthError::new)?.into_parts();
            let mut auth = Auth::new();
            match user {
                Some(user) => (auth.username, auth.password) = (Some(user), Some(password)),
                None => auth.token = Some(password),
            }
            Ok(auth)
        }
    })
}

/// The login as options, and the servers without it. The client writes their URLs to its log.
///
/// A provider takes the place of the login of the URL.
pub(super) fn options(
    urls: &str,
    provider: Option<&CredentialsProvider>,
) -> Option<(ConnectOptions, Vec<ServerAddr>)> {
    let options = provider.map_or_else(ConnectOptions::new, options_by);
    let mut options = options
        .request_timeout(Some(PATIENCE))
        .ping_interval(PING_INTERVAL);
    let mut servers = Vec::new();
    for url in urls.split(',') {
        let server: ServerAddr = url.trim().parse().ok()?;
        if !matches!(server.scheme(), "nats" | "tls") {
            return None;
        }
        options = match (server.username(), server.password()) {
            _ if provider.is_some() => options,
            (Some(user), Some(password)) => {
                options.user_and_password(decoded(user)?, decoded(password)?)
            }
            (Some(token), None) => options.token(decoded(token)?),
            (None, _) => options,
        };
        let mut url = server.into_inner();
        url.set_password(None).ok()?;
        url.set_username("").ok()?;
        servers.push(ServerAddr::from_url(url).ok()?);
    }
    Some((options, servers))
}

/// The text without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        bytes.push(match first {
            b'%' => {
                let (digits, others) = rest.split_at_checked(2)?;
                rest = others;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}
