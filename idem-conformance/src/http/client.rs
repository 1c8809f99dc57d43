//! A client that sends a request once, as it is: no redirect, no repeat, no connection of an earlier request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::response::ServerResponse;

/// The reason that there is no response.
type Unanswered = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request to the server of its URI.
pub(super) async fn send(
    request: Request<Bytes>,
    patience: Duration,
) -> Result<ServerResponse, String> {
    let exchange = async { collected(exchange(request).await?).await };
    within(patience, Box::pin(exchange)).await
}

/// Sends a request, and returns when the response has begun.
pub(super) async fn begin(
    request: Request<Bytes>,
    patience: Duration,
) -> Result<Response<Incoming>, String> {
    within(patience, Box::pin(exchange(request))).await
}

/// Reads the rest of a response.
pub(super) async fn rest(
    response: Response<Incoming>,
    patience: Duration,
) -> Result<ServerResponse, String> {
    within(patience, collected(response)).await
}

async fn within<T>(
    patience: Duration,
    exchange: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, String> {
    match timeout(patience, exchange).await {
        Ok(answer) => answer.map_err(|error| format!("no response: {error}")),
        Err(_) => Err(format!("no response within {patience:?}")),
    }
}

async fn collected(response: Response<Incoming>) -> Result<ServerResponse, Unanswered> {
    let (parts, body) = response.into_parts();
    Ok(ServerResponse {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await?.to_bytes(),
    })
}

async fn exchange(mut request: Request<Bytes>) -> Result<Response<Incoming>, Unanswered> {
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or("the address has no host")?;
    let secure = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err("the address begins with neither `http://` nor `https://`".into()),
    };
    let port = authority
        .port_u16()
        .unwrap_or(if secure { 443 } else { 80 });
    let host = HeaderValue::try_from(authority.as_str())?;
    request.headers_mut().insert(HOST, host);
    // The form of a request to a server, and not to a proxy.
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;
    let name = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((name, port)).await?;
    stream.set_nodelay(true)?;
    if secure {
        let name = ServerName::try_from(name.to_owned())?;
        let stream = TlsConnector::from(tls()?).connect(name, stream).await?;
        over(TokioIo::new(stream), request).await
    } else {
        over(TokioIo::new(stream), request).await
    }
}

async fn over<S>(stream: S, request: Request<Bytes>) -> Result<Response<Incoming>, Unanswered>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = handshake(stream).await?;
    // It ends with the response, which has its error.
    tokio::spawn(connection);
    Ok(sender.send_request(request.map(Full::new)).await?)
}

fn tls() -> Result<Arc<ClientConfig>, Unanswered> {
    let provider = CryptoProvider::get_default().map(Arc::clone);
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
