//! Faults, drawn from a seed so that a run can be repeated.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The request is sent and does not reach the provider.
    ProviderBefore,
    /// The provider executes the request, and its answer is lost.
    ProviderAfter,
    /// The ledger's database refuses.
    Database,
    /// The service answers, and the answer does not reach the client.
    AnswerLost,
    /// The message gateway does not answer. It may or may not get the message.
    Gateway,
}

#[derive(Debug)]
pub(crate) struct Faults {
    seed: u64,
    tries: Mutex<HashMap<(Step, String), u32>>,
}

impl Faults {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            seed,
            tries: Mutex::default(),
        }
    }

    /// Whether this try of a step fails: about 4 % of the first two do, and no later one. It depends on the seed, the
    /// id and the number of the try, so that the same steps fail in any order of the tasks.
    pub(crate) fn strikes(&self, step: Step, id: &str) -> bool {
        self.strikes_or_first(step, id, false)
    }

    /// As [`strikes`](Self::strikes). With `first`, the first try fails for certain.
    pub(crate) fn strikes_or_first(&self, step: Step, id: &str, first: bool) -> bool {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = tries.entry((step, id.to_owned())).or_default();
        *nth += 1;
        // `DefaultHasher::new` is the same in every process.
        let mut hasher = DefaultHasher::new();
        (self.seed, step, id, *nth).hash(&mut hasher);
        first && *nth == 1 || *nth <= 2 && hasher.finish() % 100 < 4
    }
}
