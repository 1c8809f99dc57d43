//! Builder of a database server.

use std::ffi::OsString;

use crate::product::Product;
use crate::server::started;
use crate::{Certificates, DatabaseServer, FakeClock, StartError};

/// Settings of a database server that becomes an `S`.
#[derive(Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct DatabaseServerBuilder<S> {
    find: fn() -> Result<Box<dyn Product>, StartError>,
    wrap: fn(DatabaseServer) -> S,
    settings: Vec<(String, String)>,
    durable: bool,
    clock: Option<FakeClock>,
    certificates: Option<Certificates>,
}

impl<S> DatabaseServerBuilder<S> {
    pub(crate) fn new(
        find: fn() -> Result<Box<dyn Product>, StartError>,
        wrap: fn(DatabaseServer) -> S,
    ) -> Self {
        Self {
            find,
            wrap,
            settings: Vec::new(),
            durable: false,
            clock: None,
            certificates: None,
        }
    }

    /// A setting of the server, as in its configuration file: `setting("max_connections", "20")`.
    /// The last one of a name counts, also over those of the harness.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Syncs each commit to disk, as a server in production does. Without it, a commit survives
    /// a `kill` of the server, but not a crash of the machine.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Gives the server a clock that the test can step.
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Accepts connections over TLS as well, with the certificate of these.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Starts the server and waits until it answers; the panic has the reason and the remedy.
    pub fn start(self) -> S {
        let server = started(|| {
            let product = (self.find)()?;
            let settings = self.settings.iter();
            let settings = settings.flat_map(|(name, value)| product.setting(name, value));
            let settings: Vec<OsString> = settings.collect();
            let clock = self.clock.clone();
            let certificates = self.certificates.as_ref();
            DatabaseServer::launch(product, self.durable, clock, certificates, settings)
        });
        (self.wrap)(server)
    }
}
