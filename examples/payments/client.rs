//! A client that drives a log through the service: it times out, and calls again with the same request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::{Class, Classify as _, ErrorKind};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::PayError;
use crate::faults::{Faults, Step};
use crate::ledger::Books;
use crate::place::Place;
use crate::request::{Delivery, Request};
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
    pub(crate) calls: usize,
    /// Calls whose answer did not reach the client in time.
    pub(crate) lost: usize,
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

#[derive(Debug)]
struct Client {
    service: Arc<Service>,
    faults: Arc<Faults>,
    protection: Protection,
    tasks: Semaphore,
    ended: AtomicUsize,
    calls: AtomicUsize,
    missed: Mutex<Vec<JoinHandle<Answer>>>,
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
        calls: AtomicUsize::new(0),
        missed: Mutex::default(),
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
    let mut lost = 0;
    for call in client.missed.lock().await.drain(..) {
        let _ = call.await.expect("a call does not panic");
        lost += 1;
    }
    let books = service.ledger.books().await;
    Ok(Run {
        endings,
        calls: client.calls.load(Ordering::Relaxed),
        lost,
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
    async fn deliver(self: &Arc<Self>, delivery: &Delivery) -> Ending {
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
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.service.handle(request.clone(), self.protection).await
    }

    /// A time-out: the request reaches the service, which continues; its answer comes too late.
    async fn call_and_miss(self: &Arc<Self>, request: &Request, nth: u32) {
        let (client, request) = (Arc::clone(self), request.clone());
        let call = tokio::spawn(async move { client.call(&request).await });
        // The first time-out comes while the call still runs, the second when it is over.
        sleep(Duration::from_millis(if nth == 1 { 8 } else { 80 })).await;
        self.missed.lock().await.push(call);
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
