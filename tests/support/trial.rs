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
use tokio::runtime::Builder;

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
    /// Partition of its links, if the fault is one.
    pub fn partition(self) -> Option<Partition> {
        match self {
            Self::Parted(how) | Self::PartedWithReplica(how) => Some(how),
            Self::Killed | Self::Stopped => None,
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
        fmt::Debug::fmt(self, f)
    }
}

/// Minimum number of bodies of each client, so that a count of zero is significant.
pub const ENOUGH: usize = 100;

/// One fault at one durability.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Fault that loses the primary.
    pub fault: Fault,
    /// Durability of the writes.
    pub durability: Durability,
    /// Concurrent calls of one client.
    pub tasks: usize,
}

/// Time of calls after the election of another primary.
const AFTER: Duration = Duration::from_millis(1_500);
/// Deadline of an engine's claims and completions.
const PATIENCE: Duration = Duration::from_millis(500);

impl Trial {
    /// A trial of 16 concurrent calls of each client.
    pub fn new(fault: Fault, durability: Durability) -> Self {
        let tasks = 16;
        Self {
            fault,
            durability,
            tasks,
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
    pub fn run(self) -> Seen {
        let topology = Topology::start();
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let engines = self.clients().iter().map(|&client| {
            let store = runtime.block_on(topology.connect(client, self.durability));
            (client, calls::engine(store, PATIENCE))
        });
        let engines: Vec<_> = engines.collect();
        let going = engines.into_iter().map(|(client, engine)| {
            let calls = Calls::start(&runtime, engine, self.tasks);
            (client, calls)
        });
        let mut going: Vec<_> = going.collect();
        for (client, calls) in &going {
            until("each client has answers", || match calls.answered() {
                answered if answered < ENOUGH => Err(format!("{client}: only {answered}")),
                _ => Ok(()),
            });
        }
        topology.strike(self.fault);
        let struck = Instant::now();
        let new = topology.await_new_primary();
        if self.fault == Fault::Stopped {
            topology.resume();
        }
        thread::sleep(AFTER);
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
            struck,
        }
    }
}
