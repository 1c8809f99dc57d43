//! Double of the payment provider: another party, which recognizes a repeat by the caller's name for a charge.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::args::Args;
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
    pace: Pace,
    /// Names of the charges that were refused because the bank was unreachable. They are not kept when the process
    /// ends: then the bank is unreachable once more.
    down: Arc<Mutex<HashSet<String>>>,
}

/// What a payment waits for, before the charge and after it: a caller killed in between has paid.
#[derive(Clone, Debug)]
enum Pace {
    Latency(Duration),
    /// A line of standard input.
    Lines(Arc<Semaphore>),
}

impl Pace {
    fn of(args: &Args) -> Self {
        if !args.by_hand {
            return Self::Latency(args.slow / 2);
        }
        let lines = Arc::new(Semaphore::new(0));
        let read = Arc::clone(&lines);
        thread::spawn(move || {
            for _ in io::stdin().lines().map_while(Result::ok) {
                read.add_permits(1);
            }
            // Without input nothing would end a payment.
            read.close();
        });
        Self::Lines(lines)
    }

    async fn wait(&self) {
        match self {
            Self::Latency(half) => tokio::time::sleep(*half).await,
            Self::Lines(lines) => {
                if let Ok(line) = lines.acquire().await {
                    line.forget();
                }
            }
        }
    }
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
    /// A provider with the latency of the arguments that keeps its charges in these books.
    pub(crate) fn new(books: Books, args: &Args) -> Self {
        Self {
            books,
            pace: Pace::of(args),
            down: Arc::default(),
        }
    }

    /// Charges a card once for each name.
    pub(crate) async fn charge(&self, charge: Charge<'_>) -> Result<Charged, ProviderDown> {
        self.pace.wait().await;
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
        self.pace.wait().await;
        Ok(charged)
    }

    fn down(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
