//! Durability of writes.

/// When a write counts as stored.
///
/// # Guarantees of Redis in a failover
///
/// A primary sends a write to its replicas after it has replied. A promoted replica may lack that write, and a
/// primary that is cut off goes on granting claims until it learns of its successor: all of these writes
/// are forgotten, and bodies run again.
///
/// Measured with Redis 7.0.15 under Sentinel, a primary with two replicas: calls with fresh keys go on
/// for 1.5 s after another primary is elected, then another process calls each key whose body ran
/// again, on the new primary. Bodies that ran a **second time**, of all bodies that ran:
///
/// | the primary | the client | `Acknowledged` | the same with `min-replicas-to-write 1`, `min-replicas-max-lag 2` | `Replicated(1)` | `Replicated(2)` |
/// | --- | --- | --: | --: | --: | --: |
/// | is parted, links cut | stays | 17,960 of 21,888 | 23 of 800 | **0** of 1,085 | **0** of 1,508 |
/// | | follows | 13,449 of 28,138 | 7 of 16,337 | **0** of 2,456 | **0** of 1,501 |
/// | is parted, links silent | stays | 25,763 of 31,353 | 19,309 of 24,633 | **0** of 1,189 | **0** of 1,110 |
/// | | follows | 20,750 of 44,081 | 21,443 of 35,086 | **0** of 2,969 | **0** of 1,116 |
/// | is stopped, and goes on when the others follow its successor | stays | 19,118 of 27,737 | 0 of 11,558 | **0** of 1,402 | **0** of 1,989 |
/// | | follows | 0 of 44,549 | 0 of 32,465 | **0** of 6,497 | **0** of 1,994 |
/// | is parted together with one replica | stays | 23,365 of 28,947 | 35,350 of 42,732 | 7,904 of 9,062 | **0** of 1,262 |
/// | | follows | 11,184 of 33,174 | 17,552 of 24,938 | 4,030 of 5,204 | **0** of 1,247 |
///
/// *Stays*: the client knows the URL of that server. *Follows*: it knows the sentinels (`redis+sentinel://…`), and
/// leaves when they name another primary, 2 to 3 s after the fault here. A client that is parted from the
/// sentinels as well behaves as one that stays. A primary that was killed forgot nothing, on loopback
/// where replicas do not lag. `cargo bench -p idem-tests --bench failover` makes the whole table.
///
/// A failover started by an operator is no better: `SENTINEL FAILOVER` promotes a replica while the old
/// primary goes on, for most of a second here (`tests/stores/redis/failover`: 161 to 212 of 2,000 keys got two
/// answers with `Acknowledged`, none with `Replicated(2)`). `CLUSTER FAILOVER` stops it first, and
/// forgot nothing.
///
/// Where too few replicas are left, `Replicated` grants nothing: calls at the former primary are
/// refused, and work again once the client reaches the new one.
///
/// # Limits of replication
///
/// - **No consensus.** A write survives if the promoted replica has it. Sentinels promote the replica
///   that is furthest among the replicas that they see, whichever replicas confirmed the write; an operator, or
///   `replica-priority`, may choose another. As the last rows show, a replica that is lost together
///   with the primary confirms as well; so does one that does not follow the new one yet. Require most
///   of the replicas at least; only all of them is safe whichever is promoted, and then nothing is
///   granted while one is missing, as after each failover until the former primary is back.
/// - **No wait for the answer.** The caller receives it in any case, and so do callers at the former
///   primary. Where the claim is on the new primary and the answer is not, the key counts as running
///   until its lease ends, and may then run again as after a crash. A client that knows the sentinels
///   stores its answers there as soon as it can, so give it these.
/// - **Not only your replicas.** Every acknowledgement of replication is counted, a backup tool's too; and
///   behind a proxy that shares its connections among clients, `WAIT` proves nothing.
/// - **Not free.** Claims, renewals and answers take one more round trip and the time in which the replicas
///   confirm them, on one of eight connections; with too few replicas they keep one for half of
///   `response_timeout` each. Leases that cannot be renewed in this way are lost.
///
/// [`WAIT`](https://redis.io/docs/latest/commands/wait/) covers the writes of its own connection: from
/// Redis 7.2 on up to its last write, before that up to its last command. So a claim or an answer that
/// is sent again writes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the server has it. A failover can forget a write that has not reached its replicas yet: a claim,
    /// so that its body runs again, or an answer.
    #[default]
    Acknowledged,
    /// When so many replicas have it as well: claims, renewals and answers are each followed by
    /// `WAIT`. With too few replicas nothing is granted, and the claim is released; finished
    /// answers are still replayed.
    ///
    /// Replays wait for no replica. While replicas are away, they may give an answer that is not on them
    /// yet: if a failover follows, and the owner that ran the body can no longer store it there, the body
    /// runs again, a lease later.
    Replicated(u32),
}

/// Whether the durability of the store applies to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteConcern {
    /// No: a failover may forget its write, if it writes.
    Local,
    /// Yes: its write must survive a failover.
    Replicated,
}
