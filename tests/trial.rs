//! What a failover costs: calls go on while a primary is lost, and everything whose body ran is
//! called again on the new one.

mod calls;
mod outcome;
mod stage;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use idem_harness::Partition;
use idem_runtime::store::redis::Durability;
use tokio::runtime::{Builder, Runtime};

pub use self::calls::{Call, Calls};
pub use self::outcome::{Seen, Tally};
pub use self::stage::Stage;

/// How a primary is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is parted from its replicas and from the sentinels, not from clients.
    Parted(Partition),
    /// The same, together with one of its two replicas.
    PartedWithReplica(Partition),
    /// `kill -9`.
    Killed,
    /// `SIGSTOP`, and `SIGCONT` as soon as the others follow another primary.
    Stopped,
}

impl Fault {
    /// All that are measured.
    pub const ALL: [Self; 5] = [
        Self::Parted(Partition::Cut),
        Self::Parted(Partition::Silent),
        Self::Killed,
        Self::Stopped,
        Self::PartedWithReplica(Partition::Cut),
    ];

    /// How its links are lost, if it is those.
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

/// When a write counts, and on which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On servers that ask for nothing.
    Plain(Durability),
    /// [`Durability::Acknowledged`], on servers with `min-replicas-to-write 1` and
    /// `min-replicas-max-lag 2`.
    MinReplicas,
}

impl Mode {
    /// All that are measured.
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

/// What a store knows of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The address of the first primary.
    Stays,
    /// The sentinels.
    Follows,
    /// The sentinels, from which a partition parts it as well: it is on the primary's side.
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

/// So many bodies of each client make a count of none mean something.
pub const ENOUGH: usize = 100;
/// Longer than they take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// One fault in one mode.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// How the primary is lost.
    pub fault: Fault,
    /// When a write counts.
    pub mode: Mode,
    /// Calls of one client that are under way at once.
    pub tasks: usize,
    /// How long calls are made before the fault at least. Each client has [`ENOUGH`] answers then.
    pub before: Duration,
    /// How long they go on after another primary is elected.
    pub after: Duration,
    /// For how long an engine tries to claim, and to store.
    pub patience: Duration,
}

impl Trial {
    /// A short one.
    #[must_use]
    pub fn new(fault: Fault, mode: Mode) -> Self {
        Self {
            fault,
            mode,
            tasks: 16,
            before: Duration::ZERO,
            after: Duration::from_millis(1_500),
            patience: Duration::from_millis(500),
        }
    }

    /// Who calls.
    fn clients(&self) -> &'static [Client] {
        match self.fault.partition() {
            Some(_) => &[Client::Stays, Client::Follows, Client::CutOff],
            None => &[Client::Stays, Client::Follows],
        }
    }

    /// Calls, strikes, waits for another primary, and goes on calling.
    #[must_use]
    pub fn run(self) -> Seen {
        let stage = Stage::start(self.mode);
        let runtime = runtime();
        let engines = self.clients().iter().map(|&client| {
            let store = stage.connect(client, self.mode);
            let store = runtime.block_on(store);
            (client, calls::engine(store, self.patience))
        });
        let engines: Vec<_> = engines.collect();
        let going = engines.into_iter().map(|(client, engine)| {
            let calls = Calls::start(&runtime, engine, self.tasks);
            (client, calls)
        });
        let mut going: Vec<_> = going.collect();
        thread::sleep(self.before);
        for (client, calls) in &going {
            let end = Instant::now() + PATIENCE;
            while calls.answered() < ENOUGH {
                let answered = calls.answered();
                assert!(Instant::now() < end, "{client}: only {answered} answers");
                thread::sleep(Duration::from_millis(5));
            }
        }
        let striking = Instant::now();
        stage.strike(self.fault);
        let struck = Instant::now();
        let new = stage.await_new_primary();
        let elected = Instant::now();
        if self.fault == Fault::Stopped {
            stage.resume();
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
            stage,
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
