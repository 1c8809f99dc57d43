//! Makes calls, so many at once, and measures them. The same for bare commands and for idem.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::sample::Sample;

/// Records in a case of replays.
pub(crate) const STORED: u64 = 1_024;

/// The calls of one worker. Each worker has a clone.
pub(crate) trait Work: Clone + Send + 'static {
    /// Whether calls are answered from stored records.
    fn fills(&self) -> bool {
        false
    }

    /// Stores the record of this number, below [`STORED`], before the clock runs.
    fn fill(&mut self, number: u64) -> impl Future<Output = ()> + Send {
        self.call(number)
    }

    /// One call: of a stored record where the work fills, and of a new one otherwise.
    fn call(&mut self, number: u64) -> impl Future<Output = ()> + Send;
}

/// Makes the calls of these numbers in turn; nanoseconds of each.
async fn make<W: Work>(mut work: W, numbers: Range<u64>) -> Vec<u32> {
    let (fills, mut taken) = (work.fills(), Vec::new());
    taken.reserve_exact((numbers.end - numbers.start) as usize);
    let mut began = Instant::now();
    for number in numbers {
        let number = if fills {
            number % STORED
        } else {
            STORED + number
        };
        work.call(number).await;
        let ended = Instant::now();
        taken.push(nanos(ended - began));
        began = ended;
    }
    taken
}

/// The next number without a call.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes `calls` calls by `concurrency` workers.
pub(crate) fn run<W: Work>(
    runtime: &Runtime,
    work: &W,
    concurrency: usize,
    calls: usize,
) -> Sample {
    let each = (calls / concurrency) as u64;
    let first = NEXT.fetch_add(calls as u64, Ordering::Relaxed);
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        let began = Instant::now();
        for worker in 0..concurrency as u64 {
            let first = first + worker * each;
            workers.spawn(make(work.clone(), first..first + each));
        }
        let taken = workers.join_all().await;
        Sample::new(began.elapsed(), taken.concat())
    })
}

/// Makes `calls` calls per thread; the threads share the store alone.
pub(crate) fn run_on_threads<W: Work>(work: &W, threads: usize, calls: usize) -> Sample {
    let barrier = Arc::new(Barrier::new(threads));
    let workers = (0..threads as u64).map(|thread| {
        let (work, barrier) = (work.clone(), Arc::clone(&barrier));
        thread::spawn(move || {
            let (runtime, first) = (current_thread(), thread << 32);
            barrier.wait();
            let start = Instant::now();
            let taken = runtime.block_on(make(work, first..first + calls as u64));
            (start.elapsed(), taken)
        })
    });
    let workers: Vec<_> = workers.collect();
    let ended = workers.into_iter().map(|worker| worker.join().unwrap());
    let (walls, taken): (Vec<_>, Vec<_>) = ended.unzip();
    Sample::new(walls.into_iter().max().unwrap(), taken.concat())
}

/// Stores the records that calls are answered from.
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
        workers.join_all().await;
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
