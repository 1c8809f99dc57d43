//! What became of the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::calls::{engine, fresh};
use super::{Call, Calls, Client, Topology};
use crate::shop::connect;

/// Keys that are called again at once.
const TASKS: usize = 64;
/// For how long: the new primary may be without its replica for a while.
const PATIENCE: Duration = Duration::from_secs(20);

/// A trial after its end, with everything that it was made of.
#[derive(Debug)]
pub struct Seen {
    // First what goes on in the background, then the servers.
    pub(super) going: Vec<(Client, Calls)>,
    pub(super) runtime: Runtime,
    pub(super) topology: Topology,
    /// The index of the new primary.
    pub(super) new: usize,
    /// When the fault was there.
    pub struck: Instant,
}

/// What one client had.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Keys whose body ran.
    pub executed: usize,
    /// Those whose body ran once more when another process called on the new primary.
    pub again: usize,
    /// Those of which one caller had one answer, and another one another.
    pub differ: usize,
    /// Those whose claim is on the new primary, and whose answer is not.
    pub held: usize,
}

impl Seen {
    /// The group.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Who called.
    pub fn clients(&self) -> Vec<Client> {
        self.going.iter().map(|(client, _)| *client).collect()
    }

    /// What this client called.
    pub fn calls(&self, client: Client) -> &[Call] {
        &self.of(client).made
    }

    /// Calls once more with a fresh key, through the store of this client.
    pub fn call(&self, client: Client) -> Call {
        let engine = &self.of(client).engine;
        self.runtime.block_on(Call::make(engine, fresh()))
    }

    /// Calls everything that ran a second time, as another process does that knows the new primary.
    pub fn tally(&self, client: Client) -> Tally {
        let calls = self.calls(client);
        let ran: Vec<_> = calls.iter().filter(|call| call.ran).cloned().collect();
        self.runtime.block_on(self.again(ran))
    }

    async fn again(&self, ran: Vec<Call>) -> Tally {
        let new = &self.topology.group.servers()[self.new];
        let store = connect(new.url()).await;
        let engine = engine(store.expect("it is elected"), PATIENCE);
        let ran = Arc::new(ran);
        let next = Arc::new(AtomicUsize::new(0));
        let mut going = JoinSet::new();
        for _ in 0..TASKS {
            let (engine, ran, next) = (engine.clone(), Arc::clone(&ran), Arc::clone(&next));
            going.spawn(async move {
                let mut tally = Tally::default();
                while let Some(call) = ran.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tally.add(call, &Call::make(&engine, call.key).await);
                }
                tally
            });
        }
        let mut sum = Tally::default();
        while let Some(tally) = going.join_next().await {
            sum.merge(tally.expect("calls do not panic"));
        }
        sum
    }

    fn of(&self, client: Client) -> &Calls {
        let found = self.going.iter().find(|(of, _)| *of == client);
        &found.expect("this client called").1
    }
}

impl Tally {
    fn add(&mut self, first: &Call, second: &Call) {
        self.executed += 1;
        self.again += usize::from(second.ran);
        match (&first.answer, &second.answer) {
            (Ok(first), Ok(second)) => self.differ += usize::from(first != second),
            (_, Err(error)) if matches!(error.kind(), ErrorKind::Running { .. }) => self.held += 1,
            (Err(_), Ok(_)) => {}
            (_, Err(error)) => panic!("the new primary is well: {error}"),
        }
    }

    fn merge(&mut self, other: Self) {
        self.executed += other.executed;
        self.again += other.again;
        self.differ += other.differ;
        self.held += other.held;
    }
}
