//! The Redis that is measured.

use idem_runtime::store::redis::RedisStore;
use idem_runtime::{
    Engine, EngineBuilder, Observer,
    observe::{Event, EventKind, StderrObserver},
};
use redis::{Client, Connection};
use tokio::runtime::Runtime;

use super::load::redis_server::Server;
use super::load::suite::Meter;
use super::options::Growth;

pub(crate) struct Measured {
    server: Server,
    pub(crate) control: Connection,
}

impl Measured {
    pub(crate) fn start(growth: &Growth) -> Self {
        let server = Server::of(&growth.load);
        let control = server.meter.client.get_connection().unwrap();
        Self { server, control }
    }

    /// Leaves out what this server cannot be measured with.
    pub(crate) fn limit(&mut self, growth: &mut Growth) {
        self.server.limit(&mut growth.load);
    }

    pub(crate) fn name(&mut self) -> String {
        self.server.meter.name()
    }

    pub(crate) fn url(&self) -> &str {
        &self.server.meter.url
    }

    pub(crate) fn client(&self) -> &Client {
        &self.server.meter.client
    }

    pub(crate) fn meter(&mut self) -> &mut dyn Meter {
        &mut self.server.meter
    }

    /// Deletes everything: the server is ours.
    pub(crate) fn flush(&mut self) {
        self.server.meter.flush();
    }

    /// Processor time that it has used, in microseconds.
    pub(crate) fn cpu_micros(&mut self) -> f64 {
        self.server.meter.cpu_micros().unwrap()
    }

    /// Bytes that it has allocated.
    pub(crate) fn used_memory(&mut self) -> u64 {
        self.info("memory", "used_memory")
    }

    /// Commands that it was ever sent.
    pub(crate) fn commands(&mut self) -> u64 {
        self.info("stats", "total_commands_processed")
    }

    /// Bytes that it was ever sent, and that it ever sent.
    pub(crate) fn traffic(&mut self) -> [u64; 2] {
        let text = self.section("stats");
        ["total_net_input_bytes", "total_net_output_bytes"].map(|name| field(&text, name))
    }

    fn info(&mut self, section: &str, name: &str) -> u64 {
        field(&self.section(section), name)
    }

    fn section(&mut self, section: &str) -> String {
        let mut info = redis::cmd("INFO");
        info.arg(section).query(&mut self.control).unwrap()
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
        let store = runtime.block_on(RedisStore::connect(self.url()));
        builder(store.unwrap())
    }
}

fn field(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().parse().unwrap()
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
