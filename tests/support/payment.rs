//! A payment operation for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::Classify;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Number of the run that made it.
    pub run: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub enum PayError {
    #[class(business)]
    Declined {
        /// Number of the run that was declined.
        run: u32,
    },
    /// The bank was not reached.
    #[class(system)]
    Down,
    /// The bank received the request and did not answer.
    #[class(unknown)]
    TimedOut,
    #[class(delegate)]
    Idem(idem_runtime::Error),
}

impl From<idem_runtime::Error> for PayError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idem(error)
    }
}

impl PayError {
    pub fn kind(&self) -> &idem_runtime::ErrorKind {
        match self {
            Self::Idem(error) => error.kind(),
            other => panic!("{other:?} is not idem's"),
        }
    }
}

/// Counts the runs of a body. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Runs(Arc<AtomicU32>);

impl Runs {
    /// Counts a run, and returns its number.
    pub fn start(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}
