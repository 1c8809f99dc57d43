//! Parts common to replicated servers, in a cluster or not.

use std::collections::HashMap;
use std::process;
use std::time::SystemTime;

use crate::{RedisServer, RedisServerBuilder, Reply};

/// The user as which a group's members authenticate. A test may therefore change the default user freely.
#[derive(Debug, Clone)]
pub(crate) struct MemberUser {
    secret: String,
}

impl MemberUser {
    pub(crate) const NAME: &str = "idem-member";

    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        Self {
            secret: format!("{}-{now}", process::id()),
        }
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn allowed_on(&self, builder: RedisServerBuilder) -> RedisServerBuilder {
        builder.acl_user(Self::NAME, &format!("on >{} ~* &* +@all", self.secret))
    }

    /// Settings of a replicated server: replicas are in sync as soon as possible.
    pub(crate) fn settings(&self, builder: RedisServerBuilder) -> RedisServerBuilder {
        self.allowed_on(builder)
            .arg("--masteruser", Self::NAME)
            .arg("--masterauth", &self.secret)
            .arg("--repl-diskless-sync", "yes")
            .arg("--repl-diskless-sync-delay", "0")
            .arg("--repl-ping-replica-period", "1")
    }
}

/// A server's replication status.
#[derive(Debug)]
pub(crate) struct Replication(HashMap<String, String>);

impl Replication {
    pub(crate) fn of(server: &RedisServer) -> Result<Self, String> {
        let reply = ask(server, &["INFO", "replication"])?;
        let text = reply.to_string();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self(fields.collect()))
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.field("role") == "master"
    }

    /// The port of the primary with which a replica is in sync.
    pub(crate) fn primary_in_sync(&self) -> Result<u16, String> {
        let in_sync = self.field("role") == "slave"
            && self.field("master_link_status") == "up"
            && self.field("master_sync_in_progress") == "0";
        let port = self.field("master_port").parse();
        match port {
            Ok(port) if in_sync => Ok(port),
            _ => Err(format!(
                "it is a {} of port {}, its link is {}",
                self.field("role"),
                self.field("master_port"),
                self.field("master_link_status"),
            )),
        }
    }

    /// Number of connected replicas of a primary.
    pub(crate) fn online_replicas(&self) -> usize {
        let is_replica = |name: &str| {
            let number = name.strip_prefix("slave");
            number.is_some_and(|number| number.parse::<usize>().is_ok())
        };
        let replicas = self.0.iter().filter(|(name, _)| is_replica(name));
        replicas
            .filter(|(_, state)| state.contains("state=online"))
            .count()
    }

    fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("none", String::as_str)
    }
}

/// Queries a server; a refusal is an error.
pub(crate) fn ask<A: AsRef<[u8]>>(server: &RedisServer, command: &[A]) -> Result<Reply, String> {
    let port = server.port();
    match server.try_reply(command) {
        Ok(Reply::Error(error)) => Err(format!("the server on port {port} says {error:?}")),
        Ok(reply) => Ok(reply),
        Err(error) => Err(format!(
            "the server on port {port} does not answer: {error}"
        )),
    }
}
