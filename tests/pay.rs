//! A payment, as the tests make it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::Classify;
use serde::{Deserialize, Serialize};

/// What a payment answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which run of the body made it.
    pub run: u32,
}

/// How a payment fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub enum PayError {
    /// The bank said no.
    #[class(business)]
    Declined {
        /// Which run of the body was told so.
        run: u32,
    },
    /// The bank could not be asked.
    #[class(system)]
    Down,
    /// The bank was asked and did not answer.
    #[class(unknown)]
    TimedOut,
    /// idem refused.
    #[class(delegate)]
    Idem(idem_runtime::Error),
}

impl From<idem_runtime::Error> for PayError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idem(error)
    }
}

impl PayError {
    /// What idem said.
    ///
    /// # Panics
    ///
    /// If it was the bank.
    #[must_use]
    pub fn kind(&self) -> &idem_runtime::ErrorKind {
        match self {
            Self::Idem(error) => error.kind(),
            other => panic!("{other:?} is not idem's"),
        }
    }
}

/// Counts how often a body ran. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Runs(Arc<AtomicU32>);

impl Runs {
    /// The body runs.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How often it ran.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}
