//! The promises of the protocol.

/// A promise; the bit of it in [`Broken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Promise {
    /// All callers that receive a stored answer receive the same one. An operator's resolution ends this.
    EqualAnswers,
    /// No body starts after a caller received a stored answer.
    AnswersEndIt,
    /// An answer is replaced only by a resolution whose operator saw it.
    DoneIsFinal,
    /// A claim that is held is ended by its owner alone.
    OneClaim,
    /// Only the owner that reconciled an unknown outcome runs its body.
    UnknownWaits,
    /// A released owner is granted nothing any more.
    GoneIsGone,
    /// Each claim has a higher fence than all before.
    FencesGrow,
    /// No other body starts between a verdict "not landed" and its body.
    FreshVerdict,
    /// No more bodies start than attempts are allowed.
    AttemptsEnd,
    /// The effect happens once at most.
    OneEffect,
    /// No caller receives an answer to another request.
    OwnAnswers,
    /// The body of another request starts only after releases. Each earlier body released the key because nothing
    /// happened.
    RequestStays,
    /// No later attempt runs a step whose result was acknowledged. An answer, or a reset without steps, ends this.
    StepsRunNoMore,
    /// The effect of a step that runs once happens at most once. So it is with a step that is asked about. A reset
    /// without steps ends this.
    OnceIsOnce,
    /// Every attempt gets the same result of a step.
    EqualSteps,
    /// A grant hands over all that was acknowledged.
    StepsAreHandedOver,
    /// A journal grows by the owner of the claim alone.
    OwnSteps,
    /// Only an answer or a reset without steps removes a journal's entry.
    StepsStay,
}

pub(crate) const PROMISES: [Promise; 18] = [
    Promise::EqualAnswers,
    Promise::AnswersEndIt,
    Promise::DoneIsFinal,
    Promise::OneClaim,
    Promise::UnknownWaits,
    Promise::GoneIsGone,
    Promise::FencesGrow,
    Promise::FreshVerdict,
    Promise::AttemptsEnd,
    Promise::OneEffect,
    Promise::OwnAnswers,
    Promise::RequestStays,
    Promise::StepsRunNoMore,
    Promise::OnceIsOnce,
    Promise::EqualSteps,
    Promise::StepsAreHandedOver,
    Promise::OwnSteps,
    Promise::StepsStay,
];

impl Promise {
    /// Whether it holds whatever the policy of the operation.
    pub(crate) fn always(self) -> bool {
        !matches!(self, Self::AttemptsEnd | Self::OneEffect)
    }
}

/// Promises that were broken on the way to a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Broken(u32);

impl Broken {
    pub(crate) fn note(&mut self, promise: Promise, kept: bool) {
        self.0 |= u32::from(!kept) << promise as u8;
    }

    pub(crate) fn has(self, promise: Promise) -> bool {
        self.0 >> (promise as u8) & 1 == 1
    }
}
