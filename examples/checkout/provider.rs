//! Double of the payment provider: another party, which recognizes a repeat by the caller's name for a charge.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::books::{Books, Charged};

/// The test cards of the shop, as real providers have them.
pub(crate) const CARDS: [(&str, &str); 3] = [
    ("tok_visa", "a card that pays"),
    ("tok_chargeDeclined", "a card that is declined"),
    (
        "tok_down",
        "a card whose bank cannot be reached the first time",
    ),
];

/// Charges cards. Clones share one provider.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    books: Books,
    slow: Duration,
    /// Names of the charges that were refused because the bank was unreachable. They are not kept when the process
    /// ends: then the bank is unreachable once more.
    down: Arc<Mutex<HashSet<String>>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<'a> {
    /// The caller's name for it: the same name is the same charge.
    pub(crate) name: &'a str,
    /// In the smallest unit of the currency.
    pub(crate) amount: i64,
    pub(crate) currency: &'a str,
    pub(crate) card: &'a str,
}

/// It is unknown whether the card was charged. A retry with the same name is safe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderDown;

impl Provider {
    /// A provider with this latency that keeps its charges in these books.
    pub(crate) fn new(books: Books, slow: Duration) -> Self {
        Self {
            books,
            slow,
            down: Arc::default(),
        }
    }

    /// Charges a card once for each name.
    pub(crate) async fn charge(&self, charge: Charge<'_>) -> Result<Charged, ProviderDown> {
        // Half of the latency before the charge, at most three seconds, and the rest after it: a caller killed in between
        // has paid.
        let before = (self.slow / 2).min(Duration::from_secs(3));
        tokio::time::sleep(before).await;
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
        tokio::time::sleep(self.slow.saturating_sub(before)).await;
        Ok(charged)
    }

    fn down(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
