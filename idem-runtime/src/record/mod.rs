//! The record of one key: its bytes and its transitions. Pure: no store, no clock, no I/O.
//!
//! A store that keeps records itself ([`memory`](crate::store::memory)) calls the transitions; a store whose server
//! decides (Redis scripts, SQL) implements the same ones there. The conformance suite requires the same replies of all
//! of them.
//!
//! # Time
//!
//! A record carries no moment, only durations. Its age follows from the time that the store will still keep it (`left`,
//! Redis' `PTTL`): a record is written to live for `retain`, so `retain - left` is its age, and a claim's lease has
//! `lease - age` left. Client clocks, time zones and steps of a client's clock therefore cannot end a lease.

mod answer_types;
pub(crate) mod attempt;
mod codes;
mod fence;
mod header;
pub(crate) mod journal;
pub(crate) mod label;
mod operator_act;
mod outcome_kind;
mod owner;
#[allow(clippy::module_inception, reason = "it holds `Record`")]
mod record;
mod reply;
pub(crate) mod transition;
pub(crate) mod unknown_cause;
mod unreadable;

#[cfg(test)]
mod tests;

pub use self::answer_types::AnswerTypes;
pub use self::attempt::{Attempt, AttemptEnd};
pub use self::fence::Fence;
pub use self::header::{FOREVER, HEADER, Header, MAX_RETAIN, State};
pub use self::journal::{Journal, JournalKind};
pub use self::operator_act::{HistoryEvent, OperatorAct, OperatorVerb};
pub use self::outcome_kind::OutcomeKind;
pub use self::owner::{Owner, Process};
pub use self::record::Record;
pub use self::unreadable::Unreadable;
#[cfg(feature = "_sql")]
pub(crate) use self::unreadable::{LAYOUT, LAYOUT_ATTEMPTS, LAYOUT_STEPS};
