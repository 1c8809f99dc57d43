//! Queries of a server for its facts.

use std::time::SystemTime;

use super::server::Server;
use crate::store::redis::durability::Durability;
use crate::store::redis::failure::{Failure, HUNG_UP};
use crate::store::redis::server::RedisServer;
use crate::store::{StoreError, StoreErrorKind};

/// Settings of the check.
#[derive(Clone, Debug)]
pub(crate) struct ProbeOptions {
    /// Where the user's rights are tried.
    pub(crate) prefix: String,
    /// The durability required of the replicas.
    pub(crate) durability: Durability,
}

impl Server {
    /// Queries a server for its facts and the user's rights.
    ///
    /// It sends `HELLO`, which every user may, `INFO`, which a restricted user may not, and a script
    /// that finds the user's rights under this prefix.
    pub(crate) async fn probe(
        redis: &RedisServer,
        options: &ProbeOptions,
    ) -> Result<Self, StoreError> {
        let mut server = Self {
            durability: options.durability,
            ..Self::default()
        };
        match redis.query(&redis::cmd("HELLO")).await {
            Ok(reply) => server.add_pairs(reply),
            // Without a connection, or the right to use it, nothing will work; without HELLO (a
            // proxy, an old server) only these facts are missing.
            Err(Failure::Connect(error)) => return Err(error),
            Err(failure) => {
                let hangs_up = failure.hangs_up();
                let error = failure.store_error("asking Redis for its version");
                if hangs_up {
                    return Err(error.with_hint(HUNG_UP));
                }
                if error.kind() != StoreErrorKind::Protocol && !is_denied(&error) {
                    return Err(error);
                }
            }
        }
        let asked = micros_since_1970();
        match redis.query(&redis::cmd("INFO")).await {
            Ok(reply) => {
                let replied = micros_since_1970();
                server.add_info(&reply);
                // The server read its clock between the two, in their middle most likely.
                server.clock_ahead_us = server
                    .number("server_time_usec")
                    .map(|time: i64| time - i64::midpoint(asked, replied));
            }
            Err(failure) => {
                let error = failure.store_error("asking Redis about itself");
                // Silence is no refusal: the server may evict, and might have reported so.
                if error.is_transient() {
                    return Err(error);
                }
            }
        }
        // A server that will be refused is not queried further.
        if !server.is_sentinel() && server.is_new_enough() {
            server.try_rights(redis, &options.prefix).await?;
        }
        Ok(server)
    }
}

/// The time of this machine; 0 before 1970.
fn micros_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

fn is_denied(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Refused && error.to_string().ends_with("[NOPERM]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::failure::store_error;

    #[test]
    fn only_a_missing_right_is_a_denial() {
        for (line, denied) in [
            (
                "NOPERM this user has no permissions to run the 'info' command",
                true,
            ),
            ("NOAUTH Authentication required.", false),
            ("ERR unknown command 'INFO'", false),
        ] {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            let error = store_error("a query", reply.extract_error().unwrap_err());
            assert_eq!(is_denied(&error), denied, "{line}");
        }
    }
}
