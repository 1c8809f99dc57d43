//! Arguments of commands and scripts.

use std::time::Duration;

/// Redis takes numbers as text.
pub(super) fn decimal(number: u64) -> String {
    number.to_string()
}

/// A duration in milliseconds, as Redis takes it. The bounds of the policy keep it far below the limit.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
