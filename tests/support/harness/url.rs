//! Text in URLs.

use std::fmt::Write;

pub(crate) fn credentials(user: &str, password: &str) -> String {
    let (user, password) = (percent_encoded(user), percent_encoded(password));
    format!("{user}:{password}@")
}

/// Percent-encodes every character that is reserved in a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes anything");
        }
    }
    encoded
}
