//! A measured Redis and its own figures.

use redis::{Client, Connection, Value};

use super::options::refuse;
use super::suite::Meter;

pub(crate) struct RedisMeter {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) control: Connection,
    /// Whether all that it holds is this benchmark's.
    pub(crate) is_ours: bool,
}

impl RedisMeter {
    pub(crate) fn of(url: String, is_ours: bool) -> Self {
        let client = Client::open(url.as_str()).unwrap_or_else(|error| refuse(&error.to_string()));
        let control = client.get_connection();
        let control = control.unwrap_or_else(|error| refuse(&error.to_string()));
        Self {
            url,
            client,
            control,
            is_ours,
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

    /// Whether it claims with one command, as Redis does since 7.0.
    pub(crate) fn can_claim(&mut self) -> bool {
        let mut claim = redis::cmd("SET");
        claim.arg("raw:probe").arg("").arg("NX").arg("GET");
        let reply = claim.arg("PX").arg(1).query::<Value>(&mut self.control);
        reply.is_ok()
    }

    pub(crate) fn info(&mut self, section: &str) -> String {
        let mut info = redis::cmd("INFO");
        info.arg(section).query(&mut self.control).unwrap()
    }
}

/// A field of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl Meter for RedisMeter {
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
            let parts = line
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            // Connections that wait for news ask now and then whether the server is there: no call's.
            let is_aside = parts.is_some_and(|(client, command)| {
                client.ends_with(" lua") || command == " \"PING\""
            });
            if !is_aside {
                commands += 1;
            }
        }
    }

    fn flush(&mut self) {
        if self.is_ours {
            redis::cmd("FLUSHALL").exec(&mut self.control).unwrap();
        }
    }
}
