//! The stores that the model is compared with.

use std::cell::RefCell;
use std::time::Duration;

use idem_harness::RespConn;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{RecordKey, Store};
use tokio::runtime::{Builder, Runtime};

/// A store whose time a test moves.
pub(crate) trait Subject {
    const NAME: &'static str;
    /// The length of a step of a sequence in milliseconds.
    const STEP: u64;
    /// Milliseconds added to each lease and life. Half a step where time runs on by itself, so that the steps
    /// of time never end near the end of either.
    const OFFSET: u64;
    /// How far time may run on by itself.
    const SLACK: u64;

    fn store(&self) -> &dyn Store;
    fn advance(&self, ms: u64, keys: &[RecordKey]);
    fn runtime(&self) -> &Runtime;
}

pub(crate) struct Memory {
    store: MemoryStore,
    clock: ManualClock,
    runtime: Runtime,
}

impl Default for Memory {
    fn default() -> Self {
        let clock = ManualClock::new();
        Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
            runtime: Builder::new_current_thread().build().expect("it starts"),
        }
    }
}

impl Subject for Memory {
    const NAME: &'static str = "memory";
    const STEP: u64 = 1;
    const OFFSET: u64 = 0;
    const SLACK: u64 = 0;

    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn advance(&self, ms: u64, _: &[RecordKey]) {
        self.clock.advance(Duration::from_millis(ms));
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

pub(crate) struct Redis {
    store: RedisStore,
    time: RefCell<RespConn>,
    runtime: Runtime,
    _server: idem_tests::Redis,
}

impl Redis {
    pub(crate) fn start() -> Self {
        // One thread: an operation is waited for where its reply arrives.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("it starts");
        let server = runtime.block_on(idem_tests::Redis::start(idem_tests::Shape::Server));
        Self {
            store: server.store().clone(),
            time: RefCell::new(server.server().connect()),
            runtime,
            _server: server,
        }
    }
}

/// Ages the keys of a sequence. The harness's own way scans all keys of the server.
const AGE: &str = "for _, key in ipairs(KEYS) do
  local left, age = redis.call('PTTL', key), tonumber(ARGV[1])
  if left >= 0 and left <= age then redis.call('DEL', key)
  elseif left >= 0 then redis.call('PEXPIRE', key, string.format('%.0f', left - age)) end
end
return 1";

impl Subject for Redis {
    const NAME: &'static str = "redis";
    const STEP: u64 = 120_000;
    const OFFSET: u64 = 60_000;
    const SLACK: u64 = 50_000;

    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn advance(&self, ms: u64, keys: &[RecordKey]) {
        let mut command = vec!["EVAL".to_owned(), AGE.to_owned(), keys.len().to_string()];
        command.extend(keys.iter().map(RecordKey::name));
        command.push(ms.to_string());
        let reply = self.time.borrow_mut().command(&command);
        assert_eq!(reply.expect("Redis answers").as_int(), Some(1));
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}
