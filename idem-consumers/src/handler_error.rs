//! The bounds of a handler's error.

use idem_runtime::Classify;
use idem_runtime::codec::Replay;

/// An error that a handler returns. A single trait, so that missing bounds have one message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no verdict for the message",
    label = "derive `Classify`, `Serialize` and `Deserialize` for `{Self}`",
    note = "for an error of another crate, such as `anyhow::Error`: an error type of your own that holds it in a variant \
            `#[class(system)] #[serde(skip)] Other(anyhow::Error)`, which is delivered again"
)]
pub trait HandlerError: Classify + Replay {}

#[diagnostic::do_not_recommend]
impl<E: Classify + Replay> HandlerError for E {}
