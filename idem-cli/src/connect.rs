//! From a URL to an engine.

use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use idem_runtime::store::sql;
use idem_runtime::store::{Finding, Store};
use idem_runtime::{Engine, Observer};

use crate::address::{Address, redacted};
use crate::arguments::Connection;
use crate::failure::Failure;

/// A store that replies, and the fast one in front of it.
pub(crate) struct Connected {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) durable: Box<dyn Durable>,
}

/// A future of a [`Durable`].
type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>;

/// Operations of a store for an operator, beside those of calls.
pub(crate) trait Durable {
    fn findings(&self) -> Asked<'_, Findings>;

    /// Whether names contain a part of the operation, which others may share.
    fn abbreviates(&self) -> bool {
        false
    }

    /// Deletes the rows of expired records, where the store has any.
    fn purge_expired(&self) -> Asked<'_, Option<u64>>;
}

impl Durable for RedisStore {
    fn findings(&self) -> Asked<'_, Findings> {
        Box::pin(async { Ok(self.report().findings()) })
    }

    fn abbreviates(&self) -> bool {
        true
    }

    fn purge_expired(&self) -> Asked<'_, Option<u64>> {
        Box::pin(async { Ok(None) })
    }
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl<B: sql::Backend> Durable for sql::SqlStore<B> {
    fn findings(&self) -> Asked<'_, Findings> {
        Box::pin(async {
            let findings = Self::findings(self).await?.into_iter();
            Ok(findings.map(|finding| (None, finding)).collect())
        })
    }

    fn purge_expired(&self) -> Asked<'_, Option<u64>> {
        Box::pin(async {
            let purge = sql::Purge::default();
            Ok(Some(self.purge(purge).await?))
        })
    }
}

/// The findings about a store, each with the node of a cluster.
pub(crate) type Findings = Vec<(Option<String>, Finding)>;

impl Connection {
    /// The store's URL without passwords.
    pub(crate) fn shown(&self) -> String {
        self.store.as_deref().map(redacted).unwrap_or_default()
    }

    fn address(&self) -> Result<Address, Failure> {
        let Some(url) = &self.store else {
            return Err(Failure::usage(
                "no store: give --store URL, or set IDEM_STORE, as in IDEM_STORE=redis://localhost:6379",
            ));
        };
        // A password has no option: the list of processes would show it.
        Address::parse(url, std::env::var("IDEM_PASSWORD").ok().as_deref())
    }

    /// Refuses an option of another store, or of a missing feature.
    fn check_options(&self) -> Result<(), Failure> {
        let is_tls =
            |url: &Option<String>| url.as_ref().is_some_and(|url| url.starts_with("rediss"));
        let has_tls = self.ca.is_some() || self.cert.is_some();
        if has_tls && self.front.is_none() && self.address()?.feature != "redis" {
            return Err(Failure::usage(
                "--ca and --cert (IDEM_CA, IDEM_CERT) are of Redis: name the files of a database in its URL, as in \
                 postgres://…?sslmode=verify-full&sslrootcert=ca.pem",
            ));
        }
        let has_tls = has_tls || is_tls(&self.store) || is_tls(&self.front);
        let (has_digest_key, has_encryption) = (
            self.digest_key_file.is_some(),
            !self.encryption_key_file.is_empty(),
        );
        if has_tls && !cfg!(feature = "redis-tls") {
            return Err(lacks("redis-tls"));
        }
        if has_digest_key && !cfg!(feature = "digest-key") {
            return Err(lacks("digest-key"));
        }
        if has_encryption && !cfg!(feature = "encryption") {
            return Err(lacks("encryption"));
        }
        Ok(())
    }
}

impl Connected {
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, Failure> {
        connection.check_options()?;
        let mut connected = Self::durable(connection).await?;
        if let Some(url) = &connection.front {
            let front = Address::parse(url, None)?;
            if front.feature != "redis" {
                return Err(Failure::usage("--front is the URL of a Redis"));
            }
            let front = Arc::new(redis(connection, &front.url).await?);
            connected.store = Arc::new(LayeredStore::over(front, connected.store).build());
        }
        Ok(connected)
    }

    fn of<S: Store + Durable + Clone>(store: S) -> Self {
        Self {
            store: Arc::new(store.clone()),
            durable: Box::new(store),
        }
    }

    async fn durable(connection: &Connection) -> Result<Self, Failure> {
        let address = connection.address()?;
        #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
        let (table, timeout) = (&connection.table, connection.timeout);
        match address.feature {
            "redis" => redis(connection, &address.url).await.map(Self::of),
            #[cfg(feature = "postgres")]
            "postgres" => {
                let store = sql::PostgresStore::builder(address.url).table(table);
                let store = store.connections(16).response_timeout(timeout);
                Ok(Self::of(store.connect().await?))
            }
            #[cfg(feature = "mysql")]
            "mysql" => {
                let store = sql::MySqlStore::builder(address.url).table(table);
                let store = store.connections(16).response_timeout(timeout);
                Ok(Self::of(store.connect().await?))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                // The store would create it.
                if !std::path::Path::new(address.path()).is_file() {
                    let message = format!("there is no file `{}`", address.path());
                    return Err(Failure::store(message));
                }
                let store = sql::SqliteStore::builder(address.url).table(table);
                let store = store.response_timeout(timeout);
                Ok(Self::of(store.connect().await?))
            }
            feature => Err(lacks(feature)),
        }
    }

    /// An engine that finds the records, and stores answers for `ttl`.
    pub(crate) fn engine(
        &self,
        connection: &Connection,
        ttl: Option<Duration>,
    ) -> Result<Engine, Failure> {
        let mut builder = Engine::builder(Arc::clone(&self.store))
            .prefix(&connection.prefix)
            // The findings are printed by `doctor`; other verbs report what they find.
            .observer(Vec::<Arc<dyn Observer>>::new())
            .claim_deadline(connection.timeout);
        if let Some(attempts) = NonZeroU16::new(connection.max_attempts) {
            builder = builder.max_attempts(Some(attempts));
        }
        if let Some(ttl) = ttl {
            builder = builder.ttl(ttl).error_ttl(ttl);
        }
        #[cfg(feature = "digest-key")]
        if let Some(file) = &connection.digest_key_file {
            builder = builder.digest_key(secret(file)?);
        }
        #[cfg(feature = "encryption")]
        if !connection.encryption_key_file.is_empty() {
            let keys = encryption_keys(&connection.encryption_key_file)?;
            builder = builder.encrypt(keys).accept_plaintext();
        }
        Ok(builder.build()?)
    }
}

async fn redis(connection: &Connection, url: &str) -> Result<RedisStore, Failure> {
    let mut builder = RedisStore::builder(url)
        .checked_prefix(&connection.prefix)
        .response_timeout(connection.timeout)
        .connect_timeout(connection.timeout)
        // An operator has to see such a server as well; `doctor` reports it.
        .allow_eviction();
    if let Ok(password) = std::env::var("IDEM_SENTINEL_PASSWORD") {
        builder = builder.sentinel_credentials(None, &password);
    }
    #[cfg(feature = "redis-tls")]
    if let Some(file) = &connection.ca {
        builder = builder.root_certificate(read(file)?);
    }
    #[cfg(feature = "redis-tls")]
    if let (Some(certificate), Some(key)) = (&connection.cert, &connection.cert_key) {
        builder = builder.client_certificate(read(certificate)?, read(key)?);
    }
    Ok(builder.connect().await?)
}

fn lacks(feature: &str) -> Failure {
    Failure::usage(format!(
        "this build of idem lacks the feature `{feature}`: cargo install idem-cli --features {feature}"
    ))
}

#[cfg(any(feature = "digest-key", feature = "encryption", feature = "redis-tls"))]
fn read(file: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// 32 bytes from a file, as they are or in hexadecimal digits.
#[cfg(any(feature = "digest-key", feature = "encryption"))]
fn secret(file: &std::path::Path) -> Result<[u8; 32], Failure> {
    let bytes = read(file)?;
    let secret = <[u8; 32]>::try_from(bytes.as_slice()).ok();
    let secret = secret.or_else(|| crate::key::hex_32(bytes.trim_ascii()));
    secret.ok_or_else(|| {
        let file = file.display();
        Failure::usage(format!(
            "{file} has neither 32 bytes nor 64 hexadecimal digits"
        ))
    })
}

#[cfg(feature = "encryption")]
fn encryption_keys(files: &[String]) -> Result<idem_runtime::codec::EncryptionKeys, Failure> {
    use idem_runtime::codec::EncryptionKeys;
    let mut keys: Option<EncryptionKeys> = None;
    for given in files {
        let parts = given.split_once(':');
        let parts = parts.and_then(|(id, file)| Some((id.parse().ok()?, file)));
        let (id, file) = parts.ok_or_else(|| {
            Failure::usage(
                "--encryption-key-file is the id of the key and its file: `1:/run/secrets/idem`",
            )
        })?;
        let key = secret(file.as_ref())?;
        keys = Some(match keys {
            None => EncryptionKeys::new(id, key),
            Some(keys) => keys.also(id, key),
        });
    }
    keys.ok_or_else(|| Failure::usage("no encryption key"))
}
