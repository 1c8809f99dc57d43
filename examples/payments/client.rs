//! A client that times out, and calls again with the same request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_runtime::{Class, Classify, ErrorKind};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::delivery::Delivery;
use super::error::PayError;
use super::faults::{Faults, Step};
use super::request::{Operation, Request};
use super::service::{Answer, Protection, Service};

/// Number of tries before a delivery goes back to the end of the queue.
const TRIES: u32 = 4;
/// Number of rounds before the client gives up.
const ROUNDS: u32 = 10;
/// The first pause after a system error; it doubles.
const PAUSE: Duration = Duration::from_millis(5);
/// If `retry_after` is longer than this, the delivery goes back to the end of the queue instead.
const PATIENCE: Duration = Duration::from_millis(100);

/// End of a delivery. Each has exactly one.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// With this receipt.
    Answered(String),
    /// With this business error.
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

/// Result of trying a delivery.
#[derive(Debug)]
pub(crate) enum Tried {
    Ended(Ending),
    Later(Duration),
}

/// The client's counts for one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls made.
    pub calls: u64,
    /// Calls whose answer did not reach the client in time; counted below all the same.
    pub lost: u64,
    /// Retryable errors.
    pub retryable: u64,
    /// Receipts.
    pub receipts: u64,
    /// Business errors.
    pub declined: u64,
    /// Refusals because of other content.
    pub mismatched: u64,
    /// Repeats that were refused.
    pub repeats: u64,
    /// Unknown outcomes.
    pub unknown: u64,
}

impl Traffic {
    /// Number of answers, lost ones included.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.retryable
            + self.receipts
            + self.declined
            + self.mismatched
            + self.repeats
            + self.unknown
    }
}

/// Sends deliveries to the service.
#[derive(Debug)]
pub(crate) struct Client {
    service: Arc<Service>,
    protection: Protection,
    faults: Faults,
    traffic: Mutex<[Traffic; 3]>,
    lost: Mutex<Vec<(Operation, JoinHandle<Answer>)>>,
}

impl Client {
    pub(crate) fn new(service: Arc<Service>, protection: Protection, faults: Faults) -> Self {
        Self {
            service,
            protection,
            faults,
            traffic: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// Tries a delivery until it ends, or should be tried later.
    pub(crate) async fn deliver(&self, delivery: &Delivery, round: u32) -> Tried {
        let mut pause = PAUSE;
        let mut last = PayError::ProviderTimeout;
        for nth in round * TRIES + 1..=(round + 1) * TRIES {
            if self.faults.strikes(Step::AnswerLost, &delivery.id, nth) {
                self.call_and_miss(&delivery.request, nth).await;
                continue;
            }
            let error = match self.call(&delivery.request).await {
                Ok(receipt) => return Tried::Ended(Ending::Answered(receipt)),
                Err(error) => error,
            };
            if !error.is_retryable() {
                return Tried::Ended(ending(error));
            }
            let advice = error.retry_after().unwrap_or(pause);
            last = error;
            if advice > PATIENCE && round < ROUNDS {
                return Tried::Later(advice);
            }
            sleep(advice).await;
            pause *= 2;
        }
        if round < ROUNDS {
            Tried::Later(pause * (round + 1))
        } else {
            Tried::Ended(Ending::GivenUp(last))
        }
    }

    async fn call(&self, request: &Request) -> Answer {
        self.count(request.operation(), |traffic| traffic.calls += 1);
        let answer = self.service.handle(request.clone(), self.protection).await;
        self.note(request.operation(), &answer);
        answer
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
        lock(&self.lost).push((request.operation(), call));
    }

    /// Waits for the calls that timed out, and returns the counts of each operation.
    pub(crate) async fn finish(&self) -> [Traffic; 3] {
        let lost = std::mem::take(&mut *lock(&self.lost));
        for (operation, call) in lost {
            self.note(operation, &call.await.expect("a call does not panic"));
        }
        *lock(&self.traffic)
    }

    fn note(&self, operation: Operation, answer: &Answer) {
        self.count(operation, |traffic| {
            *match answer {
                Ok(_) => &mut traffic.receipts,
                Err(error) if error.is_retryable() => &mut traffic.retryable,
                Err(error) => match ending(error.clone()) {
                    Ending::Declined(_) => &mut traffic.declined,
                    Ending::Mismatched => &mut traffic.mismatched,
                    Ending::DoneBefore => &mut traffic.repeats,
                    _ => &mut traffic.unknown,
                },
            } += 1;
        });
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
