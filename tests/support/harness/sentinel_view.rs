//! A sentinel's view of its group.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::replication::ask;
use crate::{RedisServer, Reply, SentinelSetup};

#[derive(Debug)]
pub(crate) struct SentinelView {
    primary: HashMap<String, String>,
    replicas: Vec<HashMap<String, String>>,
}

impl SentinelView {
    pub(crate) fn of(sentinel: &RedisServer) -> Result<Self, String> {
        let name = SentinelSetup::NAME;
        let primary = ask(sentinel, &["SENTINEL", "MASTER", name])?;
        let Reply::Array(replicas) = ask(sentinel, &["SENTINEL", "REPLICAS", name])? else {
            return Err("no list of replicas".to_owned());
        };
        Ok(Self {
            primary: fields(&primary),
            replicas: replicas.iter().map(fields).collect(),
        })
    }

    /// Whether its view has the primary up and this many other sentinels.
    pub(crate) fn knows_primary(&self, others: usize) -> Result<(), String> {
        let others = others.to_string();
        let (flags, known) = (
            get(&self.primary, "flags"),
            get(&self.primary, "num-other-sentinels"),
        );
        if flags == "master" && known == others {
            return Ok(());
        }
        Err(format!(
            "to a sentinel the primary is {flags:?}, and it knows {known} others"
        ))
    }

    /// Whether a replica is up in its view.
    pub(crate) fn knows_replica(&self, addr: SocketAddr) -> Result<(), String> {
        let port = addr.port().to_string();
        let mut replicas = self.replicas.iter();
        let Some(replica) = replicas.find(|replica| get(replica, "port") == port) else {
            return Err(format!(
                "a sentinel does not know the replica on port {port}"
            ));
        };
        let (flags, link) = (get(replica, "flags"), get(replica, "master-link-status"));
        if flags == "slave" && link == "ok" {
            return Ok(());
        }
        Err(format!(
            "to a sentinel the replica on port {port} is {flags:?}, its link is {link:?}"
        ))
    }
}

/// Alternating names and values, as in replies of sentinels.
fn fields(reply: &Reply) -> HashMap<String, String> {
    let Reply::Array(words) = reply else {
        return HashMap::new();
    };
    let pairs = words.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].to_string(), pair[1].to_string()))
        .collect()
}

fn get<'a>(fields: &'a HashMap<String, String>, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}
