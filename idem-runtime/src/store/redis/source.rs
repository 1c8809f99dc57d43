//! Sources of a store: URLs and clients.

use std::fmt;
#[cfg(feature = "redis-tls")]
use std::sync::{Arc, OnceLock};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};

use super::endpoint::Endpoint;
use super::sentinel::Sentinels;
#[cfg(feature = "redis-tls")]
use crate::env::certificates::Certificates;
use crate::env::credentials::CredentialsProvider;
use crate::store::{StoreError, StoreErrorKind, transport};

/// The address of a Redis: a URL, or a client of the application.
///
/// | URL | |
/// | --- | --- |
/// | `redis://[user:password@]host[:port][/db]` | a server, or any node of a cluster |
/// | `rediss://…` | the same over TLS; feature `redis-tls` |
/// | `unix:///path[?db=…&user=…&pass=…]` | a server's socket file |
/// | `redis+sentinel://[user:password@]host[:port][,host…]/service[/db]` | the server that these sentinels name as the primary of `service`; port 26379; user and password are the server's |
/// | `redis+cluster://[user:password@]host[:port][,host…]` | a cluster, of which these nodes are known |
/// | `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS |
///
/// A URL of the first two kinds may end with `?protocol=resp3`; the default is RESP2, which
/// every server and proxy knows.
///
/// TLS is that of rustls, with the process's provider of cryptography if the application has chosen one, and ring if not.
///
/// A `redis::Client` gives its address and settings. The store makes its own connections to it, with its own
/// time limits. Certificates of a client cannot be read from it: a client with certificates is refused unless
/// `RedisStoreBuilder::root_certificate` or `client_certificate` is set. Set all that it has: none of its own count.
///
/// ```
/// use idem_runtime::store::redis::RedisSource;
///
/// let url = RedisSource::from("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/payments");
/// let client = RedisSource::from(redis::Client::open("redis://localhost").unwrap());
/// ```
#[derive(Clone)]
pub struct RedisSource(SourceKind);

#[derive(Clone)]
enum SourceKind {
    Url(String),
    Client(Box<Client>),
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL may hold a password.
        f.write_str(match self.0 {
            SourceKind::Url(_) => "RedisSource(a URL)",
            SourceKind::Client(_) => "RedisSource(a Client)",
        })
    }
}

impl From<&str> for RedisSource {
    fn from(url: &str) -> Self {
        Self(SourceKind::Url(url.to_owned()))
    }
}

impl From<String> for RedisSource {
    fn from(url: String) -> Self {
        Self(SourceKind::Url(url))
    }
}

impl From<&String> for RedisSource {
    fn from(url: &String) -> Self {
        Self(SourceKind::Url(url.clone()))
    }
}

impl From<Client> for RedisSource {
    fn from(client: Client) -> Self {
        Self(SourceKind::Client(Box::new(client)))
    }
}

/// A resolved source: one server, or what leads to it.
pub(super) enum Deployment {
    /// A server, or a node of a cluster.
    Server(Box<Endpoint>),
    Sentinels(Sentinels),
    /// Some nodes of a cluster.
    Cluster(Vec<Endpoint>),
}

impl Deployment {
    /// The operator's warning about the transport, if there is one.
    pub(super) fn warning(&self) -> Option<String> {
        let is_open = |endpoint: &Endpoint| is_open(endpoint.get_connection_info().addr());
        let open = match self {
            Self::Server(endpoint) => is_open(endpoint),
            Self::Sentinels(sentinels) => sentinels.sentinels().iter().any(is_open),
            Self::Cluster(seeds) => seeds.iter().any(is_open),
        };
        let instead = "write `rediss://` (feature `redis-tls`), or go through a tunnel";
        open.then(|| transport::warning("Redis", "a connection without TLS", instead))
    }
}

/// Whether the traffic to this address can be read in transit.
fn is_open(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::Tcp(host, _) if !transport::is_local(host))
}

/// Settings that a URL cannot hold.
#[derive(Clone, Default)]
pub(super) struct SourceOptions {
    /// User and password of the sentinels.
    pub(super) sentinel: Option<(Option<String>, String)>,
    /// In place of user and password of the URL or client.
    pub(super) credentials: Option<CredentialsProvider>,
    /// In place of the user and the password of the sentinels.
    pub(super) sentinel_credentials: Option<CredentialsProvider>,
    #[cfg(feature = "redis-tls")]
    pub(super) tls: Certificates,
    /// Made of `tls` once, for all servers.
    #[cfg(feature = "redis-tls")]
    tls_config: OnceLock<Arc<rustls::ClientConfig>>,
}

debug_fields!(SourceOptions {});

impl RedisSource {
    pub(super) fn resolve(self, options: &SourceOptions) -> Result<Deployment, StoreError> {
        Ok(match self.0 {
            SourceKind::Url(url) => resolve_url(&url, options)?,
            SourceKind::Client(client) => {
                Deployment::Server(Box::new(options.server(client.get_connection_info())?))
            }
        })
    }
}

fn resolve_url(url: &str, options: &SourceOptions) -> Result<Deployment, StoreError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(unusable());
    };
    let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let hosts = MultiHostUrl {
        scheme,
        rest,
        options,
    };
    match (scheme, kind) {
        ("redis" | "rediss", "sentinel") => hosts.sentinels(),
        ("redis" | "rediss", "cluster") => hosts.cluster(),
        _ => {
            let server = options.server(&options.server_info(url)?)?;
            Ok(Deployment::Server(Box::new(server)))
        }
    }
}

/// A URL with several hosts.
struct MultiHostUrl<'a> {
    scheme: &'a str,
    /// The URL after the scheme.
    rest: &'a str,
    options: &'a SourceOptions,
}

impl<'a> MultiHostUrl<'a> {
    /// User and password with `@`, hosts, path, and query with `?`.
    fn parts(&self) -> (&'a str, impl Iterator<Item = &'a str>, &'a str, &'a str) {
        let end = self.rest.find('?').unwrap_or(self.rest.len());
        let (rest, query) = self.rest.split_at(end);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let start = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(start);
        (user, hosts.split(','), path, query)
    }

    fn sentinels(&self) -> Result<Deployment, StoreError> {
        let (user, hosts, path, query) = self.parts();
        let (service, db) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "the Redis URL does not name the service that the sentinels watch; write \
                 `redis+sentinel://host:26379,host:26379/service`",
            ));
        }
        let scheme = self.scheme;
        let mut sentinels = Vec::new();
        for host in hosts {
            let info = info(&format!("{scheme}://{}{query}", with_port(host, 26_379)))?;
            let mut settings = info.redis_settings().clone();
            if let Some((user, password)) = &self.options.sentinel {
                settings = settings.set_password(password);
                if let Some(user) = user {
                    settings = settings.set_username(user);
                }
            }
            let info = info.set_redis_settings(settings);
            let provider = self.options.sentinel_credentials.clone();
            sentinels.push(self.options.endpoint(&info, provider)?);
        }
        // The address is filled in later.
        let server = format!("{scheme}://{user}localhost/{db}{query}");
        let server = self.options.server(&self.options.server_info(&server)?)?;
        Ok(Deployment::Sentinels(Sentinels::new(
            sentinels,
            service.to_owned(),
            server,
        )))
    }

    fn cluster(&self) -> Result<Deployment, StoreError> {
        let (user, hosts, db, query) = self.parts();
        let scheme = self.scheme;
        let node = |host| {
            let host = with_port(host, 6_379);
            let info = format!("{scheme}://{user}{host}/{db}{query}");
            self.options.server(&self.options.server_info(&info)?)
        };
        Ok(Deployment::Cluster(
            hosts.map(node).collect::<Result<_, _>>()?,
        ))
    }
}

/// The host with its port, or with this one. `[::1]` has colons of its own.
fn with_port(host: &str, port: u16) -> String {
    let name_ends = host.rfind(']').unwrap_or(0);
    if host[name_ends..].contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

/// The settings of a URL.
///
/// The client library reads a URL over TLS only with a feature for TLS of its own, which would change the connections of
/// the application: it reads the same URL without TLS.
fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let parse = |url: &str| url.into_connection_info().map_err(|_| unusable());
    let over_tls = url.split_once("://").filter(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("rediss") || scheme.eq_ignore_ascii_case("valkeys")
    });
    let Some((_, rest)) = over_tls else {
        return parse(url);
    };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let info = parse(&format!("redis://{rest}"))?;
    let ConnectionAddr::Tcp(host, port) = info.addr().clone() else {
        return Err(unusable());
    };
    let insecure = match fragment {
        "" => false,
        "insecure" => true,
        _ => return Err(unusable()),
    };
    Ok(info.set_addr(ConnectionAddr::TcpTls {
        host,
        port,
        insecure,
        tls_params: None,
    }))
}

impl SourceOptions {
    /// The settings of the server's connections.
    fn server_info(&self, url: &str) -> Result<ConnectionInfo, StoreError> {
        let info = info(url)?;
        let login = info.redis_settings();
        let is_named = login.username().is_some_and(|user| !user.is_empty());
        if is_named && login.password().is_none() && self.credentials.is_none() {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "the Redis URL names a user without a password, and would be connected to as another, the \
             default user; write `user:password@`, with any password for a user that has none",
            ));
        }
        Ok(info)
    }

    /// The server, or a node, for the store's own connections.
    fn server(&self, info: &ConnectionInfo) -> Result<Endpoint, StoreError> {
        self.endpoint(info, self.credentials.clone())
    }

    #[cfg_attr(
        not(feature = "redis-tls"),
        expect(clippy::unused_self, reason = "certificates come from it")
    )]
    fn endpoint(
        &self,
        info: &ConnectionInfo,
        credentials: Option<CredentialsProvider>,
    ) -> Result<Endpoint, StoreError> {
        // Without `TCP_NODELAY` a small command may wait for the acknowledgement of the one before.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let redis = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.clone().set_tcp_settings(tcp).set_redis_settings(redis);
        #[cfg(feature = "redis-tls")]
        let is_tls = is_over_tls(info.addr(), &self.tls)?;
        #[cfg(feature = "redis-tls")]
        let tls = is_tls.then(|| self.tls_config()).transpose()?;
        // Another crate may have the client library read such a URL.
        #[cfg(not(feature = "redis-tls"))]
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(unusable());
        }
        let client = Client::open(info).map_err(|_: RedisError| unusable())?;
        let endpoint = Endpoint::new(client, credentials);
        #[cfg(feature = "redis-tls")]
        let endpoint = endpoint.with_tls(tls);
        Ok(endpoint)
    }

    #[cfg(feature = "redis-tls")]
    fn tls_config(&self) -> Result<Arc<rustls::ClientConfig>, StoreError> {
        if let Some(config) = self.tls_config.get() {
            return Ok(Arc::clone(config));
        }
        let config = self.tls.client_config().map_err(refused)?;
        Ok(Arc::clone(self.tls_config.get_or_init(|| config)))
    }
}

/// Whether an address is one over TLS.
#[cfg(feature = "redis-tls")]
fn is_over_tls(address: &ConnectionAddr, tls: &Certificates) -> Result<bool, StoreError> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(refused(
            "the Redis URL ends with `#insecure`: a connection that trusts any server is no \
             better than one without TLS; give `RedisStoreBuilder::root_certificate` the \
             server's authority",
        )),
        ConnectionAddr::TcpTls {
            tls_params: Some(_),
            ..
        } if tls.is_default() => Err(refused(
            "the Redis client has certificates, which idem cannot read from it; give all of them to \
             `RedisStoreBuilder::root_certificate` and `client_certificate`",
        )),
        ConnectionAddr::TcpTls { .. } => Ok(true),
        _ if tls.is_default() => Ok(false),
        _ => Err(refused(
            "certificates are set, but the Redis URL does not begin with `rediss://`",
        )),
    }
}

#[cfg(feature = "redis-tls")]
fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

/// The error of an unusable URL. It quotes neither the URL nor the client library's error, because both
/// may hold a password.
fn unusable() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "the Redis URL cannot be used; write `redis://[user:password@]host[:port][/db]`, or see \
         the other forms in the documentation of `RedisSource` (`rediss://` takes the feature \
         `redis-tls`)",
    )
}

#[cfg(test)]
mod tests;
