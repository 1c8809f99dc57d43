//! Worker processes on one prefix of a server, and their history.

use std::time::Duration;

use idem_harness::{RedisServer, Worker};

#[derive(Clone, Debug)]
pub struct WorkerFleet<'a> {
    server: &'a RedisServer,
    pub url: String,
    prefix: String,
    pub lease: Duration,
    pub wait: Duration,
}

impl<'a> WorkerFleet<'a> {
    /// Workers with a lease of a minute, whose duplicates wait for half of one.
    pub fn new(server: &'a RedisServer, prefix: &str) -> Self {
        Self {
            server,
            url: server.url(),
            prefix: prefix.to_owned(),
            lease: Duration::from_mins(1),
            wait: Duration::from_secs(30),
        }
    }

    /// Refuses duplicates of a running call at once.
    pub fn impatient(mut self) -> Self {
        self.wait = Duration::ZERO;
        self
    }

    /// Starts a worker, and waits until it is ready.
    pub fn spawn(&self) -> Worker {
        let mut worker = self.send_for();
        assert_eq!(worker.line(), "ready");
        worker
    }

    /// Starts workers, and waits until they are ready.
    pub fn spawn_many(&self, count: usize) -> Vec<Worker> {
        let mut workers: Vec<_> = (0..count).map(|_| self.send_for()).collect();
        for worker in &mut workers {
            assert_eq!(worker.line(), "ready");
        }
        workers
    }

    fn send_for(&self) -> Worker {
        let millis = |time: Duration| time.as_millis().to_string();
        Worker::sibling("idem-worker")
            .args([&self.url, &self.server.addr().to_string(), &self.prefix])
            .args([millis(self.lease), millis(self.wait)])
            .spawn()
    }

    pub fn effects(&self, key: &str) -> u64 {
        let name = format!("{}:effects:{key}", self.prefix);
        // A missing counter is an empty line.
        self.server.cli(&["GET", &name]).parse().unwrap_or(0)
    }

    /// Ages every claim.
    pub fn advance(&self, age: Duration) {
        self.server.advance(age, &format!("{}:", self.prefix));
    }

    /// The name of the only record, and its bytes.
    pub fn record(&self) -> (String, String) {
        let names = self
            .server
            .cli(&["KEYS", &format!("{}:work:*", self.prefix)]);
        assert_eq!(names.lines().count(), 1, "one record: {names}");
        let dump = self.server.reply(&["DUMP", &names]);
        (names, format!("{dump:?}"))
    }

    /// Microseconds of the server's clock.
    pub fn time(&self) -> u64 {
        let time = self.server.cli(&["TIME"]);
        let (seconds, micros) = time.split_once('\n').expect("two numbers");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        number(seconds) * 1_000_000 + number(micros)
    }
}
