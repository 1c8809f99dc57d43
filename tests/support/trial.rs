//! Effects of a failover: calls continue while a primary is lost, and the calls whose body ran are
//! repeated on the new one.

mod calls;
mod outcome;
mod topology;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use idem_harness::{Partition, until};
use idem_runtime::store::redis::Durability;
use tokio::runtime::{Builder, Runtime};

pub use self::calls::{Call, Calls};
pub use self::outcome::{Seen, Tally};
pub use self::topology::Topology;

/// Way of losing a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Separated from its replicas and from the sentinels, not from clients.
    Parted(Partition),
    /// Separated together with one of its two replicas.
    PartedWithReplica(Partition),
    /// `kill -9`.
    Killed,
    /// `SIGSTOP`, and `SIGCONT` as soon as the others follow another primary.
    Stopped,
}

impl Fault {
    /// All faults under test.
    pub const ALL: [Self; 5] = [
        Self::Parted(Partition::Cut),
        Self::Parted(Partition::Silent),
        Self::Killed,
        Self::Stopped,
        Self::PartedWithReplica(Partition::Cut),
    ];

    /// Partition of its links, if the fault is one.
    #[must_use]
    pub fn partition(self) -> Option<Partition> {
        match self {
            Self::Parted(how) | Self::PartedWithReplica(how) => Some(how),
            Self::Killed | Self::Stopped => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parted(Partition::Cut) => "partition, links cut",
            Self::Parted(Partition::Silent) => "partition, silent",
            Self::PartedWithReplica(Partition::Cut) => "partition, links cut, one replica inside",
            Self::PartedWithReplica(Partition::Silent) => "partition, silent, one replica inside",
            Self::Killed => "primary `kill -9`",
            Self::Stopped => "primary `SIGSTOP`",
        })
    }
}

/// Durability of the writes, and the servers' requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On servers without requirements.
    Plain(Durability),
    /// [`Durability::Acknowledged`], on servers with `min-replicas-to-write 1` and
    /// `min-replicas-max-lag 2`.
    MinReplicas,
}

impl Mode {
    /// All modes under test.
    pub const ALL: [Self; 4] = [
        Self::Plain(Durability::Acknowledged),
        Self::MinReplicas,
        Self::Plain(Durability::Replicated(1)),
        Self::Plain(Durability::Replicated(2)),
    ];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(durability) => write!(f, "`{durability:?}`"),
            Self::MinReplicas => f.write_str("`min-replicas-to-write 1`"),
        }
    }
}

/// The addresses that a store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The address of the first primary.
    Stays,
    /// The sentinels.
    Follows,
    /// The sentinels, from which a partition separates it as well: it is on the primary's side.
    CutOff,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stays => "stays",
            Self::Follows => "follows",
            Self::CutOff => "cut off",
        })
    }
}

/// Minimum number of bodies of each client, so that a count of zero is significant.
pub const ENOUGH: usize = 100;

/// One fault in one mode.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Fault that loses the primary.
    pub fault: Fault,
    /// Durability of the writes.
    pub mode: Mode,
    /// Concurrent calls of one client.
    pub tasks: usize,
    /// Pause of a caller after each call.
    pub pause: Duration,
    /// Minimum time of calls before the fault. Each client then has [`ENOUGH`] answers.
    pub before: Duration,
    /// Time of calls after the election of another primary.
    pub after: Duration,
    /// Deadline of an engine's claims and completions.
    pub patience: Duration,
}

impl Trial {
    /// A short trial.
    #[must_use]
    pub fn new(fault: Fault, mode: Mode) -> Self {
        Self {
            fault,
            mode,
            tasks: 16,
            pause: Duration::from_millis(5),
            before: Duration::ZERO,
            after: Duration::from_millis(1_500),
            patience: Duration::from_millis(500),
        }
    }

    /// The clients that call.
    fn clients(&self) -> &'static [Client] {
        match self.fault.partition() {
            Some(_) => &[Client::Stays, Client::Follows, Client::CutOff],
            None => &[Client::Stays, Client::Follows],
        }
    }

    /// Calls, injects the fault, waits for another primary, and continues to call.
    #[must_use]
    pub fn run(self) -> Seen {
        let topology = Topology::start(self.mode);
        let runtime = runtime();
        let engines = self.clients().iter().map(|&client| {
            let store = topology.connect(client, self.mode);
            let store = runtime.block_on(store);
            (client, calls::engine(store, self.patience))
        });
        let engines: Vec<_> = engines.collect();
        let going = engines.into_iter().map(|(client, engine)| {
            let calls = Calls::start(&runtime, engine, self.tasks, self.pause);
            (client, calls)
        });
        let mut going: Vec<_> = going.collect();
        thread::sleep(self.before);
        for (client, calls) in &going {
            until("each client has answers", || match calls.answered() {
                answered if answered < ENOUGH => Err(format!("{client}: only {answered}")),
                _ => Ok(()),
            });
        }
        let striking = Instant::now();
        topology.strike(self.fault);
        let struck = Instant::now();
        let new = topology.await_new_primary();
        let elected = Instant::now();
        if self.fault == Fault::Stopped {
            topology.resume();
        }
        thread::sleep(self.after);
        for (_, calls) in &mut going {
            calls.stop();
        }
        for (_, calls) in &mut going {
            runtime.block_on(calls.ended());
        }
        Seen {
            going,
            runtime,
            topology,
            new,
            striking,
            struck,
            elected,
        }
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads can be started")
}
