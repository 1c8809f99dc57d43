//! Calls from two processes, retried until each has its answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_harness::HANG_LIMIT;
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::{Context, Engine, EngineBuilder, OnRunning};
use idem_tests::checker::End;
use idem_tests::payment::{PayError, Receipt};
use idem_tests::seeded::Seeded;
use idem_tests::shop::{connected, patiently};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::journal::{Attempt, Journal};
use crate::plan::{Act, act, order, pause};
use crate::shard::{OPERATION, PREFIX};

/// Concurrent calls.
const WORKERS: usize = 64;
/// Longer than any failover: a lease that lapses would let a body run again.
const LEASE: Duration = Duration::from_mins(1);
/// How long a duplicate waits for a running call.
const WAIT: Duration = Duration::from_secs(4);

/// The load on a store.
#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
    workers: JoinSet<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    engines: [Engine; 2],
    queues: Vec<Mutex<Queue>>,
    answered: watch::Sender<usize>,
    stop: AtomicBool,
}

/// Access to the calls for threads that cause faults.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl Traffic {
    /// Waits until so many more calls have been answered.
    pub(crate) fn go_on(&self, calls: usize) {
        let shared = &self.shared;
        let enough = shared.answered(shared.count() + calls);
        self.runtime.block_on(enough);
    }
}

/// The planned calls of one shard.
#[derive(Debug)]
struct Queue {
    keys: Vec<u64>,
    planned: VecDeque<u64>,
    seeded: Seeded,
}

impl Load {
    /// Begins to call the keys of each shard, with these settings.
    pub(crate) async fn start(
        shards: Vec<Vec<u64>>,
        store: RedisStoreBuilder,
        settings: impl Fn(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let (_, mut seeded) = Seeded::from_env();
        let mut engines = Vec::new();
        for _ in 0..2 {
            let engine = settings(engine(connected(store.clone()).await));
            engines.push(engine.build().unwrap());
        }
        let queues = shards.into_iter().map(|keys| {
            let planned = order(&keys, &mut seeded);
            let seeded = Seeded::new(seeded.below(u64::MAX));
            Mutex::new(Queue {
                keys,
                planned,
                seeded,
            })
        });
        let shared = Arc::new(Shared {
            journal: Journal::default(),
            queues: queues.collect(),
            engines: engines.try_into().unwrap(),
            answered: watch::Sender::new(0),
            stop: AtomicBool::new(false),
        });
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let (shards, shared) = (shared.queues.len(), Arc::clone(&shared));
            let at = worker % shards;
            let process = u32::from(worker / shards % 2 == 1);
            workers.spawn(async move { shared.work(process, at).await });
        }
        Self { shared, workers }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            shared: Arc::clone(&self.shared),
            runtime: Handle::current(),
        }
    }

    /// Waits for the planned calls, then repeats every key in both processes. The faults are
    /// over.
    pub(crate) async fn finish(self) -> Arc<Shared> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.within(self.workers.join_all()).await;
        let mut asked = JoinSet::new();
        for process in 0..2 {
            for shard in 0..self.shared.queues.len() {
                let (shared, keys) = (Arc::clone(&self.shared), self.shared.keys(shard));
                asked.spawn(async move {
                    for key in keys {
                        shared.call(process, shard, key).await;
                    }
                });
            }
        }
        self.shared.within(asked.join_all()).await;
        self.shared
    }
}

impl Shared {
    /// Waits until so many calls have been answered.
    pub(crate) async fn answered(&self, calls: usize) {
        let mut answered = self.answered.subscribe();
        let enough = answered.wait_for(|answered| *answered >= calls);
        drop(patiently("so many answers", enough).await.unwrap());
    }

    /// How many calls have been answered.
    pub(crate) fn count(&self) -> usize {
        *self.answered.borrow()
    }

    async fn within<T>(&self, all: impl Future<Output = T>) {
        if timeout(HANG_LIMIT, all).await.is_err() {
            let open = self.journal.open();
            panic!("after {HANG_LIMIT:?} without a fault these go on: {open:#?}");
        }
    }

    async fn work(&self, process: u32, shard: usize) {
        while let Some((key, pause)) = self.next(shard) {
            self.call(process, shard, key).await;
            self.answered.send_modify(|answered| *answered += 1);
            sleep(pause).await;
        }
    }

    /// The next key, and the caller's pause afterwards. While faults continue after the last planned call, an earlier
    /// key.
    fn next(&self, shard: usize) -> Option<(u64, Duration)> {
        let mut queue = self.queue(shard);
        let pause = pause(&mut queue.seeded);
        let key = queue.planned.pop_front().or_else(|| {
            let earlier = queue.keys.len() as u64;
            let earlier = usize::try_from(queue.seeded.below(earlier)).unwrap();
            (!self.stop.load(Ordering::SeqCst)).then(|| queue.keys[earlier])
        })?;
        Some((key, pause))
    }

    fn keys(&self, shard: usize) -> Vec<u64> {
        self.queue(shard).keys.clone()
    }

    fn queue(&self, shard: usize) -> std::sync::MutexGuard<'_, Queue> {
        let queue = self.queues[shard].lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls until there is an answer, as a client would.
    async fn call(&self, process: u32, shard: usize, key: u64) {
        loop {
            let attempt = self.journal.invoke(process, shard, key);
            let call = self.engines[process as usize]
                .operation(OPERATION)
                .key(&key);
            let told = call.run(|context| self.body(context, attempt)).await;
            let pause = match told {
                Ok(Receipt { run }) => {
                    let answer = format!("ok {run}/0").into();
                    return self.journal.told(attempt, End::Answer(answer));
                }
                Err(PayError::Declined { run }) => {
                    let answer = format!("declined {run}/0").into();
                    return self.journal.told(attempt, End::Answer(answer));
                }
                Err(PayError::Down | PayError::TimedOut) => {
                    self.journal.told(attempt, End::Down);
                    Duration::ZERO
                }
                Err(PayError::Idem(error)) => {
                    self.journal.refuse(attempt, &error);
                    let known = error.retry_after().unwrap_or_default();
                    known.clamp(Duration::from_millis(20), Duration::from_millis(200))
                }
            };
            sleep(pause).await;
        }
    }

    async fn body(&self, context: Context, attempt: Attempt) -> Result<Receipt, PayError> {
        let fence = context.fence().await?.get();
        let run = self.journal.start(attempt, fence);
        let (act, takes) = act(attempt.key);
        sleep(takes).await;
        match act {
            Act::Stumble if run == 1 => {
                self.journal.failed(attempt);
                Err(PayError::Down)
            }
            Act::Decline => Err(PayError::Declined { run }),
            Act::Stumble | Act::Succeed => Ok(Receipt { run }),
        }
    }
}

fn engine(store: RedisStore) -> EngineBuilder {
    Engine::builder(store)
        .prefix(PREFIX)
        .lease(LEASE)
        .on_running(OnRunning::Wait(WAIT))
}
