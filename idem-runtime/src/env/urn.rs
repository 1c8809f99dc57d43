//! Names of single events.

/// A random `urn:uuid:…`, of version 4 (RFC 9562).
pub(crate) fn random_urn() -> String {
    let mut bytes = [0; 16];
    // Without randomness the URN names nothing, which is better than no answer at all.
    let _ = getrandom::fill(&mut bytes);
    let bits = u128::from_be_bytes(bytes);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xffff,
        bits >> 48 & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}
