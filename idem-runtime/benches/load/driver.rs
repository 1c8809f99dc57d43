//! Makes calls, so many at once, and measures them. The same for bare commands and for idem.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::sample::Sample;

/// How many records there are where calls are answered from what is stored.
pub(crate) const STORED: u64 = 1_024;

/// What one worker does again and again. Each worker has a clone.
pub(crate) trait Work: Clone + Send + 'static {
    /// One call. Numbers do not repeat: who wants stored records takes them modulo [`STORED`].
    fn call(&mut self, number: u64) -> impl Future<Output = ()> + Send;

    /// Stores what the calls of this number are answered from. Before the clock runs.
    fn fill(&mut self, number: u64) -> impl Future<Output = ()> + Send {
        let _ = number;
        async {}
    }

    /// Whether there is anything to fill.
    fn fills(&self) -> bool {
        false
    }
}

/// Numbers that nobody has had.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes `calls` calls by `concurrency` workers.
pub(crate) fn run<W: Work>(
    runtime: &Runtime,
    work: &W,
    concurrency: usize,
    calls: usize,
) -> Sample {
    let first = NEXT.fetch_add(calls as u64, Ordering::Relaxed);
    let each = calls / concurrency;
    let mut latencies = Vec::with_capacity(calls);
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        let began = Instant::now();
        for worker in 0..concurrency {
            let mut work = work.clone();
            let first = first + (worker * each) as u64;
            let mut taken: Vec<u32> = Vec::with_capacity(each);
            workers.spawn(async move {
                let mut began = Instant::now();
                for number in first..first + each as u64 {
                    work.call(number).await;
                    let ended = Instant::now();
                    taken.push(nanos(ended - began));
                    began = ended;
                }
                taken
            });
        }
        let mut results = Vec::with_capacity(concurrency);
        while let Some(taken) = workers.join_next().await {
            results.push(taken.unwrap());
        }
        let wall = began.elapsed();
        for taken in results {
            latencies.extend(taken);
        }
        Sample::new(wall, latencies)
    })
}

/// Stores what calls are answered from.
pub(crate) fn fill<W: Work>(runtime: &Runtime, work: &W) {
    const WORKERS: u64 = 16;
    if !work.fills() {
        return;
    }
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let mut work = work.clone();
            workers.spawn(async move {
                for number in (worker..STORED).step_by(WORKERS as usize) {
                    work.fill(number).await;
                }
            });
        }
        while let Some(filled) = workers.join_next().await {
            filled.unwrap();
        }
    });
}

/// The runtime of a thread that shares nothing of it.
pub(crate) fn current_thread() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

pub(crate) fn nanos(time: std::time::Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}
