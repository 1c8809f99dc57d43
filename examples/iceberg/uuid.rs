//! UUIDs of version 7 (RFC 9562, section 5.7), the form of a key.

use std::time::{SystemTime, UNIX_EPOCH};

/// A new one: 48 bits of milliseconds, and random ones.
///
/// # Panics
///
/// Where the system has no random numbers.
#[must_use]
pub fn v7() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis()) & 0xffff_ffff_ffff;
    let random = || getrandom::u64().expect("the system has random numbers");
    let high = random() & 0xfff | 0x7000;
    let low = random() >> 2 | 1 << 63;
    format!(
        "{:08x}-{:04x}-{high:04x}-{:04x}-{:012x}",
        millis >> 16,
        millis & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
