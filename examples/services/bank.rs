//! The function that moves money. It knows no framework.

use std::collections::HashMap;
use std::sync::Arc;

use idem_runtime::http::IdempotencyKey;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Answer, Classify, Engine, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// An order of a client to move money from its account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The account that gets the money.
    pub to: String,
    /// The amount, in cents.
    pub cents: u64,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of the transfer, from 1.
    pub number: usize,
    /// The account that paid.
    pub from: String,
    /// The account that got the money.
    pub to: String,
    /// The amount, in cents.
    pub cents: u64,
}

/// A transfer without a receipt.
#[derive(Clone, Debug, Serialize, Deserialize, Classify)]
pub enum TransferError {
    /// The account holds less. It is an answer: stored, and replayed.
    #[class(business)]
    NotEnoughMoney,
    /// The clearing house has not confirmed the transfer: the money was moved, or was not.
    #[class(unknown)]
    NotConfirmed,
    /// A refusal by idem.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for TransferError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

/// The accounts and their history.
#[derive(Debug)]
pub struct Ledger {
    /// The cents on each account.
    pub accounts: HashMap<String, u64>,
    /// Every transfer, in its order.
    pub transfers: Vec<Receipt>,
    /// Whether the clearing house confirms a transfer.
    pub confirms: bool,
}

/// A bank whose clients ann, bob and cat have 1,000 euros each.
#[derive(Debug)]
pub struct Bank {
    engine: Engine,
    /// One transfer at a time changes it.
    pub ledger: Mutex<Ledger>,
}

impl Bank {
    /// Opens the bank. Its records live as long as it does, as its ledger; a real one keeps both in a database.
    #[must_use]
    pub fn open() -> Arc<Self> {
        let accounts = ["ann", "bob", "cat"].map(|client| (client.to_owned(), 100_000));
        let ledger = Ledger {
            accounts: HashMap::from(accounts),
            transfers: Vec::new(),
            confirms: true,
        };
        Arc::new(Self {
            engine: Engine::new(MemoryStore::new()),
            ledger: Mutex::new(ledger),
        })
    }
}

/// Moves money from the account of an authenticated client.
///
/// Two clients may choose the same key, so the client is its scope. `on_cancel = finish`: the body runs to completion
/// even if the connection breaks, where some frameworks drop the handler.
///
/// # Errors
///
/// [`TransferError`]; no money was moved, except with [`NotConfirmed`](TransferError::NotConfirmed), where that is not
/// known.
#[idempotent(
    op = "bank.transfer",
    scope = client,
    key = key,
    ttl = "24h",
    on_running = wait("1s"),
    on_cancel = finish,
    engine = bank.engine,
)]
pub async fn transfer(
    #[idem(skip)] bank: Arc<Bank>,
    client: String,
    key: IdempotencyKey,
    order: Order,
) -> Result<Answer<Receipt>, TransferError> {
    let mut ledger = bank.ledger.lock().await;
    let balance = ledger.accounts.entry(client.clone()).or_default();
    *balance = balance
        .checked_sub(order.cents)
        .ok_or(TransferError::NotEnoughMoney)?;
    *ledger.accounts.entry(order.to.clone()).or_default() += order.cents;
    let receipt = Receipt {
        number: ledger.transfers.len() + 1,
        from: client,
        to: order.to,
        cents: order.cents,
    };
    ledger.transfers.push(receipt.clone());
    if ledger.confirms {
        Ok(receipt.into())
    } else {
        Err(TransferError::NotConfirmed)
    }
}
