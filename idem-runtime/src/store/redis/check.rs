//! What the server says about itself when a store connects, and what to think of it.

use std::fmt;

use redis::Value;
use tokio::task::JoinSet;

use super::super::{StoreError, StoreErrorKind};
use super::address::{pairs, text};
use super::link::Failure;
use super::node::Node;
use super::route::Route;

/// The oldest server whose scripts and commands do all that is needed.
const OLDEST: (u32, u32) = (6, 2);

/// What is known of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Major, minor, patch.
    pub version: Option<(u32, u32, u32)>,
    /// `master` or `replica`.
    pub role: Option<String>,
    /// `standalone`, `sentinel` or `cluster`.
    pub mode: Option<String>,
    /// What the server does when its memory is full.
    pub maxmemory_policy: Option<String>,
    /// Its limit in bytes; 0 for none.
    pub maxmemory: Option<u64>,
}

impl Server {
    /// Asks a server, or all primaries of a cluster that answer.
    pub(super) async fn ask(route: &Route) -> Result<Self, StoreError> {
        let cluster = match route {
            Route::Node(node) => return Self::ask_one(node).await,
            Route::Cluster(cluster) => cluster,
        };
        let mut asked = JoinSet::new();
        for (_, node) in cluster.primaries().await? {
            asked.spawn(async move { Self::ask_one(&node).await });
        }
        let mut found: Option<Self> = None;
        let mut failure = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(server)) => {
                    found = Some(match found {
                        Some(found) => found.and(server),
                        None => server,
                    });
                }
                // One that is down now may be replaced soon: the others are there.
                Ok(Err(error)) if error.is_transient() => failure = Some(error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        found.ok_or_else(|| failure.unwrap_or_else(no_primary))
    }

    /// What holds for both: scripts run on either, and a record may be lost on the worse of them.
    fn and(self, other: Self) -> Self {
        // `None` is less than any: it is taken for the oldest.
        let version = self.version.min(other.version);
        let worse = if other.concern() > self.concern() {
            other
        } else {
            self
        };
        Self { version, ..worse }
    }

    /// How bad what the server does when its memory is full may be.
    fn concern(&self) -> u8 {
        match self.maxmemory_policy.as_deref() {
            _ if self.evicts() => 3,
            None => 2,
            Some("noeviction") => 0,
            Some(_) => 1,
        }
    }

    /// Asks `HELLO`, which every user may, and `INFO`, which a restricted user may not.
    async fn ask_one(node: &Node) -> Result<Self, StoreError> {
        let mut server = Self::default();
        match node.ask(&redis::cmd("HELLO")).await {
            Ok(reply) => server.hello(reply),
            // Without a connection, or the right to use it, nothing will work; without HELLO (a
            // proxy, an old server) only these facts are missing.
            Err(Failure::Connect(error)) => return Err(error),
            Err(failure) => {
                let error = failure.store_error("asking Redis for its version");
                if error.kind() != StoreErrorKind::Protocol && !is_denied(&error) {
                    return Err(error);
                }
            }
        }
        for section in ["memory", "server", "replication"] {
            match node.ask(redis::cmd("INFO").arg(section)).await {
                Ok(reply) => server.info(&reply),
                Err(failure) => {
                    let error = failure.store_error("asking Redis about itself");
                    // Silence is no refusal: the server may evict, and was about to say so.
                    if error.is_transient() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(server)
    }

    fn hello(&mut self, reply: Value) {
        for (name, value) in pairs(reply).unwrap_or_default() {
            match (text(&name).as_deref(), text(&value)) {
                (Some("version"), Some(version)) => self.version = parse_version(&version),
                (Some("role"), Some(role)) => self.role = Some(role),
                (Some("mode"), Some(mode)) => self.mode = Some(mode),
                _ => {}
            }
        }
    }

    fn info(&mut self, reply: &Value) {
        for line in text(reply).unwrap_or_default().lines() {
            match line.split_once(':') {
                Some(("maxmemory_policy", policy)) => {
                    self.maxmemory_policy = Some(policy.to_owned());
                }
                Some(("maxmemory", bytes)) => self.maxmemory = bytes.parse().ok(),
                Some(("redis_version", version)) if self.version.is_none() => {
                    self.version = parse_version(version);
                }
                Some(("redis_mode", mode)) if self.mode.is_none() => {
                    self.mode = Some(mode.to_owned());
                }
                Some(("role", role)) if self.role.is_none() => {
                    // HELLO says `replica` where INFO still says `slave`.
                    let role = if role == "slave" { "replica" } else { role };
                    self.role = Some(role.to_owned());
                }
                _ => {}
            }
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.mode.as_deref() == Some("cluster")
    }

    /// Whether scripts may declare what they do (`#!lua flags=…`).
    pub(super) fn reads_declarations(&self) -> bool {
        self.version.is_some_and(|(major, ..)| major >= 7)
    }

    /// The command that tells who waits: in a cluster the one that stays in the shard of the key,
    /// where there is one, since the other tells every node.
    pub(super) fn publish(&self) -> &'static str {
        match self.mode.as_deref() {
            Some("cluster") if self.version.is_some_and(|(major, ..)| major >= 7) => "SPUBLISH",
            _ => "PUBLISH",
        }
    }

    /// Refuses a server on which the guarantee cannot hold.
    pub(super) fn refuse(&self, allow_eviction: bool) -> Result<(), StoreError> {
        let refused = |message: String| Err(StoreError::new(StoreErrorKind::Refused, message));
        if let Some((major, minor, patch)) = self.version
            && (major, minor) < OLDEST
        {
            return refused(format!(
                "Redis {major}.{minor}.{patch} is too old; {}.{} or newer is needed",
                OLDEST.0, OLDEST.1
            ));
        }
        match &self.maxmemory_policy {
            Some(policy) if self.evicts() && !allow_eviction => refused(format!(
                "Redis evicts keys when its memory is full (`maxmemory-policy {policy}`), and an \
                 evicted record lets its body run again; set `maxmemory-policy noeviction`, or \
                 accept it by `allow_eviction`"
            )),
            _ => Ok(()),
        }
    }

    fn evicts(&self) -> bool {
        self.maxmemory_policy
            .as_ref()
            .is_some_and(|policy| policy != "noeviction")
            && self.maxmemory != Some(0)
    }

    /// What an operator should know, a sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match &self.maxmemory_policy {
            None => warnings.push(
                "Redis does not tell this user its `maxmemory-policy` (INFO is not allowed); make \
                 sure that it is `noeviction`, since an evicted record lets its body run again"
                    .to_owned(),
            ),
            Some(policy) if self.evicts() => warnings.push(format!(
                "Redis evicts keys when its memory is full (`maxmemory-policy {policy}`): the \
                 guarantee ends there"
            )),
            Some(policy) if policy != "noeviction" => warnings.push(format!(
                "Redis has `maxmemory-policy {policy}`, which will evict records as soon as a \
                 `maxmemory` is set; set `noeviction`"
            )),
            Some(_) => {}
        }
        if self.role.as_deref() == Some("replica") {
            warnings.push(
                "this Redis is a replica: claims will be refused as long as it is read-only; \
                 connect to the primary"
                    .to_owned(),
            );
        }
        if self.version.is_none() {
            warnings.push(format!(
                "Redis does not tell its version; {}.{} or newer is needed, and is taken for older \
                 than 7: a full memory then also refuses finished answers",
                OLDEST.0, OLDEST.1
            ));
        }
        warnings
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some((major, minor, patch)) => write!(f, "Redis {major}.{minor}.{patch}")?,
            None => f.write_str("Redis of unknown version")?,
        }
        let unknown = "unknown";
        let role = self.role.as_deref().unwrap_or(unknown);
        let policy = self.maxmemory_policy.as_deref().unwrap_or(unknown);
        write!(f, ", role {role}, maxmemory-policy {policy}")
    }
}

fn no_primary() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "connecting to Redis: the cluster has no primary; look at `CLUSTER INFO`",
    )
}

fn is_denied(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Refused && error.to_string().ends_with("[NOPERM]")
}

/// What a server says that it is in its answer to `HELLO`.
pub(super) fn role(hello: Value) -> Option<String> {
    let mut server = Server::default();
    server.hello(hello);
    server.role
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit());
        part[..digits.unwrap_or(part.len())].parse().ok()
    });
    Some((
        parts.next()??,
        parts.next()??,
        parts.next().flatten().unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(info: &str) -> Server {
        let mut server = Server::default();
        server.info(&Value::BulkString(info.as_bytes().to_vec()));
        server
    }

    #[test]
    fn versions_are_read_in_every_form() {
        assert_eq!(parse_version("7.0.15"), Some((7, 0, 15)));
        assert_eq!(parse_version("8.2-rc1"), Some((8, 2, 0)));
        assert_eq!(parse_version("6.2"), Some((6, 2, 0)));
        assert_eq!(parse_version("unstable"), None);
    }

    #[test]
    fn only_a_cluster_that_can_publishes_in_the_shard() {
        for (info, command) in [
            ("redis_version:7.0.0\r\nredis_mode:cluster\r\n", "SPUBLISH"),
            ("redis_version:6.2.9\r\nredis_mode:cluster\r\n", "PUBLISH"),
            (
                "redis_version:7.0.0\r\nredis_mode:standalone\r\n",
                "PUBLISH",
            ),
            ("redis_mode:cluster\r\n", "PUBLISH"),
            ("redis_version:7.0.0\r\n", "PUBLISH"),
        ] {
            assert_eq!(server(info).publish(), command, "{info}");
        }
    }

    #[test]
    fn an_evicting_server_is_refused_unless_allowed() {
        let evicting = server("maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n");
        let error = evicting.refuse(false).unwrap_err();
        assert!(error.to_string().contains("maxmemory-policy volatile-lru"));
        assert!(evicting.refuse(true).is_ok());
        assert!(evicting.warnings()[0].contains("guarantee ends"));
    }

    #[test]
    fn a_policy_without_a_limit_is_only_warned_about() {
        let idle =
            server("redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert!(idle.refuse(false).is_ok());
        assert_eq!(idle.warnings().len(), 1);
    }

    #[test]
    fn of_the_nodes_of_a_cluster_the_oldest_and_the_one_that_evicts_count() {
        let fine =
            || server("redis_version:7.2.0\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction\r\n");
        let old = || server("redis_version:6.2.0\r\nmaxmemory_policy:noeviction\r\n");
        let evicts =
            || server("redis_version:7.0.0\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n");
        let quiet = || server("");
        for (one, other) in [(fine(), old()), (old(), fine())] {
            assert_eq!(one.and(other).version, Some((6, 2, 0)));
        }
        for both in [
            fine().and(evicts()),
            evicts().and(fine()),
            quiet().and(evicts()),
        ] {
            assert!(both.refuse(false).is_err(), "{both}");
        }
        for both in [fine().and(quiet()), quiet().and(fine())] {
            assert!(
                both.version.is_none() && both.maxmemory_policy.is_none(),
                "{both}"
            );
        }
    }

    #[test]
    fn an_old_server_is_refused() {
        let old = server("redis_version:6.0.16\r\n");
        let error = old.refuse(true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Redis 6.0.16 is too old; 6.2 or newer is needed"
        );
    }

    #[test]
    fn a_replica_is_warned_about() {
        let replica =
            server("redis_version:7.2.4\r\nrole:slave\r\nmaxmemory_policy:noeviction\r\n");
        assert_eq!(replica.warnings().len(), 1);
        assert!(replica.warnings()[0].contains("replica"));
    }
}
