//! Queries of a server: its facts, the user's rights, and its writability.

use redis::{RedisError, Value};

use super::server::{MissingRights, NoWrites, Rights, Server};
use crate::env::clock::{Clock as _, SystemClock};
use crate::record::Owner;
use crate::store::redis::failure::{Failure, HUNG_UP};
use crate::store::redis::server::{Durability, RedisServer};
use crate::store::redis::wire::text;
use crate::store::{StoreError, StoreErrorKind};

const PROBE: &str = include_str!("probe.lua");
/// Rights to the commands that touch a record.
const ON_KEYS: [&str; 7] = [
    "+get",
    "+getrange",
    "+set",
    "+pttl",
    "+pexpire",
    "+strlen",
    "+exists",
];

/// Rights to other commands without which calls are refused.
const BESIDES: [&str; 5] = ["+evalsha", "+time", "+wait", "+cluster|slots", "+asking"];

/// Rights without which completions cost the server more.
const SAVING: [&str; 2] = ["+mget", "+rename"];

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
        let now = || i64::try_from(SystemClock.calendar_us()).unwrap_or(i64::MAX);
        let asked = now();
        match redis.query(&redis::cmd("INFO")).await {
            Ok(reply) => {
                let replied = now();
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

    /// Checks the user's rights under this prefix.
    async fn try_rights(&mut self, redis: &RedisServer, prefix: &str) -> Result<(), StoreError> {
        let [publish, subscribe, unsubscribe] = self.pubsub_commands();
        let mut probe = redis::cmd("EVAL");
        probe.arg(PROBE).arg(0).arg(unused_name(prefix));
        probe.arg(publish).arg(subscribe).arg(unsubscribe);
        if self.durability != Durability::Acknowledged {
            probe.arg("WAIT");
        }
        if self.is_cluster() {
            probe.arg("CLUSTER|SLOTS").arg("ASKING");
        }
        let found = match redis.query(&probe).await {
            Ok(reply) => reply,
            Err(failure) => {
                self.rights = match refused(failure)? {
                    QueryRefusal::Lacking => Rights::Known(MissingRights {
                        prefix: prefix.to_owned(),
                        needed: vec!["+eval".to_owned()],
                        ..MissingRights::default()
                    }),
                    QueryRefusal::Other(code) => Rights::Unknown(code),
                };
                return Ok(());
            }
        };
        let Some(mut found) = ProbeReply::parse(&found) else {
            self.rights = Rights::Unknown("its answer is not that of the script".to_owned());
            return Ok(());
        };
        self.no_writes = NoWrites::parse(&found.write);
        // A script may not call `EVALSHA`, so the probe could not try it.
        if found.tried && self.lacks_evalsha(redis).await? {
            found.refused.insert(0, "+evalsha".to_owned());
        }
        let saves = |right: &str| self.saves(right);
        let missing = classify(prefix, [publish, subscribe], saves, found.refused);
        self.rights = Rights::Known(missing);
        if found.settings {
            self.query_settings(redis).await?;
        }
        Ok(())
    }

    async fn lacks_evalsha(&self, redis: &RedisServer) -> Result<bool, StoreError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg("0".repeat(40)).arg(0);
        match redis.query(&command).await {
            Ok(_) => Ok(false),
            Err(failure) => Ok(matches!(refused(failure)?, QueryRefusal::Lacking)),
        }
    }

    /// Queries settings that `INFO` does not contain. Few users have the right.
    async fn query_settings(&mut self, redis: &RedisServer) -> Result<(), StoreError> {
        let names = ["save", "appendfsync", "min-replicas-to-write"];
        // Redis 6 takes one name at a time.
        let at_once = if self.reads_declarations() {
            names.len()
        } else {
            1
        };
        for names in names.chunks(at_once) {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(names);
            match redis.query(&command).await {
                Ok(reply) => self.add_pairs(reply),
                Err(failure) => {
                    refused(failure)?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn is_denied(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Refused && error.to_string().ends_with("[NOPERM]")
}

/// A key and channel under the prefix. Names of records have one more part.
fn unused_name(prefix: &str) -> String {
    use std::fmt::Write as _;
    let mut name = format!("{prefix}:start-up-check-");
    for byte in Owner::random().as_bytes() {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Reason of a refusal.
enum QueryRefusal {
    /// The user lacks the right, or the server lacks the command.
    Lacking,
    /// Another refusal: its code, or a description.
    Other(String),
}

/// Classifies a refusal; an error if the server is gone.
fn refused(failure: Failure) -> Result<QueryRefusal, StoreError> {
    let error = match failure {
        Failure::Reply(error) if is_answer(&error) => error,
        // Writes may have to wait, as in a planned failover; the server has replied before.
        Failure::Reply(error) if error.is_timeout() => {
            return Ok(QueryRefusal::Other("no reply in time".to_owned()));
        }
        failure => return Err(failure.store_error("asking Redis what this user may do")),
    };
    let code = error.code().unwrap_or("ERR");
    let unknown = error
        .detail()
        .is_some_and(|detail| detail.contains("unknown command"));
    Ok(match code {
        "NOPERM" => QueryRefusal::Lacking,
        "ERR" if unknown => QueryRefusal::Lacking,
        code => QueryRefusal::Other(code.to_owned()),
    })
}

fn is_answer(error: &RedisError) -> bool {
    !(error.is_timeout() || error.is_connection_dropped() || error.is_io_error())
}

/// The reply of the probe script.
struct ProbeReply {
    tried: bool,
    write: String,
    settings: bool,
    refused: Vec<String>,
}

impl ProbeReply {
    fn parse(reply: &Value) -> Option<Self> {
        let Value::Array(parts) = reply else {
            return None;
        };
        let mut parts = parts.iter().map(text);
        let (how, write, settings) = (parts.next()??, parts.next()??, parts.next()??);
        let refused = parts.map(|command| Some(format!("+{}", command?.to_lowercase())));
        Some(Self {
            tried: how == "tried",
            write,
            // Where the right is unknown, the server refuses the query.
            settings: settings != "0",
            refused: refused.collect::<Option<_>>()?,
        })
    }
}

/// Sorts missing rights by consequence, and sums up those of a prefix. `saves`: whether idem would use such a
/// command.
fn classify(
    prefix: &str,
    pubsub_commands: [&str; 2],
    saves: impl Fn(&str) -> bool,
    refused: Vec<String>,
) -> MissingRights {
    let [publish, subscribe] =
        pubsub_commands.map(|command| format!("+{}", command.to_lowercase()));
    let is_needed =
        |right: &String| ON_KEYS.contains(&right.as_str()) || BESIDES.contains(&right.as_str());
    let is_saving = |right: &String| SAVING.contains(&right.as_str());
    let (mut saving, refused): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_saving);
    saving.retain(|right| saves(right));
    let (mut needed, mut notifying): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_needed);
    if ON_KEYS
        .iter()
        .all(|right| needed.iter().any(|r| r == right))
    {
        // All of them: the user has no right to the keys.
        needed.retain(|right| !ON_KEYS.contains(&right.as_str()));
        needed.insert(0, format!("~{prefix}:*"));
    }
    if notifying.contains(&publish) && notifying.contains(&subscribe) {
        // The commands or the channel: one ACL line grants both.
        notifying.insert(0, format!("&{prefix}:*"));
    }
    MissingRights {
        prefix: prefix.to_owned(),
        needed,
        notifying,
        saving,
    }
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
    #[test]
    fn a_reply_of_another_form_is_refused() {
        let parse = |parts: &[&str]| {
            let parts = parts
                .iter()
                .map(|part| Value::SimpleString((*part).to_owned()));
            ProbeReply::parse(&Value::Array(parts.collect()))
        };
        assert!(parse(&["asked", ""]).is_none());
        let found = parse(&["tried", "", "", "GET"]).unwrap();
        assert!(found.tried && found.settings);
        assert_eq!(found.refused, ["+get"]);
        assert!(ProbeReply::parse(&Value::Okay).is_none());
    }

    #[test]
    fn the_name_of_the_probe_is_that_of_no_record() {
        let (one, other) = (unused_name("idem"), unused_name("idem"));
        assert_ne!(one, other);
        assert_eq!(one.matches(':').count(), 1, "a record's name has two");
        assert!(one.starts_with("idem:"));
    }
    #[test]
    fn a_refused_write_is_parsed_in_every_form() {
        for said in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "@user_script: 63: -OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert_eq!(NoWrites::parse(said), Some(NoWrites::OutOfMemory));
        }
        assert_eq!(NoWrites::parse(""), None);
        let elsewhere = "Script attempted to access a non local key in a cluster node";
        assert_eq!(NoWrites::parse(elsewhere), None);
    }
}
