//! A network between the members of a group, with partitions.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use crate::{RedisServer, TcpProxy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// Links are cut, and new ones are cut at once.
    Cut,
    /// Links stay open, and all their data is dropped.
    Silent,
}

/// Proxies in front of the servers of a group. The servers announce the proxies' addresses, so
/// members and clients alike connect through them; members connect from loopback addresses of their
/// own, by which a proxy distinguishes them from clients and from each other.
#[derive(Debug)]
pub(crate) struct Network {
    proxies: Vec<TcpProxy>,
    watchers: usize,
    isolated: Mutex<HashSet<usize>>,
}

impl Network {
    /// Puts a proxy before each server. From now on a server announces its proxy and connects from its own address.
    /// Other members must not have learned of the server before.
    pub(crate) fn between(servers: &[RedisServer], watchers: usize) -> Self {
        let proxies: Vec<_> = servers
            .iter()
            .map(|server| TcpProxy::start(server.addr()))
            .collect();
        for ((server, proxy), number) in servers.iter().zip(&proxies).zip(0..) {
            let (source, port) = (source(number), proxy.addr().port().to_string());
            server.cli(&["CONFIG", "SET", "replica-announce-ip", "127.0.0.1"]);
            server.cli(&["CONFIG", "SET", "replica-announce-port", &port]);
            if names_source(server) {
                server.cli(&["CONFIG", "SET", "bind-source-addr", &source.to_string()]);
            }
        }
        Self {
            proxies,
            watchers,
            isolated: Mutex::default(),
        }
    }

    /// Announced address of a server, for members and clients.
    pub(crate) fn announced(&self, server: usize) -> SocketAddr {
        self.proxies[server].addr()
    }

    /// Separates servers from all other members, though not from each other. Clients still reach
    /// them.
    pub(crate) fn isolate(&self, servers: &[usize], how: Partition) {
        self.isolated().extend(servers);
        for &server in servers {
            for (index, proxy) in self.proxies.iter().enumerate() {
                if !servers.contains(&index) {
                    proxy.separate(source(server), how);
                    self.proxies[server].separate(source(index), how);
                }
            }
            for watcher in 0..self.watchers {
                self.proxies[server].separate(self.watcher_source(watcher), how);
            }
        }
    }

    pub(crate) fn is_isolated(&self, server: usize) -> bool {
        self.isolated().contains(&server)
    }

    pub(crate) fn heal(&self) {
        self.isolated().clear();
        for proxy in &self.proxies {
            proxy.rejoin();
        }
    }

    /// Source address of a watcher's connections.
    pub(crate) fn watcher_source(&self, watcher: usize) -> IpAddr {
        source(self.proxies.len() + watcher)
    }

    fn isolated(&self) -> std::sync::MutexGuard<'_, HashSet<usize>> {
        self.isolated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source address of a member's connections.
pub(crate) fn source(member: usize) -> IpAddr {
    let number = u8::try_from(member + 1).expect("a group is small");
    Ipv4Addr::new(127, 0, 1, number).into()
}

/// Whether the source address is a separate setting, as since Redis 7. Before, it is the first address that a server
/// listens on.
pub(crate) fn names_source(server: &RedisServer) -> bool {
    !server
        .cli(&["CONFIG", "GET", "bind-source-addr"])
        .is_empty()
}
