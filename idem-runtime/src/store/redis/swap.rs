//! A completion without a script, on servers that compare and set: `SET … IFEQ`.
//!
//! Nobody but its owner writes a claim, and nothing is in it that its owner does not know, but the mark of
//! somebody who waits. So whoever ends a claim for which nobody waits can say byte by byte what must stand
//! there. Where anything else does, the script decides, and tells.

use std::time::Duration;

use redis::{Cmd, Value};

use super::link::{Failure, Order};
use super::node::Keeping;
use super::operations::millis;
use super::{Inner, StoreError};
use crate::record::{HEADER, Header};

impl Inner {
    /// Whether the record has taken the place of the claim; if not, nothing has changed.
    pub(super) async fn swap(
        &self,
        name: &str,
        claim: &Header,
        retain: Duration,
        record: &[u8],
    ) -> Result<bool, StoreError> {
        let set = || {
            let mut set = Cmd::with_capacity(7, name.len() + record.len() + HEADER + 32);
            set.arg("SET").arg(name).arg(record);
            set.arg("IFEQ").arg(&claim.encode()[..]);
            set.arg("PX").arg(millis(retain));
            set
        };
        let order = Order::about(name, &set);
        match self.link.send(&order, Keeping::Writes).await {
            Ok(reply) => Ok(reply == Value::Okay),
            // A full memory, a missing right, a slot that has moved: the script is told the same, or finds
            // a way.
            Err(Failure::Reply(error)) if error.code().is_some() => Ok(false),
            Err(failure) => Err(failure.store_error("a completion")),
        }
    }
}
