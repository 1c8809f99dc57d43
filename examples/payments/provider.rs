//! Doubles of the two parties downstream: a card provider and a message gateway.
//!
//! The provider knows idempotency keys, as real ones do: the same key gets the same answer. The
//! gateway knows none, as many do not. Their effects are in [notes](super::notes), because they are other
//! parties: when our process dies, they do not.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::PayError;
use super::faults::{Faults, Step};
use super::ledger::Kind;
use super::notes::{Note, Notes};
use super::request::{NotifyRequest, PayRequest, RefundRequest};

/// Latency of the provider and the gateway.
const LATENCY: Duration = Duration::from_millis(25);

/// Money that the provider moved, from a card or back to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Movement {
    /// Direction of the movement.
    pub kind: Kind,
    /// The merchant.
    pub merchant: String,
    /// The merchant's number of the payment or refund.
    pub id: String,
    /// The provider's number.
    pub number: String,
    /// The charge itself, or the refunded charge.
    pub charge: String,
    /// The card.
    pub card: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
}

/// Remainder of a charge.
#[derive(Debug)]
struct Charge {
    card: String,
    currency: String,
    left: u64,
}

/// Charges cards.
#[derive(Debug)]
pub struct Provider {
    faults: Faults,
    notes: Notes,
    bank: Mutex<Bank>,
}

/// State of the provider.
#[derive(Debug, Default)]
struct Bank {
    /// Balance of each card, by card and currency.
    cards: BTreeMap<(String, String), u64>,
    /// Answer to each idempotency key.
    answers: HashMap<String, Result<String, PayError>>,
    charges: HashMap<String, Charge>,
    movements: Vec<Movement>,
    tries: HashMap<String, u32>,
    repeats: usize,
}

/// Initial balance of a card. The names are test tokens, as real providers have them.
fn opening(card: &str) -> u64 {
    if card.starts_with("card_low_") {
        5_000
    } else {
        100_000_000
    }
}

impl Provider {
    /// A provider with these faults and these earlier notes.
    #[must_use]
    pub fn new(faults: Faults, notes: Notes, past: &[Note]) -> Self {
        let mut bank = Bank::default();
        for note in past {
            if let Note::Answered { key, answer, moved } = note {
                bank.apply(key, answer, moved.as_ref());
            }
        }
        Self {
            faults,
            notes,
            bank: Mutex::new(bank),
        }
    }

    /// Debits the card and returns the number of the charge.
    ///
    /// # Errors
    ///
    /// The bank's refusal, or a time-out after which the charge may or may not have happened.
    pub async fn charge(&self, key: &str, request: &PayRequest) -> Result<String, PayError> {
        let id = format!("{}/{}", request.merchant, request.payment);
        self.answer(key, &id, &request.card, |bank| bank.charge(request))
            .await
    }

    /// Refunds a part of a charge and returns the number of the movement.
    ///
    /// # Errors
    ///
    /// As [`charge`](Self::charge).
    pub async fn refund(
        &self,
        key: &str,
        charge: &str,
        request: &RefundRequest,
    ) -> Result<String, PayError> {
        let id = format!("{}/{}", request.merchant, request.refund);
        self.answer(key, &id, "", |bank| bank.refund(charge, request))
            .await
    }

    /// Every movement, in order.
    #[must_use]
    pub fn movements(&self) -> Vec<Movement> {
        self.bank().movements.clone()
    }

    /// Number of requests whose key had been answered before.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.bank().repeats
    }

    async fn answer(
        &self,
        key: &str,
        id: &str,
        card: &str,
        work: impl FnOnce(&Bank) -> Result<Movement, PayError>,
    ) -> Result<String, PayError> {
        tokio::time::sleep(LATENCY).await;
        let mut bank = self.bank();
        let nth = bank.nth(id);
        let down = card.starts_with("card_down_") && nth == 1;
        if down || self.faults.strikes(Step::ProviderBefore, id, nth) {
            return Err(PayError::ProviderTimeout);
        }
        let answer = if let Some(answer) = bank.answers.get(key).cloned() {
            bank.repeats += 1;
            answer
        } else {
            let done = work(&bank);
            let answer = done.as_ref().map(|moved| moved.number.clone());
            let answer = answer.map_err(Clone::clone);
            let note = Note::Answered {
                key: key.to_owned(),
                answer: answer.clone(),
                moved: done.ok(),
            };
            // The note is written first: an effect without a note did not happen.
            self.notes.write(&note)?;
            if let Note::Answered { moved, .. } = note {
                bank.apply(key, &answer, moved.as_ref());
            }
            answer
        };
        let timeout = card.starts_with("card_timeout_") && nth == 1;
        if timeout || self.faults.strikes(Step::ProviderAfter, id, nth) {
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
        if request.card.starts_with("card_declined_") {
            return Err(PayError::Declined);
        }
        if self.left(&request.card, &request.currency) < request.amount {
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
        let Some(charged) = self.charges.get(charge) else {
            return Err(PayError::NothingToRefund);
        };
        if charged.currency != request.currency || charged.left < request.amount {
            return Err(PayError::RefundTooLarge);
        }
        Ok(Movement {
            kind: Kind::Refund,
            merchant: request.merchant.clone(),
            id: request.refund.clone(),
            number: self.number("re"),
            charge: charge.to_owned(),
            card: charged.card.clone(),
            amount: request.amount,
            currency: request.currency.clone(),
        })
    }

    fn number(&self, kind: &str) -> String {
        format!("{kind}_{:05}", self.movements.len() + 1)
    }

    fn left(&self, card: &str, currency: &str) -> u64 {
        let account = (card.to_owned(), currency.to_owned());
        let left = self.cards.get(&account).copied();
        left.unwrap_or_else(|| opening(card))
    }

    /// Stores an answer, and moves the money.
    fn apply(&mut self, key: &str, answer: &Result<String, PayError>, moved: Option<&Movement>) {
        self.answers.insert(key.to_owned(), answer.clone());
        let Some(moved) = moved else {
            return;
        };
        let left = self.left(&moved.card, &moved.currency);
        let left = match moved.kind {
            Kind::Payment => {
                let charge = Charge {
                    card: moved.card.clone(),
                    currency: moved.currency.clone(),
                    left: moved.amount,
                };
                self.charges.insert(moved.charge.clone(), charge);
                left.saturating_sub(moved.amount)
            }
            Kind::Refund => {
                if let Some(charge) = self.charges.get_mut(&moved.charge) {
                    charge.left = charge.left.saturating_sub(moved.amount);
                }
                left + moved.amount
            }
        };
        let account = (moved.card.clone(), moved.currency.clone());
        self.cards.insert(account, left);
        self.movements.push(moved.clone());
    }

    /// Number of this try for the id, from 1.
    fn nth(&mut self, id: &str) -> u32 {
        let tries = self.tries.entry(id.to_owned()).or_default();
        *tries += 1;
        *tries
    }
}

/// Sends text messages.
#[derive(Debug)]
pub struct Gateway {
    faults: Faults,
    notes: Notes,
    sent: Mutex<Vec<NotifyRequest>>,
}

impl Gateway {
    /// A gateway with these faults and these earlier notes.
    #[must_use]
    pub fn new(faults: Faults, notes: Notes, past: &[Note]) -> Self {
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
    ///
    /// # Errors
    ///
    /// [`PayError::GatewayTimeout`], after which it is unknown whether the message was sent.
    pub async fn send(&self, request: &NotifyRequest) -> Result<String, PayError> {
        tokio::time::sleep(LATENCY).await;
        let silent = self.faults.strikes(Step::Gateway, &request.text, 1);
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

    /// Every message that was sent.
    #[must_use]
    pub fn sent(&self) -> Vec<NotifyRequest> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.clone()
    }
}
