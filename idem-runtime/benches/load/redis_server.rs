//! A Redis for a benchmark.

use idem_harness::{Edition, RedisServer};

use super::options::{Options, refuse};
use super::redis_meter::RedisMeter;

/// A server of our own, or a running one.
pub(crate) struct Server {
    pub(crate) meter: RedisMeter,
    /// Keeps it running.
    _own: Option<RedisServer>,
}

impl Server {
    pub(crate) fn of(options: &Options) -> Self {
        if let Some(url) = &options.url {
            return Self {
                meter: RedisMeter::of(url.clone(), false),
                _own: None,
            };
        }
        let own = start(options);
        Self {
            meter: RedisMeter::of(own.url(), true),
            _own: Some(own),
        }
    }

    /// Leaves out what this server cannot be measured with.
    pub(crate) fn limit(&mut self, options: &mut Options) {
        if !self.meter.can_claim() {
            eprintln!("no `SET NX GET` on this server: nothing to compare with, idem alone");
            options.impls = vec!["idem".to_owned()];
        }
    }
}

fn start(options: &Options) -> RedisServer {
    let builder = RedisServer::builder();
    let builder = match options.edition.as_deref() {
        None => builder,
        Some("valkey") => builder.version(Edition::Valkey),
        Some("redis8") => builder.version(Edition::Redis8),
        Some("redis62") => builder.version(Edition::Redis62),
        Some(other) => refuse(&format!("`{other}` is no edition")),
    };
    builder.start()
}
