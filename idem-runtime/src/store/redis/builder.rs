//! The settings of a Redis store.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::endpoint::Endpoint;
use super::link::Target;
use super::notify::Subscribers;
use super::probe::{ProbeOptions, Report, Server};
use super::script::Batches;
use super::script::Scripts;
use super::server::Durability;
use super::server::{ConnectionSettings, RedisServer};
use super::source::{Deployment, RedisSource, SourceOptions};
use super::store::RedisCore;
use super::store::RedisStore;
use super::topology::Topology;
use super::wire::ConnectionLimits;
use crate::env::credentials::CredentialsProvider;
use crate::store::StoreError;
use crate::store::server_clock::ServerClock;

/// Largest number of writes that wait for replicas at once: `WAIT` occupies its connection.
const WAIT_CONNECTIONS: usize = 8;
/// The same for lease renewals, which are few.
const BACKGROUND_WAIT_CONNECTIONS: usize = 2;

impl RedisStore {
    /// Connects with the default settings to a URL or a client: see [`RedisSource`].
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(source: impl Into<RedisSource>) -> Result<Self, StoreError> {
        Self::builder(source).connect().await
    }

    /// Creates a builder with the settings of a store.
    pub fn builder(source: impl Into<RedisSource>) -> RedisStoreBuilder {
        RedisStoreBuilder {
            source: source.into(),
            options: SourceOptions::default(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            max_record_bytes: 8 << 20,
            allow_eviction: false,
            durability: Durability::default(),
            checked_prefix: "idem".to_owned(),
        }
    }
}

/// Builder of a [`RedisStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    source: RedisSource,
    options: SourceOptions,
    connect_timeout: Duration,
    response_timeout: Duration,
    max_record_bytes: usize,
    allow_eviction: bool,
    durability: Durability,
    checked_prefix: String,
}

impl RedisStoreBuilder {
    /// Time limit for making a connection; default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Time limit for a reply before the command is sent again; default 500 ms.
    ///
    /// After three time-outs in a row the connection is made anew.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The largest record that is read, in bytes; default 8 MiB.
    ///
    /// A larger one is refused with [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) and left unchanged.
    ///
    /// The store requests one byte more than that at most, with one exception. The reply to a claim by `SET … NX GET`
    /// is the whole record, whatever its length. It is discarded while it arrives, above 1 MiB and the limit. After the
    /// first such reply that is too large, this store makes its claims by script, which checks the length first: a writer of Redis can make
    /// each process fetch such records only by the claims then in flight.
    pub fn max_record_bytes(mut self, max_record_bytes: usize) -> Self {
        self.max_record_bytes = max_record_bytes;
        self
    }

    /// Accepts a server that evicts keys when its memory is full. The guarantee then ends where
    /// eviction begins.
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// The prefix under which the user's rights are checked at connect; default `idem`.
    ///
    /// That is the prefix of an engine that sets no other. A missing right is only a warning.
    pub fn checked_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.checked_prefix = prefix.into();
        self
    }

    /// When a write counts as stored; default [`Durability::Acknowledged`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The provider of each server connection's credentials, in place of the URL's.
    ///
    /// For passwords that change, and tokens that expire: see [`credentials`](crate::credentials). A connection whose
    /// credentials expire while it lives (`NOAUTH`) is replaced, and its command sent again. The provider may take half
    /// of the [`connect_timeout`](Self::connect_timeout).
    pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
        self.options.credentials = Some(provider.into());
        self
    }

    /// The same for the connections to the sentinels, in place of [`sentinel_credentials`](Self::sentinel_credentials).
    pub fn sentinel_credentials_provider(
        mut self,
        provider: impl Into<CredentialsProvider>,
    ) -> Self {
        self.options.sentinel_credentials = Some(provider.into());
        self
    }

    /// User and password of the sentinels, where they require any.
    ///
    /// Those of the URL are the server's.
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.options.sentinel = Some((user.map(str::to_owned), password.to_owned()));
        self
    }

    /// Certificate authorities to trust in place of the system's, as PEM. For `rediss://`.
    ///
    /// The system's are read when the store is built: a process that runs while they change has the former ones.
    #[cfg(feature = "redis-tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.options.tls.root_certificate = Some(pem.into());
        self
    }

    /// The store's certificate for the server, and its key, as PEM. For `rediss://`.
    #[cfg(feature = "redis-tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.options.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// Connects, and checks the server.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] if the server does not answer, [`Refused`] if the URL is wrong, the server
    /// refuses the user, is too old or evicts keys.
    ///
    /// [`Unavailable`]: crate::store::StoreErrorKind::Unavailable
    /// [`Refused`]: crate::store::StoreErrorKind::Refused
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let settings = |wait_connections| ConnectionSettings {
            limits: ConnectionLimits {
                connect: self.connect_timeout,
                response: self.response_timeout,
                // One byte more, by which a read detects a larger record, and no less than any reply that is no record.
                text_bytes: self.max_record_bytes.max(1 << 20).saturating_add(1),
            },
            durability: self.durability,
            wait_connections,
        };
        let (settings, background_settings) = (
            settings(WAIT_CONNECTIONS),
            settings(BACKGROUND_WAIT_CONNECTIONS),
        );
        let limits = settings.limits;
        let observers = Arc::default();
        let deployment = self.source.resolve(&self.options)?;
        let transport = deployment.warning();
        let (target, mut seeds) = match deployment {
            Deployment::Server(server) => (Some(Target::Server(server)), Vec::new()),
            Deployment::Sentinels(sentinels) => (Some(Target::Primary(sentinels)), Vec::new()),
            Deployment::Cluster(seeds) => (None, seeds),
        };
        let options = ProbeOptions {
            prefix: self.checked_prefix,
            durability: self.durability,
        };
        let clock = ServerClock::new(&observers);
        let mut single = None;
        if let Some(target) = target {
            let server = RedisServer::new(&target, settings, Arc::clone(&clock));
            let found = Server::probe(&server, &options).await?;
            match &target {
                // One of a cluster's nodes: it knows the others, which are queried instead.
                Target::Server(node) if found.is_cluster() => seeds.push(Endpoint::clone(node)),
                _ => single = Some((target, server, Report::of_server(found))),
            }
        }
        let (link, [background, listing], subscribers, report) =
            if let Some((target, server, report)) = single {
                let another = || {
                    let server = RedisServer::new(&target, background_settings, Arc::clone(&clock));
                    Topology::Single(Box::new(server))
                };
                let others = [another(), another()];
                let sharded = report.publishes_in_shards();
                let subscribers = Subscribers::of_server(target, sharded, limits);
                (
                    Topology::Single(Box::new(server)),
                    others,
                    subscribers,
                    report,
                )
            } else {
                let cluster = |settings| Cluster::new(&seeds, settings, &observers).map(Box::new);
                let another = || cluster(background_settings);
                let link = cluster(settings)?;
                let report = link.probe(&options).await?;
                let others = [Topology::Cluster(another()?), Topology::Cluster(another()?)];
                let sharded = report.publishes_in_shards();
                let subscribers = Subscribers::of_cluster(*another()?, sharded, limits);
                (Topology::Cluster(link), others, subscribers, report)
            };
        report.refuse(self.allow_eviction)?;
        let reads_declarations = report.reads_declarations();
        let stages_large = reads_declarations && settings.durability == Durability::Acknowledged;
        let scripts = Scripts::new(&report);
        Ok(RedisStore(Arc::new(RedisCore {
            batches: Batches::new(
                &scripts,
                stages_large && matches!(link, Topology::Single(_)),
            ),
            scripts,
            link,
            background,
            listing,
            subscribers: Arc::new(subscribers),
            plain_claims: reads_declarations.into(),
            stages_large: stages_large.into(),
            compares: stages_large && report.compares(),
            report,
            transport,
            observers,
            max_record_bytes: self.max_record_bytes,
        })))
    }
}
