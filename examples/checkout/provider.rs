//! The payment provider's double: another party, which knows a repeat by the name its caller gives a charge.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::books::{Books, Charged};

/// The test cards of the shop. Real providers have them too.
pub const CARDS: [(&str, &str); 3] = [
    ("tok_visa", "a card that pays"),
    ("tok_chargeDeclined", "a card that is declined"),
    (
        "tok_down",
        "a card whose bank cannot be reached the first time",
    ),
];

/// Charges cards. Clones are the same provider.
#[derive(Clone, Debug)]
pub struct Provider {
    books: Books,
    slow: Duration,
    /// The charges that were turned away because the bank could not be reached. They are not kept when the process
    /// ends: then the bank cannot be reached once more.
    down: Arc<Mutex<HashSet<String>>>,
}

/// What is to be charged.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// What its caller names it by: the same name is the same charge.
    pub name: &'a str,
    /// In the smallest unit of the currency.
    pub amount: i64,
    /// Three letters.
    pub currency: &'a str,
    /// The card.
    pub card: &'a str,
}

/// Why it is not known whether the card was charged. Asking again with the same name is safe.
#[derive(Clone, Copy, Debug)]
pub struct ProviderDown;

impl Provider {
    /// A provider that takes so long, and keeps its charges in these books.
    #[must_use]
    pub fn new(books: Books, slow: Duration) -> Self {
        Self {
            books,
            slow,
            down: Arc::default(),
        }
    }

    /// Charges a card once for each name.
    ///
    /// # Errors
    ///
    /// [`ProviderDown`].
    pub async fn charge(&self, charge: Charge<'_>) -> Result<Charged, ProviderDown> {
        // Half of the way there and half of the way back: whoever is killed meanwhile may have paid.
        tokio::time::sleep(self.slow / 2).await;
        if charge.card == "tok_down" && self.down().insert(charge.name.to_owned()) {
            return Err(ProviderDown);
        }
        let pays = charge.card != "tok_chargeDeclined";
        let charged = self
            .books
            .charge(charge.name, charge.amount, charge.currency, pays)
            .await
            .map_err(|error| {
                eprintln!("checkout: the payment provider cannot write a charge: {error}");
                ProviderDown
            })?;
        tokio::time::sleep(self.slow / 2).await;
        Ok(charged)
    }

    fn down(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
