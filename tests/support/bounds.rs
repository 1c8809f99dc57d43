//! Sizes of the tests that search or repeat: smaller in an ordinary run than in a full one.

use std::env;

/// Whether this is a full run, which `IDEM_TEST_FULL` asks for.
pub fn is_full() -> bool {
    env::var_os("IDEM_TEST_FULL").is_some()
}

/// `ordinary`, or `full` in a full run.
pub fn bound<T>(ordinary: T, full: T) -> T {
    if is_full() { full } else { ordinary }
}
