//! Provenance of an answer.

/// Provenance of an answer, as seen by the call. Variants may be added; match with a `_` arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerSource {
    /// This call ran the body.
    Executed,
    /// An earlier call had run the body. Its answer was stored, or a reconcile hook found it.
    Replayed,
    /// Another call ran the body while this call was in progress. Either this call waited for it, or it ran the body
    /// too, lost its lease before completion, and the other call's answer counts.
    Waited,
}
