//! The Redis that is measured.

use std::ops::{Deref, DerefMut};

use idem_runtime::store::redis::RedisStore;
use idem_runtime::{
    Engine, EngineBuilder, Observer,
    observe::{Event, EventKind, StderrObserver},
};
use tokio::runtime::Runtime;

use super::load::redis_meter::{RedisMeter, field};
use super::load::redis_server::Server;
use super::load::suite::Meter;
use super::options::Growth;

pub(crate) struct Measured(Server);

impl Measured {
    pub(crate) fn start(growth: &Growth) -> Self {
        Self(Server::of(&growth.load))
    }

    /// Leaves out what this server cannot be measured with.
    pub(crate) fn limit(&mut self, growth: &mut Growth) {
        self.0.limit(&mut growth.load);
    }

    pub(crate) fn meter(&mut self) -> &mut dyn Meter {
        &mut self.0.meter
    }

    /// Deletes everything: the server is ours.
    pub(crate) fn flush(&mut self) {
        self.meter().flush();
    }

    /// Processor time that it has used, in microseconds.
    pub(crate) fn cpu_micros(&mut self) -> f64 {
        self.meter().cpu_micros().unwrap()
    }

    /// Bytes that it has allocated.
    pub(crate) fn used_memory(&mut self) -> u64 {
        number(&self.info("memory"), "used_memory")
    }

    /// Commands that it was ever sent.
    pub(crate) fn commands(&mut self) -> u64 {
        number(&self.info("stats"), "total_commands_processed")
    }

    /// Bytes that it was ever sent, and that it ever sent.
    pub(crate) fn traffic(&mut self) -> [u64; 2] {
        let text = self.info("stats");
        ["total_net_input_bytes", "total_net_output_bytes"].map(|name| number(&text, name))
    }

    /// What stands under a name.
    pub(crate) fn get(&mut self, name: &str) -> Option<Vec<u8>> {
        let mut get = redis::cmd("GET");
        get.arg(name).query(&mut self.control).unwrap()
    }

    /// An engine with connections of its own, as if it were another process.
    pub(crate) fn engine(&self, runtime: &Runtime) -> Engine {
        self.builder(runtime).build().unwrap()
    }

    pub(crate) fn builder(&self, runtime: &Runtime) -> EngineBuilder {
        let store = runtime.block_on(RedisStore::connect(&self.url));
        builder(store.unwrap())
    }
}

impl Deref for Measured {
    type Target = RedisMeter;

    fn deref(&self) -> &RedisMeter {
        &self.0.meter
    }
}

impl DerefMut for Measured {
    fn deref_mut(&mut self) -> &mut RedisMeter {
        &mut self.0.meter
    }
}

fn number(info: &str, name: &str) -> u64 {
    field(info, name).unwrap().parse().unwrap()
}

/// An engine that does not warn, each time anew, of a server that keeps nothing on disk.
pub(crate) fn builder(store: RedisStore) -> EngineBuilder {
    Engine::builder(store).observer(Unwarned)
}

#[derive(Debug)]
struct Unwarned;

impl Observer for Unwarned {
    fn observe(&self, event: &Event<'_>) {
        if !matches!(event.kind, EventKind::Warning { .. }) {
            StderrObserver.observe(event);
        }
    }
}
