//! A cluster node's view of the cluster.

use std::ops::RangeInclusive;

use crate::RedisServer;
use crate::replication::ask;

#[derive(Debug)]
pub(crate) struct ClusterView {
    nodes: Vec<NodeView>,
}

/// A line of `CLUSTER NODES`.
#[derive(Debug, Default)]
pub(crate) struct NodeView {
    pub(crate) id: String,
    pub(crate) port: u16,
    flags: Vec<String>,
    primary: Option<String>,
    epoch: u64,
    connected: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl ClusterView {
    pub(crate) fn of(server: &RedisServer) -> Result<Self, String> {
        let reply = ask(server, &["CLUSTER", "NODES"])?.to_string();
        let nodes = reply.lines().map(NodeView::parse);
        let nodes = nodes.collect::<Option<_>>();
        let nodes = nodes.ok_or_else(|| format!("not a list of nodes: {reply:?}"))?;
        Ok(Self { nodes })
    }

    pub(crate) fn myself(self) -> Result<NodeView, String> {
        let mut nodes = self.nodes.into_iter();
        let myself = nodes.find(|node| node.has("myself"));
        myself.ok_or_else(|| "a node does not know itself".to_owned())
    }

    /// The node on a port. It must be known, connected and not suspected to be down.
    pub(crate) fn healthy(&self, port: u16) -> Result<&NodeView, String> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.port == port);
        let node = node.ok_or_else(|| format!("the node on port {port} is not known"))?;
        let doubt = ["fail", "fail?", "handshake", "noaddr"];
        if let Some(doubt) = doubt.into_iter().find(|flag| node.has(flag)) {
            return Err(format!("the node on port {port} is flagged {doubt:?}"));
        }
        if !node.connected && !node.has("myself") {
            return Err(format!("the node on port {port} is not connected"));
        }
        Ok(node)
    }
}

impl NodeView {
    /// `<id> <host>:<port>@<bus>[,…] <flags> <primary> <ping> <pong> <epoch> <link> <slot> …`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let (addr, _) = words.next()?.split_once('@')?;
        let (_, port) = addr.rsplit_once(':')?;
        let flags = words.next()?.split(',').map(str::to_owned);
        let primary = words.next()?;
        let mut words = words.skip(2);
        Some(Self {
            id,
            port: port.parse().ok()?,
            flags: flags.collect(),
            primary: (primary != "-").then(|| primary.to_owned()),
            epoch: words.next()?.parse().ok()?,
            connected: words.next()? == "connected",
            // Slots in brackets are being migrated.
            slots: words.filter_map(slots).collect(),
        })
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.has("master")
    }

    pub(crate) fn is_replica_of(&self, primary: &Self) -> bool {
        self.primary.as_ref() == Some(&primary.id)
    }

    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.is_primary() && self.slots.iter().any(|slots| slots.contains(&slot))
    }

    pub(crate) fn serves_any(&self) -> bool {
        self.is_primary() && !self.slots.is_empty()
    }

    /// Of two nodes that claim a slot, the higher epoch owns it.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether two descriptions of the same node are equal.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.id == other.id
            && self.is_primary() == other.is_primary()
            && self.primary == other.primary
            && self.slots == other.slots
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|candidate| candidate == flag)
    }
}

fn slots(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
