//! A client that drives a log through the service: it times out, and calls again with the same request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idem_runtime::{Class, Classify as _, ErrorKind};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::PayError;
use crate::faults::{Faults, Step};
use crate::ledger::Books;
use crate::place::Place;
use crate::request::{Delivery, Operation, Request};
use crate::service::{Answer, Protection, Service};

/// Number of tries before the client gives up.
const TRIES: u32 = 44;
/// The first pause after a system error; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) tasks: usize,
    pub(crate) faults: Faults,
    pub(crate) protection: Protection,
}

#[derive(Debug)]
pub(crate) struct Run {
    /// End of each delivery, in the order of the log.
    pub(crate) endings: Vec<Ending>,
    /// The client's counts, in the order of [`Operation::ALL`].
    pub(crate) traffic: [Traffic; 3],
    pub(crate) books: Books,
    pub(crate) service: Arc<Service>,
    pub(crate) elapsed: Duration,
}

/// End of a delivery. Each has exactly one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    Answered(String),
    Declined(PayError),
    /// Its id had been used with other content.
    Mismatched,
    /// It was done before, and repeats are refused.
    DoneBefore,
    /// Unknown outcome; an operator has to check.
    Unknown,
    /// With this error after every try.
    GivenUp(PayError),
}

/// The client's counts for one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) calls: u64,
    /// Calls whose answer did not reach the client in time.
    pub(crate) lost: u64,
}

#[derive(Debug)]
struct Client {
    service: Arc<Service>,
    faults: Arc<Faults>,
    protection: Protection,
    tasks: Semaphore,
    ended: AtomicUsize,
    traffic: Mutex<[Traffic; 3]>,
    lost: Mutex<Vec<JoinHandle<Answer>>>,
}

/// Delivers every delivery until it has ended.
pub(crate) async fn run(
    deliveries: &[Delivery],
    place: Place,
    settings: Settings,
) -> Result<Run, String> {
    let started = Instant::now();
    let faults = Arc::new(settings.faults);
    let service = Arc::new(Service::new(place, Arc::clone(&faults)));
    let client = Arc::new(Client {
        service: Arc::clone(&service),
        faults,
        protection: settings.protection,
        tasks: Semaphore::new(settings.tasks),
        ended: AtomicUsize::new(0),
        traffic: Mutex::default(),
        lost: Mutex::default(),
    });
    let total = deliveries.len();
    let delivering = deliveries.iter().cloned().map(|delivery| {
        let client = Arc::clone(&client);
        tokio::spawn(async move {
            let ending = client.deliver(&delivery).await;
            show_progress(client.ended.fetch_add(1, Ordering::Relaxed) + 1, total);
            ending
        })
    });
    let mut endings = Vec::with_capacity(total);
    for delivery in delivering.collect::<Vec<_>>() {
        endings.push(delivery.await.expect("a delivery does not panic"));
    }
    let traffic = client.finish().await;
    let books = service.ledger.books().await;
    Ok(Run {
        endings,
        traffic,
        books: books.map_err(|error| format!("cannot read the books: {error}"))?,
        service,
        elapsed: started.elapsed(),
    })
}

/// A line every tenth of the way.
fn show_progress(done: usize, total: usize) {
    let tenth = |done: usize| done * 10 / total;
    if tenth(done) > tenth(done - 1) {
        eprintln!("{:>3} %  {done} deliveries", tenth(done) * 10);
    }
}

impl Client {
    /// Calls until the delivery ends. During a pause, other deliveries have their turn.
    async fn deliver(&self, delivery: &Delivery) -> Ending {
        let mut pause = PAUSE;
        let mut last = PayError::ProviderTimeout;
        for nth in 1..=TRIES {
            let turn = self.tasks.acquire().await;
            if self.faults.strikes(Step::AnswerLost, &delivery.id) {
                self.call_and_miss(&delivery.request, nth).await;
                continue;
            }
            match self.call(&delivery.request).await {
                Ok(receipt) => return Ending::Answered(receipt),
                Err(error) if error.is_retryable() => last = error,
                Err(error) => return ending(error),
            }
            drop(turn);
            sleep(last.retry_after().unwrap_or(pause)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        Ending::GivenUp(last)
    }

    async fn call(&self, request: &Request) -> Answer {
        self.count(request.operation(), |traffic| traffic.calls += 1);
        self.service.handle(request.clone(), self.protection).await
    }

    /// A time-out: the request reaches the service, which continues; its answer comes too late.
    async fn call_and_miss(&self, request: &Request, nth: u32) {
        self.count(request.operation(), |traffic| {
            traffic.calls += 1;
            traffic.lost += 1;
        });
        let (service, sent, protection) =
            (Arc::clone(&self.service), request.clone(), self.protection);
        let call = tokio::spawn(async move { service.handle(sent, protection).await });
        // The first time-out comes while the call still runs, the second when it is over.
        sleep(Duration::from_millis(if nth == 1 { 8 } else { 80 })).await;
        lock(&self.lost).push(call);
    }

    /// Waits for the calls that timed out, and returns the counts of each operation.
    async fn finish(&self) -> [Traffic; 3] {
        let lost = std::mem::take(&mut *lock(&self.lost));
        for call in lost {
            let _ = call.await.expect("a call does not panic");
        }
        *lock(&self.traffic)
    }

    fn count(&self, operation: Operation, count: impl FnOnce(&mut Traffic)) {
        count(&mut lock(&self.traffic)[operation as usize]);
    }
}

/// The end that an error stands for if it is not retryable.
fn ending(error: PayError) -> Ending {
    match &error {
        PayError::Idem(refusal) => match refusal.kind() {
            ErrorKind::Mismatch => Ending::Mismatched,
            ErrorKind::Duplicate { .. } => Ending::DoneBefore,
            // `notify` has one attempt. If that was abandoned, its outcome is unknown as well.
            ErrorKind::Unknown { .. } | ErrorKind::Exhausted { .. } => Ending::Unknown,
            _ => Ending::GivenUp(error),
        },
        _ if error.class() == Class::Unknown => Ending::Unknown,
        _ => Ending::Declined(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
