//! Facts that a server reports about itself.

/// Memory use in bytes, and the eviction policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: Option<u64>,
    /// 0 for none.
    pub(super) limit: Option<u64>,
    pub(super) policy: Option<String>,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Persistence {
    pub(super) loading: bool,
    pub(super) append_only: Option<bool>,
    /// `always`, `everysec` or `no`: seldom available.
    pub(super) fsync: Option<String>,
    pub(super) append_failed: bool,
    /// Whether there are rules for snapshots: seldom available.
    pub(super) snapshots: Option<bool>,
    pub(super) snapshot_failed: bool,
}

/// Replication state of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) replicas: Option<usize>,
    pub(super) each: Vec<Replica>,
    /// How many of them are close enough, where the server counts them.
    pub(super) good: Option<u64>,
    /// How many of them a write needs: seldom available.
    pub(super) needed: Option<u64>,
    /// Of a replica: whether its link to the primary is up.
    pub(super) follows: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) state: String,
    pub(super) lag: Option<u64>,
}

impl Replica {
    /// Reads `ip=…,port=…,state=online,offset=…,lag=0`.
    pub(super) fn parse(value: &str) -> Self {
        let mut replica = Self {
            state: "unknown".to_owned(),
            lag: None,
        };
        for part in value.split(',') {
            match part.split_once('=') {
                Some(("state", state)) => state.clone_into(&mut replica.state),
                Some(("lag", lag)) => replica.lag = lag.parse().ok(),
                _ => {}
            }
        }
        replica
    }
}
