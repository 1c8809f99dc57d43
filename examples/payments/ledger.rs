//! Our books: what moved, and what everybody has.
//!
//! On purpose it has no unique key and no check for repeats: each call of [`Ledger::book`] is a row,
//! and each row is money. Whether money moves once is up to the attribute.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::PayError;
use super::faults::{Faults, Step};

/// How long a write takes.
const COMMIT: Duration = Duration::from_millis(3);

/// One movement of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether it pays, or gives back.
    pub kind: Kind,
    /// The merchant.
    pub merchant: String,
    /// The merchant's number of the payment or refund.
    pub id: String,
    /// The payment; for a payment the same as `id`.
    pub payment: String,
    /// The account that has less afterwards.
    pub from: String,
    /// The account that has more afterwards.
    pub to: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
    /// The provider's number of the movement.
    pub movement: String,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// From a card to a merchant.
    Payment,
    /// From a merchant to a card.
    Refund,
}

/// What became of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not there (yet).
    Nothing,
    /// The provider refused it.
    Refused,
    /// It was booked with this charge, from this card.
    Paid {
        /// The provider's number.
        charge: String,
        /// The card.
        card: String,
    },
}

/// Rows and balances.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Every movement, in order.
    pub journal: Vec<Row>,
    /// What each account has, by account and currency.
    pub balances: BTreeMap<(String, String), i64>,
    refused: HashSet<(String, String)>,
    tries: HashMap<String, u32>,
}

/// The ledger of the service.
#[derive(Debug)]
pub struct Ledger {
    faults: Faults,
    books: Mutex<Books>,
}

impl Ledger {
    /// An empty ledger with these faults.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self {
            faults,
            books: Mutex::default(),
        }
    }

    /// Moves money, and returns the number of the row.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`]; nothing was written.
    pub async fn book(&self, row: Row) -> Result<usize, PayError> {
        tokio::time::sleep(COMMIT).await;
        let mut books = self.locked();
        let tries = books.tries.entry(row.id.clone()).or_default();
        *tries += 1;
        if self.faults.strikes(Step::Database, &row.id, *tries) {
            return Err(PayError::Database);
        }
        let amount = row.amount.cast_signed();
        for (account, change) in [(&row.from, -amount), (&row.to, amount)] {
            let account = (account.clone(), row.currency.clone());
            *books.balances.entry(account).or_default() += change;
        }
        books.journal.push(row);
        Ok(books.journal.len())
    }

    /// Notes that a payment will not come.
    pub fn refuse(&self, merchant: &str, payment: &str) {
        let payment = (merchant.to_owned(), payment.to_owned());
        self.locked().refused.insert(payment);
    }

    /// Looks a payment up.
    #[must_use]
    pub fn find(&self, merchant: &str, payment: &str) -> Found {
        let books = self.locked();
        let paid = books.journal.iter().find(|row| {
            row.kind == Kind::Payment && row.merchant == merchant && row.payment == payment
        });
        if let Some(row) = paid {
            return Found::Paid {
                charge: row.movement.clone(),
                card: row.from.clone(),
            };
        }
        let refused = (merchant.to_owned(), payment.to_owned());
        if books.refused.contains(&refused) {
            Found::Refused
        } else {
            Found::Nothing
        }
    }

    /// A copy of the books as they are.
    #[must_use]
    pub fn books(&self) -> Books {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
