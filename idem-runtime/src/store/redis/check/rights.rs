//! The user's rights, and whether the server takes writes at present.

use redis::{RedisError, Value};

use super::super::super::StoreError;
use super::super::link::Failure;
use super::facts::text;
use super::{Ask, Durability, Server};
use crate::record::Owner;

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

/// Knowledge about the user's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rights {
    /// Not checked yet.
    #[default]
    Untried,
    /// The check failed: why.
    Unknown(String),
    /// The check succeeded.
    Known(Known),
}

/// Missing rights, in the notation of `ACL SETUSER`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The prefix that was checked.
    pub(super) prefix: String,
    /// Rights without which calls are refused.
    pub(super) needed: Vec<String>,
    /// Rights without which waiting calls poll.
    pub(super) told: Vec<String>,
    /// Whether the user may subscribe is unknown without a subscription.
    pub(super) subscribing_untried: bool,
}

impl Known {
    /// All rights that the user lacks.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.needed.iter().chain(&self.told).map(String::as_str)
    }
}

/// Why writes are refused at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoWrites {
    OutOfMemory,
    Disk,
    TooFewReplicas,
    ReadOnly,
    NoPrimary,
}

impl NoWrites {
    /// Parses an error, which may be wrapped into that of a script (Redis 6).
    fn parse(said: &str) -> Option<Self> {
        [
            ("OOM", Self::OutOfMemory),
            ("MISCONF", Self::Disk),
            ("NOREPLICAS", Self::TooFewReplicas),
            ("READONLY", Self::ReadOnly),
            ("MASTERDOWN", Self::NoPrimary),
            ("CLUSTERDOWN", Self::NoPrimary),
            // A script's text for it.
            ("cluster is down", Self::NoPrimary),
        ]
        .into_iter()
        .find_map(|(code, why)| said.contains(code).then_some(why))
    }
}

impl Server {
    /// Checks the user's rights under this prefix.
    pub(super) async fn try_rights(
        &mut self,
        to: &impl Ask,
        prefix: &str,
    ) -> Result<(), StoreError> {
        let [publish, subscribe, unsubscribe] = self.telling();
        let mut probe = redis::cmd("EVAL");
        probe.arg(PROBE).arg(0).arg(unused_name(prefix));
        probe.arg(publish).arg(subscribe).arg(unsubscribe);
        if self.durability != Durability::Acknowledged {
            probe.arg("WAIT");
        }
        if self.is_cluster() {
            probe.arg("CLUSTER|SLOTS").arg("ASKING");
        }
        let found = match to.ask(&probe).await {
            Ok(reply) => reply,
            Err(failure) => {
                self.rights = match refused(failure)? {
                    Refused::Lacking => Rights::Known(Known {
                        prefix: prefix.to_owned(),
                        needed: vec!["+eval".to_owned()],
                        ..Known::default()
                    }),
                    Refused::Other(code) => Rights::Unknown(code),
                };
                return Ok(());
            }
        };
        let Some(mut found) = Found::parse(&found) else {
            self.rights = Rights::Unknown("its answer is not that of the script".to_owned());
            return Ok(());
        };
        self.no_writes = NoWrites::parse(&found.write);
        // A script may not call it, so the script could not try.
        if found.tried && self.lacks_evalsha(to).await? {
            found.refused.insert(0, "+evalsha".to_owned());
        }
        self.rights = Rights::Known(sorted(prefix, [publish, subscribe], found.refused));
        if let Rights::Known(known) = &mut self.rights {
            known.subscribing_untried = found.tried;
        }
        if found.settings {
            self.ask_settings(to).await?;
        }
        Ok(())
    }

    async fn lacks_evalsha(&self, to: &impl Ask) -> Result<bool, StoreError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg("0".repeat(40)).arg(0);
        match to.ask(&command).await {
            Ok(_) => Ok(false),
            Err(failure) => Ok(matches!(refused(failure)?, Refused::Lacking)),
        }
    }

    /// Queries settings that `INFO` does not contain. Few users have the right.
    async fn ask_settings(&mut self, to: &impl Ask) -> Result<(), StoreError> {
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
            match to.ask(&command).await {
                Ok(reply) => self.settings(reply),
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

/// How a server refused.
enum Refused {
    /// The user has no right to the command, or the server does not have it.
    Lacking,
    /// Another refusal: its code, or a description.
    Other(String),
}

/// Classifies a refusal; an error if the server is gone.
fn refused(failure: Failure) -> Result<Refused, StoreError> {
    let error = match failure {
        Failure::Reply(error) if is_answer(&error) => error,
        // Writes may have to wait, as in a planned failover; the server answered before.
        Failure::Reply(error) if error.is_timeout() => {
            return Ok(Refused::Other("no reply in time".to_owned()));
        }
        failure => return Err(failure.store_error("asking Redis what this user may do")),
    };
    let code = error.code().unwrap_or("ERR");
    let unknown = error
        .detail()
        .is_some_and(|detail| detail.contains("unknown command"));
    Ok(match code {
        "NOPERM" => Refused::Lacking,
        "ERR" if unknown => Refused::Lacking,
        code => Refused::Other(code.to_owned()),
    })
}

fn is_answer(error: &RedisError) -> bool {
    !(error.is_timeout() || error.is_connection_dropped() || error.is_io_error())
}

/// The findings of the script.
struct Found {
    tried: bool,
    write: String,
    settings: bool,
    refused: Vec<String>,
}

impl Found {
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
            // Where the right is unknown, the server itself refuses.
            settings: settings != "0",
            refused: refused.collect::<Option<_>>()?,
        })
    }
}

/// Separates required rights from those for notifications, and a missing prefix from its commands.
fn sorted(prefix: &str, telling: [&str; 2], refused: Vec<String>) -> Known {
    let [publish, subscribe] = telling.map(|command| format!("+{}", command.to_lowercase()));
    let is_needed =
        |right: &String| ON_KEYS.contains(&right.as_str()) || BESIDES.contains(&right.as_str());
    let (mut needed, mut told): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_needed);
    if ON_KEYS
        .iter()
        .all(|right| needed.iter().any(|r| r == right))
    {
        // Hardly one by one: the user may not touch the keys.
        needed.retain(|right| !ON_KEYS.contains(&right.as_str()));
        needed.insert(0, format!("~{prefix}:*"));
    }
    if told.contains(&publish) && told.contains(&subscribe) {
        // The commands or the channel: one ACL line grants both.
        told.insert(0, format!("&{prefix}:*"));
    }
    Known {
        prefix: prefix.to_owned(),
        needed,
        told,
        subscribing_untried: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(refused: &[&str]) -> Vec<String> {
        let refused = refused.iter().map(|&right| right.to_owned()).collect();
        let known = sorted("shop", ["PUBLISH", "SUBSCRIBE"], refused);
        known.missing().map(str::to_owned).collect()
    }

    #[test]
    fn a_prefix_that_is_out_of_reach_is_named_instead_of_its_commands() {
        let mut all = ON_KEYS.to_vec();
        assert_eq!(missing(&all), ["~shop:*"]);
        all.push("+time");
        assert_eq!(missing(&all), ["~shop:*", "+time"]);
        assert_eq!(missing(&all[1..3]), all[1..3]);
    }

    #[test]
    fn a_channel_that_may_be_out_of_reach_is_named_too() {
        let both = ["+publish", "+subscribe"];
        assert_eq!(missing(&both), ["&shop:*", "+publish", "+subscribe"]);
        assert_eq!(missing(&both[..1]), both[..1]);
    }

    #[test]
    fn a_refused_write_is_understood_in_every_form() {
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

    #[test]
    fn a_reply_that_is_not_the_scripts_is_not_taken_for_one() {
        let parse = |parts: &[&str]| {
            let parts = parts
                .iter()
                .map(|part| Value::SimpleString((*part).to_owned()));
            Found::parse(&Value::Array(parts.collect()))
        };
        assert!(parse(&["asked", ""]).is_none());
        let found = parse(&["tried", "", "", "GET"]).unwrap();
        assert!(found.tried && found.settings);
        assert_eq!(found.refused, ["+get"]);
        assert!(Found::parse(&Value::Okay).is_none());
    }

    #[test]
    fn the_probe_has_a_name_that_no_record_has() {
        let (one, other) = (unused_name("idem"), unused_name("idem"));
        assert_ne!(one, other);
        assert_eq!(one.matches(':').count(), 1, "a record's name has two");
        assert!(one.starts_with("idem:"));
    }
}
