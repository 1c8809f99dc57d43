//! Waiting for what another process does.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for anything that must happen: only a hang reaches it, on a machine however busy.
pub const HANG_LIMIT: Duration = Duration::from_mins(5);

/// Longest pause between two polls, each of which may query several servers.
const PAUSE: Duration = Duration::from_millis(20);

/// Polls for a result, or panics with the last failure's reason.
pub fn until<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + HANG_LIMIT;
    let mut pause = Duration::from_millis(1);
    loop {
        match look() {
            Ok(found) => return found,
            Err(reason) => assert!(
                Instant::now() < deadline,
                "{what}: not within {HANG_LIMIT:?}; at last: {reason}"
            ),
        }
        thread::sleep(pause);
        pause = PAUSE.min(pause * 2);
    }
}

/// Polls until this is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()).ok_or("it is not so"));
}
