//! The user's rights, and whether the server takes writes at present.

use redis::{RedisError, Value};

use super::acl::{MissingRights, NoWrites, Rights, classify};
use super::server::Server;
use crate::record::Owner;
use crate::store::StoreError;
use crate::store::redis::durability::Durability;
use crate::store::redis::failure::Failure;
use crate::store::redis::server::RedisServer;
use crate::store::redis::value::text;

const PROBE: &str = include_str!("probe.lua");
impl Server {
    /// Checks the user's rights under this prefix.
    pub(super) async fn try_rights(
        &mut self,
        redis: &RedisServer,
        prefix: &str,
    ) -> Result<(), StoreError> {
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
                    Refusal::Lacking => Rights::Known(MissingRights {
                        prefix: prefix.to_owned(),
                        needed: vec!["+eval".to_owned()],
                        ..MissingRights::default()
                    }),
                    Refusal::Other(code) => Rights::Unknown(code),
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
            Err(failure) => Ok(matches!(refused(failure)?, Refusal::Lacking)),
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
enum Refusal {
    /// The user has no right to the command, or the server does not have it.
    Lacking,
    /// Another refusal: its code, or a description.
    Other(String),
}

/// Classifies a refusal; an error if the server is gone.
fn refused(failure: Failure) -> Result<Refusal, StoreError> {
    let error = match failure {
        Failure::Reply(error) if is_answer(&error) => error,
        // Writes may have to wait, as in a planned failover; the server has replied before.
        Failure::Reply(error) if error.is_timeout() => {
            return Ok(Refusal::Other("no reply in time".to_owned()));
        }
        failure => return Err(failure.store_error("asking Redis what this user may do")),
    };
    let code = error.code().unwrap_or("ERR");
    let unknown = error
        .detail()
        .is_some_and(|detail| detail.contains("unknown command"));
    Ok(match code {
        "NOPERM" => Refusal::Lacking,
        "ERR" if unknown => Refusal::Lacking,
        code => Refusal::Other(code.to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
