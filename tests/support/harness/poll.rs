//! Waiting for servers to agree with each other.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// A failover takes seconds, one with a split vote some more; a busy machine adds to that.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two polls, each of which queries several servers.
const PAUSE: Duration = Duration::from_millis(20);

/// Polls until there is a result, or panics with the reason of the last failure.
pub(crate) fn until<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(reason) => assert!(
                Instant::now() < deadline,
                "{what}: not within {PATIENCE:?}; at last: {reason}"
            ),
        }
        thread::sleep(PAUSE);
    }
}
