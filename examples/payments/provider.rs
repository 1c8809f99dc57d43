//! Doubles of the two parties downstream: a card provider and a message gateway.
//!
//! The provider knows idempotency keys, as real ones do: the same key gets the same answer. The
//! gateway knows none, as many do not. Their effects are in [notes](crate::notes), because they are other
//! parties: when our process dies, they do not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::PayError;
use crate::faults::{Faults, Step};
use crate::notes::{Note, Notes};
use crate::request::{NotifyRequest, PayRequest, RefundRequest};

/// Latency of the provider and the gateway.
const LATENCY: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// From a card to a merchant.
    Payment,
    /// From a merchant to a card.
    Refund,
}

/// Money that the provider moved, from a card or back to it. A row of the books has the same fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Movement {
    pub(crate) kind: Kind,
    pub(crate) merchant: String,
    pub(crate) id: String,
    /// The provider's number.
    pub(crate) number: String,
    /// The charge itself, or the refunded charge.
    pub(crate) charge: String,
    pub(crate) card: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

impl Movement {
    /// The two accounts, ordered by name, and the amount added to each.
    pub(crate) fn changes(&self) -> [(&str, i64); 2] {
        let amount = self.amount.cast_signed();
        let to_merchant = if self.kind == Kind::Payment {
            amount
        } else {
            -amount
        };
        let mut changes = [(&*self.card, -to_merchant), (&*self.merchant, to_merchant)];
        changes.sort_unstable();
        changes
    }
}

/// Charges cards.
#[derive(Debug)]
pub(crate) struct Provider {
    faults: Arc<Faults>,
    notes: Notes,
    bank: Mutex<Bank>,
}

#[derive(Debug, Default)]
struct Bank {
    /// Answer to each idempotency key.
    answers: HashMap<String, Result<Movement, PayError>>,
    movements: Vec<Movement>,
    /// Requests whose key had been answered before.
    repeats: usize,
}

impl Provider {
    pub(crate) fn new(faults: Arc<Faults>, notes: Notes, past: &[Note]) -> Self {
        let mut bank = Bank::default();
        for note in past {
            if let Note::Answered { key, answer } = note {
                bank.apply(key.clone(), answer.clone());
            }
        }
        Self {
            faults,
            notes,
            bank: Mutex::new(bank),
        }
    }

    pub(crate) async fn charge(
        &self,
        key: &str,
        request: &PayRequest,
    ) -> Result<Movement, PayError> {
        let id = format!("{}/{}", request.merchant, request.payment);
        self.answer(key, &id, &request.card, |bank| bank.charge(request))
            .await
    }

    pub(crate) async fn refund(
        &self,
        key: &str,
        charge: &str,
        request: &RefundRequest,
    ) -> Result<Movement, PayError> {
        let id = format!("{}/{}", request.merchant, request.refund);
        self.answer(key, &id, "", |bank| bank.refund(charge, request))
            .await
    }

    pub(crate) fn movements(&self) -> Vec<Movement> {
        self.bank().movements.clone()
    }

    pub(crate) fn repeats(&self) -> usize {
        self.bank().repeats
    }

    async fn answer(
        &self,
        key: &str,
        id: &str,
        card: &str,
        work: impl FnOnce(&Bank) -> Result<Movement, PayError>,
    ) -> Result<Movement, PayError> {
        tokio::time::sleep(LATENCY).await;
        let mut bank = self.bank();
        let down = card.starts_with("card_down_");
        if self.faults.strikes_or_first(Step::ProviderBefore, id, down) {
            return Err(PayError::ProviderTimeout);
        }
        let answer = if let Some(answer) = bank.answers.get(key).cloned() {
            bank.repeats += 1;
            answer
        } else {
            let answer = work(&bank);
            // The note is written first: an effect without a note did not happen.
            self.notes.write(&Note::Answered {
                key: key.to_owned(),
                answer: answer.clone(),
            })?;
            bank.apply(key.to_owned(), answer.clone());
            answer
        };
        let timeout = card.starts_with("card_timeout_");
        if self
            .faults
            .strikes_or_first(Step::ProviderAfter, id, timeout)
        {
            return Err(PayError::ProviderTimeout);
        }
        answer
    }

    fn bank(&self) -> MutexGuard<'_, Bank> {
        self.bank.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bank {
    fn charge(&self, request: &PayRequest) -> Result<Movement, PayError> {
        // The names are test tokens, as real providers have them.
        let opening = if request.card.starts_with("card_low_") {
            5_000
        } else {
            100_000_000
        };
        let used =
            self.sum(|moved| moved.card == request.card && moved.currency == request.currency);
        if request.card.starts_with("card_declined_") {
            return Err(PayError::Declined);
        }
        if opening - used < request.amount.cast_signed() {
            return Err(PayError::InsufficientFunds);
        }
        let number = self.number("ch");
        Ok(Movement {
            kind: Kind::Payment,
            merchant: request.merchant.clone(),
            id: request.payment.clone(),
            charge: number.clone(),
            number,
            card: request.card.clone(),
            amount: request.amount,
            currency: request.currency.clone(),
        })
    }

    fn refund(&self, charge: &str, request: &RefundRequest) -> Result<Movement, PayError> {
        let charged = self.movements.iter().find(|moved| moved.number == charge);
        let charged = charged.ok_or(PayError::NothingToRefund)?;
        let left = self.sum(|moved| moved.charge == charge);
        if charged.currency != request.currency || left < request.amount.cast_signed() {
            return Err(PayError::RefundTooLarge);
        }
        Ok(Movement {
            kind: Kind::Refund,
            id: request.refund.clone(),
            number: self.number("re"),
            amount: request.amount,
            ..charged.clone()
        })
    }

    fn number(&self, kind: &str) -> String {
        format!("{kind}_{:05}", self.movements.len() + 1)
    }

    /// The sum of these movements' payments less their refunds.
    fn sum(&self, of: impl Fn(&Movement) -> bool) -> i64 {
        let movements = self.movements.iter().filter(|moved| of(moved));
        let amounts = movements.map(|moved| match moved.kind {
            Kind::Payment => moved.amount.cast_signed(),
            Kind::Refund => -moved.amount.cast_signed(),
        });
        amounts.sum()
    }

    /// Stores an answer, and moves the money.
    fn apply(&mut self, key: String, answer: Result<Movement, PayError>) {
        self.movements.extend(answer.clone().ok());
        self.answers.insert(key, answer);
    }
}

/// Sends text messages.
#[derive(Debug)]
pub(crate) struct Gateway {
    faults: Arc<Faults>,
    notes: Notes,
    sent: Mutex<Vec<NotifyRequest>>,
}

impl Gateway {
    pub(crate) fn new(faults: Arc<Faults>, notes: Notes, past: &[Note]) -> Self {
        let sent = past.iter().filter_map(|note| match note {
            Note::Sent(message) => Some(message.clone()),
            Note::Run(_) | Note::Answered { .. } => None,
        });
        Self {
            faults,
            notes,
            sent: Mutex::new(sent.collect()),
        }
    }

    /// Sends, and returns the number of the message.
    pub(crate) async fn send(&self, request: &NotifyRequest) -> Result<String, PayError> {
        tokio::time::sleep(LATENCY).await;
        let silent = self.faults.strikes(Step::Gateway, &request.text);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        // A silent gateway sent every other message. Only this double knows which.
        if !silent || request.text.len().is_multiple_of(2) {
            self.notes.write(&Note::Sent(request.clone()))?;
            sent.push(request.clone());
        }
        if silent {
            return Err(PayError::GatewayTimeout);
        }
        Ok(format!("sms_{:05}", sent.len()))
    }

    pub(crate) fn sent(&self) -> Vec<NotifyRequest> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.clone()
    }
}
