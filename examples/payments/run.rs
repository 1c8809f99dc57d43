//! Drives a log through the service, with many concurrent tasks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Client, Ending, Traffic, Tried};
use super::delivery::Delivery;
use super::faults::Faults;
use super::ledger::Books;
use super::place::Place;
use super::progress::Progress;
use super::service::{Protection, Service};

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of concurrent deliveries.
    pub tasks: usize,
    /// The faults.
    pub faults: Faults,
    /// With the attribute, or without.
    pub protection: Protection,
}

/// Results of a run.
#[derive(Debug)]
pub struct Run {
    /// End of each delivery, in the order of the log.
    pub endings: Vec<Ending>,
    /// The client's counts, in the order of [`Operation::ALL`](super::request::Operation::ALL).
    pub traffic: [Traffic; 3],
    /// Our books as they are now.
    pub books: Books,
    /// The service with its ledger and its doubles.
    pub service: Arc<Service>,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// A delivery in the queue.
#[derive(Debug)]
struct Job {
    index: usize,
    round: u32,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    deliveries: Vec<Delivery>,
    queue: Mutex<VecDeque<Job>>,
    endings: Mutex<Vec<Option<Ending>>>,
    progress: Progress,
}

/// Delivers every delivery until it has ended.
///
/// # Errors
///
/// If the books cannot be read at the end.
///
/// # Panics
///
/// If a task panics.
pub async fn run(
    deliveries: &[Delivery],
    place: Place,
    settings: Settings,
    progress: Progress,
) -> Result<Run, String> {
    let started = Instant::now();
    let service = Arc::new(Service::new(place, settings.faults));
    let client = Client::new(Arc::clone(&service), settings.protection, settings.faults);
    let jobs = 0..deliveries.len();
    let shared = Arc::new(Shared {
        client,
        deliveries: deliveries.to_vec(),
        endings: Mutex::new(vec![None; jobs.len()]),
        queue: Mutex::new(jobs.map(Job::new).collect()),
        progress,
    });
    let mut tasks = JoinSet::new();
    for _ in 0..settings.tasks {
        let shared = Arc::clone(&shared);
        tasks.spawn(async move { shared.work().await });
    }
    tasks.join_all().await;
    let traffic = shared.client.finish().await;
    shared.progress.finish();
    let endings = std::mem::take(&mut *lock(&shared.endings));
    let books = service.ledger.books().await;
    Ok(Run {
        endings: endings
            .into_iter()
            .map(|ending| ending.expect("a task ends when its deliveries have"))
            .collect(),
        traffic,
        books: books.map_err(|error| format!("cannot read the books: {error}"))?,
        service,
        elapsed: started.elapsed(),
    })
}

impl Job {
    fn new(index: usize) -> Self {
        Self {
            index,
            round: 0,
            not_before: None,
        }
    }
}

impl Shared {
    /// Takes deliveries from the queue until it is empty. A task takes a delivery that it has put back
    /// again, if no other task does.
    async fn work(&self) {
        while let Some(job) = self.next() {
            if let Some(moment) = job.not_before {
                tokio::time::sleep_until(moment).await;
            }
            let delivery = &self.deliveries[job.index];
            match self.client.deliver(delivery, job.round).await {
                Tried::Ended(ending) => {
                    lock(&self.endings)[job.index] = Some(ending);
                    self.progress.step();
                }
                Tried::Later(pause) => lock(&self.queue).push_back(Job {
                    index: job.index,
                    round: job.round + 1,
                    not_before: Some(Instant::now() + pause),
                }),
            }
        }
    }

    fn next(&self) -> Option<Job> {
        lock(&self.queue).pop_front()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
