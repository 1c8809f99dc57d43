//! The service's books: movements and balances.
//!
//! On purpose they have no unique key and no check for repeats: each row that is written is money.
//! In memory each call of [`Ledger::book`] is a row, and the attribute of the caller has to ensure
//! that money moves once. In a [`Database`] a process can die after the row was committed and
//! before the caller's answer was, so there `book` is idempotent itself, by a record in the same
//! transaction.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_runtime::Engine;
use serde::{Deserialize, Serialize};

use super::database::Database;
use super::error::PayError;
use super::faults::{Faults, Step};

/// Duration of a write, where no database takes its own time.
const COMMIT: Duration = Duration::from_millis(3);

/// One movement of money.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Payment or refund.
    pub kind: Kind,
    /// The merchant.
    pub merchant: String,
    /// The merchant's number of the payment or refund.
    pub id: String,
    /// The payment; for a payment the same as `id`.
    pub payment: String,
    /// The account that is debited.
    pub from: String,
    /// The account that is credited.
    pub to: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
    /// The provider's number of the movement.
    pub movement: String,
}

/// Kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// From a card to a merchant.
    Payment,
    /// From a merchant to a card.
    Refund,
}

/// State of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It does not exist (yet).
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
    /// Balance of each account, by account and currency.
    pub balances: BTreeMap<(String, String), i64>,
    /// Number of rows that an earlier run wrote.
    pub earlier: usize,
    /// Bookings of this run whose row existed already: replays of [`Ledger::book`].
    pub again: u64,
    refused: HashSet<(String, String)>,
}

impl Books {
    /// Books from rows and balances.
    #[must_use]
    pub fn new(journal: Vec<Row>, balances: BTreeMap<(String, String), i64>) -> Self {
        Self {
            journal,
            balances,
            ..Self::default()
        }
    }
}

/// The ledger of the service.
#[derive(Debug)]
pub struct Ledger {
    faults: Faults,
    tries: Mutex<HashMap<String, u32>>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Mutex<Books>),
    Database {
        database: Database,
        engine: Engine,
        earlier: usize,
        again: AtomicU64,
    },
}

impl Ledger {
    /// A ledger with these faults: in the database, or empty in memory. The records of
    /// bookings in the database are this engine's, whose store is in the same database.
    #[must_use]
    pub fn new(faults: Faults, database: Option<Database>, engine: &Engine) -> Self {
        let place = match database {
            Some(database) => Place::Database {
                engine: engine.clone(),
                earlier: database.rows(),
                again: AtomicU64::new(0),
                database,
            },
            None => Place::Memory(Mutex::default()),
        };
        Self {
            faults,
            tries: Mutex::default(),
            place,
        }
    }

    /// Moves money, and returns the number of the row.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`] and idem's own; nothing was written.
    pub async fn book(&self, row: Row) -> Result<usize, PayError> {
        let nth = {
            let mut tries = locked(&self.tries);
            let nth = tries.entry(row.id.clone()).or_default();
            *nth += 1;
            *nth
        };
        let fails = self.faults.strikes(Step::Database, &row.id, nth);
        match &self.place {
            Place::Memory(books) => {
                tokio::time::sleep(COMMIT).await;
                if fails {
                    return Err(PayError::Database);
                }
                Ok(locked(books).write(row))
            }
            Place::Database {
                database,
                engine,
                again,
                ..
            } => {
                let booked = database.book(engine, &row, fails).await?;
                again.fetch_add(u64::from(!booked.now), Ordering::Relaxed);
                Ok(booked.number)
            }
        }
    }

    /// Stores that a payment was refused.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`].
    pub async fn refuse(&self, merchant: &str, payment: &str) -> Result<(), PayError> {
        match &self.place {
            Place::Memory(books) => {
                let payment = (merchant.to_owned(), payment.to_owned());
                locked(books).refused.insert(payment);
                Ok(())
            }
            Place::Database { database, .. } => Ok(database.refuse(merchant, payment).await?),
        }
    }

    /// Finds a payment.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`].
    pub async fn find(&self, merchant: &str, payment: &str) -> Result<Found, PayError> {
        match &self.place {
            Place::Memory(books) => Ok(locked(books).find(merchant, payment)),
            Place::Database { database, .. } => Ok(database.find(merchant, payment).await?),
        }
    }

    /// A copy of the current books.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`].
    pub async fn books(&self) -> Result<Books, PayError> {
        match &self.place {
            Place::Memory(books) => Ok(locked(books).clone()),
            Place::Database {
                database,
                earlier,
                again,
                ..
            } => Ok(Books {
                earlier: *earlier,
                again: again.load(Ordering::Relaxed),
                ..database.books().await?
            }),
        }
    }
}

impl Books {
    fn write(&mut self, row: Row) -> usize {
        let amount = row.amount.cast_signed();
        for (account, change) in [(&row.from, -amount), (&row.to, amount)] {
            let account = (account.clone(), row.currency.clone());
            *self.balances.entry(account).or_default() += change;
        }
        self.journal.push(row);
        self.journal.len()
    }

    fn find(&self, merchant: &str, payment: &str) -> Found {
        let paid = self.journal.iter().find(|row| {
            row.kind == Kind::Payment && row.merchant == merchant && row.payment == payment
        });
        if let Some(row) = paid {
            return Found::Paid {
                charge: row.movement.clone(),
                card: row.from.clone(),
            };
        }
        let refused = (merchant.to_owned(), payment.to_owned());
        if self.refused.contains(&refused) {
            Found::Refused
        } else {
            Found::Nothing
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
