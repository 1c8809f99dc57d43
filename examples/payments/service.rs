//! The payment service: three annotated functions and their bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::{Engine, context, idempotent};

use crate::error::PayError;
use crate::faults::{Faults, Step};
use crate::ledger::{Found, Ledger};
use crate::place::Place;
use crate::provider::{Gateway, Movement, Provider};
use crate::request::{NotifyRequest, PayRequest, Receipt, RefundRequest, Request, Sent};

/// Whether the calls go through the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Idempotent,
    /// They do not: `--without`.
    Without,
}

/// The result of a call: its answer as text, so that two can be compared.
pub(crate) type Answer = Result<String, PayError>;

#[derive(Debug)]
pub(crate) struct Service {
    engine: Engine,
    /// Whether the records of bookings are in the database of the books.
    in_tx: bool,
    faults: Arc<Faults>,
    pub(crate) ledger: Ledger,
    pub(crate) provider: Provider,
    pub(crate) gateway: Gateway,
    bodies: AtomicU64,
    keys: AtomicU64,
}

impl Service {
    pub(crate) fn new(place: Place, faults: Arc<Faults>) -> Self {
        Self {
            provider: Provider::new(Arc::clone(&faults), place.notes.clone(), &place.past),
            gateway: Gateway::new(Arc::clone(&faults), place.notes, &place.past),
            faults,
            ledger: place.ledger,
            engine: place.engine,
            in_tx: place.in_tx,
            bodies: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    /// The caller names the payment, so merchant and payment are the key. A repeat gets the receipt
    /// of the first call, or waits for it; the same key with another amount or card is refused.
    ///
    /// When the process dies half-way, the body may run again after the lease has expired. The provider and the
    /// ledger recognize a repeat, so the number of attempts is not limited.
    #[idempotent(
        op = "payments.pay",
        key = (req.merchant, req.payment),
        ttl = "24h",
        lease = "3s",
        max_attempts = unlimited,
        engine = self.engine,
    )]
    async fn pay(&self, req: PayRequest) -> Result<Receipt, PayError> {
        // The same in every attempt of this call, so that the provider recognizes a repeat.
        let provider_key = context().derive_key("provider");
        self.charge_and_book(req, &provider_key).await
    }

    /// As `pay`; the merchant is the scope, so that refunds of different merchants never share a key.
    #[idempotent(
        op = "payments.refund",
        scope = req.merchant,
        key = req.refund,
        ttl = "24h",
        lease = "3s",
        max_attempts = unlimited,
        engine = self.engine,
    )]
    async fn refund(&self, req: RefundRequest) -> Result<Receipt, PayError> {
        let provider_key = context().derive_key("provider");
        self.give_back_and_book(req, &provider_key).await
    }

    /// A message has no number, so the arguments themselves are the key; and a repeat need not get
    /// the answer of the first call, so it is refused for a day. The gateway knows no keys: there is one
    /// attempt, and when the process dies with it, the outcome is unknown, and nothing is sent again.
    #[idempotent(
        op = "payments.notify",
        ttl = "24h",
        lease = "3s",
        max_attempts = 1,
        on_duplicate = reject,
        engine = self.engine,
    )]
    async fn notify(&self, req: NotifyRequest) -> Result<Sent, PayError> {
        self.send(req).await
    }

    /// Executes a request, with the attribute or without it.
    pub(crate) async fn handle(&self, request: Request, protection: Protection) -> Answer {
        use Protection::{Idempotent, Without};
        Ok(match (request, protection) {
            (Request::Pay(req), Idempotent) => text(&self.pay(req).await?),
            (Request::Refund(req), Idempotent) => text(&self.refund(req).await?),
            (Request::Notify(req), Idempotent) => text(&self.notify(req).await?),
            // The same bodies. Without an idempotent call, there is no key to derive.
            (Request::Pay(req), Without) => {
                text(&self.charge_and_book(req, &self.new_key()).await?)
            }
            (Request::Refund(req), Without) => {
                text(&self.give_back_and_book(req, &self.new_key()).await?)
            }
            (Request::Notify(req), Without) => text(&self.send(req).await?),
        })
    }

    pub(crate) fn bodies(&self) -> u64 {
        self.bodies.load(Ordering::Relaxed)
    }

    async fn charge_and_book(&self, req: PayRequest, key: &str) -> Result<Receipt, PayError> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        let charged = self.provider.charge(key, &req).await;
        if let Err(PayError::Declined | PayError::InsufficientFunds) = charged {
            self.ledger.refuse(&req.merchant, &req.payment).await?;
        }
        self.book(charged?).await
    }

    async fn give_back_and_book(&self, req: RefundRequest, key: &str) -> Result<Receipt, PayError> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        let charge = match self.ledger.find(&req.merchant, &req.payment).await? {
            Found::Paid(charge) => charge,
            Found::Refused => return Err(PayError::NothingToRefund),
            Found::Nothing => return Err(PayError::NotPaidYet),
        };
        let refunded = self.provider.refund(key, &charge, &req).await?;
        self.book(refunded).await
    }

    async fn send(&self, req: NotifyRequest) -> Result<Sent, PayError> {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        let message = self.gateway.send(&req).await?;
        Ok(Sent { message })
    }

    async fn book(&self, moved: Movement) -> Result<Receipt, PayError> {
        let fails = self.faults.strikes(Step::Database, &moved.id);
        let engine = self.in_tx.then_some(&self.engine);
        let row = self.ledger.book(engine, &moved, fails).await?;
        Ok(Receipt {
            id: moved.id,
            movement: moved.number,
            amount: moved.amount,
            currency: moved.currency,
            row,
        })
    }

    /// The key of a caller without a stable one: a new one each time.
    fn new_key(&self) -> String {
        format!("request-{}", self.keys.fetch_add(1, Ordering::Relaxed))
    }
}

fn text(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer).expect("an answer has only strings and numbers")
}
