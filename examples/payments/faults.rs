//! What goes wrong, and when: drawn from a seed, so that a run can be repeated.

use super::random::draw;

/// Where a fault can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The provider gets the request and is not reached.
    ProviderBefore,
    /// The provider does what it is asked, and its answer is lost.
    ProviderAfter,
    /// The ledger's database refuses.
    Database,
    /// The service answers, and the client does not get it.
    AnswerLost,
    /// The message gateway gets the message, or not, and does not answer.
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

    /// No faults but those that a card asks for by its name.
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
