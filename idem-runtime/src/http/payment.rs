//! The payment of a request: x402.

use ::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

use super::key::KeyRefusal;

/// The headers of a payment, x402 versions 2 and 1.
pub(super) static PAYMENT: [HeaderName; 2] = [
    HeaderName::from_static("payment-signature"),
    HeaderName::from_static("x-payment"),
];

pub(super) fn has_payment(headers: &HeaderMap) -> bool {
    PAYMENT.iter().any(|name| headers.contains_key(name))
}

/// Whether a request has a payment of version 2.
pub(super) fn has_signature(headers: &HeaderMap) -> bool {
    headers.contains_key(&PAYMENT[0])
}

/// The JSON document of a payment of version 2.
pub(super) fn document(headers: &HeaderMap) -> Result<Option<Vec<u8>>, KeyRefusal> {
    let mut lines = headers.get_all(&PAYMENT[0]).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(KeyRefusal::Repeated);
    }
    let document = base64(line.as_bytes().trim_ascii());
    document.map(Some).ok_or(KeyRefusal::Unreadable)
}

/// The standard alphabet without padding, and with stray bits.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Reads bytes from base64 of either alphabet, with padding or without.
pub(super) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut text = text[..text.len() - padding].to_vec();
    for byte in &mut text {
        *byte = match *byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        };
    }
    BASE64.decode(text).ok()
}
