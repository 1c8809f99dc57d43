//! An order of about 150 bytes, and its receipt.

use serde::{Deserialize, Serialize};

/// An order. A worker makes one and changes its number from call to call, so that the driver
/// allocates nothing.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) merchant: u64,
    pub(crate) number: u64,
    pub(crate) customer: String,
    pub(crate) currency: String,
    pub(crate) cents: u64,
    pub(crate) address: String,
    pub(crate) note: Option<String>,
    pub(crate) articles: [u32; 4],
}

impl Order {
    /// A merchant of this run: records of an earlier run belong to another one.
    pub(crate) fn of(merchant: u64) -> Self {
        Self {
            merchant,
            number: 0,
            customer: "C-2026-000441872".to_owned(),
            currency: "EUR".to_owned(),
            cents: 129_900,
            address: "Ursula Example, 12 Long Harbour Street, 20457 Hamburg".to_owned(),
            note: Some("leave it at the door, please".to_owned()),
            articles: [4_711, 815, 90_210, 12],
        }
    }
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) number: u64,
    pub(crate) state: String,
    pub(crate) cents: u64,
    /// Fills it up to the size that is asked for.
    pub(crate) text: String,
}

impl Receipt {
    /// Of so many bytes, as JSON.
    pub(crate) fn of(bytes: usize) -> Self {
        let words = "Thank you for your order. It is on its way to you. ";
        let text = bytes - Self::bare_bytes();
        Self {
            text: words.chars().cycle().take(text).collect(),
            ..Self::bare()
        }
    }

    /// The size of one without text: none is smaller.
    pub(crate) fn bare_bytes() -> usize {
        serde_json::to_vec(&Self::bare()).unwrap().len()
    }

    fn bare() -> Self {
        Self {
            number: 1_000_000,
            state: "accepted".to_owned(),
            cents: 129_900,
            text: String::new(),
        }
    }
}

/// A number for this run of the benchmark.
pub(crate) fn merchant() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_nanos() % (1 << 53)).unwrap()
}
