//! Faults, drawn from a seed so that a run can be repeated.

use super::random::draw;

/// Steps that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The request is sent and does not reach the provider.
    ProviderBefore,
    /// The provider executes the request, and its answer is lost.
    ProviderAfter,
    /// The ledger's database refuses.
    Database,
    /// The service answers, and the answer does not reach the client.
    AnswerLost,
    /// The message gateway may or may not get the message, and does not answer.
    Gateway,
}

/// Decides which steps fail.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    seed: Option<u64>,
}

impl Faults {
    /// Faults drawn from this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed: Some(seed) }
    }

    /// No faults except the faults that a card's name triggers.
    #[must_use]
    pub fn none() -> Self {
        Self { seed: None }
    }

    /// Whether the `nth` try (from 1) of this step for this id fails. At most two tries in a row do.
    #[must_use]
    pub fn strikes(&self, step: Step, id: &str, nth: u32) -> bool {
        let (name, percent) = match step {
            Step::ProviderBefore => ("provider before", 4),
            Step::ProviderAfter => ("provider after", 4),
            Step::Database => ("database", 4),
            Step::AnswerLost => ("answer lost", 3),
            Step::Gateway => ("gateway", 3),
        };
        nth <= 2
            && self
                .seed
                .is_some_and(|seed| draw(seed, name, id, nth) % 100 < percent)
    }
}
