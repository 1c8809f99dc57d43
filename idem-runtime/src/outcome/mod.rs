//! From a function's result to a stored answer, and back.

mod answer;
mod call_error;
pub(crate) mod chosen_life;
pub(crate) mod class;
pub(crate) mod codec;
pub mod on_error;
#[allow(clippy::module_inception, reason = "it holds `Outcome`")]
mod outcome;
mod output;
pub(crate) mod provenance;
pub(crate) mod reconciled;
pub(crate) mod stored;

pub use self::answer::Answer;
pub use self::call_error::CallError;
pub use self::outcome::{FromError, Outcome, Sealed};
pub(crate) use self::output::AnyOutput;
pub use self::output::Output;
