//! Unguessable text.

use std::fmt::Write as _;

/// This many random bytes in hexadecimal.
///
/// # Panics
///
/// If the system has no randomness: the shop would be unsafe without it.
pub(super) fn random_text(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).expect("the system has random numbers");
    let mut text = String::with_capacity(2 * bytes);
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
