//! The Redis that is measured, and what it says about itself.

use idem_harness::{Edition, RedisServer};
use redis::{Client, Connection, Value};

use super::options::{Options, refuse};
use super::suite::Meter;

/// A server of our own, or one that runs already.
pub(crate) struct Server {
    /// Keeps it running.
    own: Option<RedisServer>,
    pub(crate) url: String,
    pub(crate) client: Client,
    control: Connection,
}

impl Server {
    pub(crate) fn of(options: &Options) -> Self {
        let own = options.url.is_none().then(|| start(options));
        let url = match (&own, &options.url) {
            (Some(own), _) => own.url(),
            (None, Some(url)) => url.clone(),
            (None, None) => unreachable!("there is one without a URL"),
        };
        let client = Client::open(url.as_str()).unwrap_or_else(|error| refuse(&error.to_string()));
        let control = client.get_connection();
        let control = control.unwrap_or_else(|error| refuse(&error.to_string()));
        Self {
            own,
            url,
            client,
            control,
        }
    }

    /// `Redis 7.0.15`, for example.
    pub(crate) fn name(&mut self) -> String {
        let info = self.info("server");
        match (
            field(&info, "valkey_version"),
            field(&info, "redis_version"),
        ) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "a server that does not say what it is".to_owned(),
        }
    }

    fn info(&mut self, section: &str) -> String {
        let mut info = redis::cmd("INFO");
        info.arg(section).query(&mut self.control).unwrap()
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

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl Meter for Server {
    fn cpu_micros(&mut self) -> Option<f64> {
        let info = self.info("cpu");
        let seconds = |name| field(&info, name)?.parse::<f64>().ok();
        Some((seconds("used_cpu_sys")? + seconds("used_cpu_user")?) * 1e6)
    }

    /// `INFO commandstats` counts what scripts call among what clients send. `MONITOR` tells them
    /// apart: it names `lua` in place of a client.
    fn commands(&mut self, calls: &mut dyn FnMut()) -> Option<usize> {
        const END: &str = "idem-load-end";
        let mut monitor = self.client.get_connection().ok()?;
        redis::cmd("MONITOR").exec(&mut monitor).ok()?;
        calls();
        let mut echo = redis::cmd("ECHO");
        echo.arg(END).exec(&mut self.control).ok()?;
        let mut commands = 0;
        loop {
            let line = match monitor.recv_response().ok()? {
                Value::SimpleString(line) => line,
                other => panic!("MONITOR says {other:?}"),
            };
            if line.contains(END) {
                return Some(commands);
            }
            // `1700000000.000001 [0 127.0.0.1:5000] "GET" "key"`
            let client = line
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            if !client.is_some_and(|(client, _)| client.ends_with(" lua")) {
                commands += 1;
            }
        }
    }

    fn flush(&mut self) {
        if self.own.is_some() {
            redis::cmd("FLUSHALL").exec(&mut self.control).unwrap();
        }
    }
}
