//! A group under Sentinel that loses its primary.

use std::net::{IpAddr, Ipv4Addr};

use idem_harness::{RedisServer, SentinelSetup, TcpProxy};
use idem_runtime::store::redis::{Durability, RedisStore};

use super::{Client, Fault};
use crate::sentinel_url;

/// A primary and two replicas, three sentinels, and a way to the sentinels that can be lost.
#[derive(Debug)]
pub struct Topology {
    pub(super) group: SentinelSetup,
    ways: Vec<TcpProxy>,
}

impl Topology {
    pub(super) fn start() -> Self {
        let group = SentinelSetup::builder().partitions().start();
        let ways = group.sentinel_addrs().into_iter().map(TcpProxy::start);
        let ways = ways.collect();
        Self { group, ways }
    }

    /// The first primary.
    pub fn old(&self) -> &RedisServer {
        &self.group.servers()[0]
    }

    /// The store of a client.
    pub(super) async fn connect(&self, client: Client, durability: Durability) -> RedisStore {
        let url = match client {
            Client::Stays => format!("redis://{}", self.group.announced_addr(self.old())),
            Client::Follows => sentinel_url(&self.group),
            Client::CutOff => {
                let ways: Vec<_> = self.ways.iter().map(|way| way.addr().to_string()).collect();
                let (ways, name) = (ways.join(","), SentinelSetup::NAME);
                format!("redis+sentinel://{ways}/{name}")
            }
        };
        let store = RedisStore::builder(url).durability(durability).connect();
        store.await.expect("the group is well")
    }

    /// When this returns, the fault is there.
    pub(super) fn strike(&self, fault: Fault) {
        let old = self.old();
        match fault {
            Fault::Parted(how) => self.group.isolate(old, how),
            Fault::PartedWithReplica(how) => {
                let replica = &self.group.servers()[1];
                self.group.isolate_together(&[old, replica], how);
            }
            Fault::Killed => old.kill(),
            Fault::Stopped => old.pause(),
        }
        if let Some(how) = fault.partition() {
            for way in &self.ways {
                way.separate(IpAddr::V4(Ipv4Addr::LOCALHOST), how);
            }
        }
    }

    /// The index of the server that is elected.
    pub(super) fn await_new_primary(&self) -> usize {
        let new = self.group.await_new_primary(self.old());
        let mut servers = self.group.servers().iter();
        let index = servers.position(|server| server.port() == new.port());
        index.expect("it is one of the group")
    }

    /// Lets the former primary go on when the other replica has left it: until then, that one confirms
    /// what it writes.
    pub(super) fn resume(&self) {
        self.group.await_settled();
        self.old().resume();
    }

    /// Ends the fault, and waits until the former primary is a replica.
    pub fn heal(&self) {
        self.group.heal();
        for way in &self.ways {
            way.rejoin();
        }
        if !self.old().is_running() {
            self.old().restart();
        }
        self.group.await_replica(self.old());
    }
}
