//! Compressed answers.
//!
//! zstd is the library that the format comes from: fuzzed for years, and bounded by what it is told.
//! The decoders in Rust are younger, and their encoders compress less. The price is a C compiler.

use zstd::bulk::{Compressor, decompress};

use super::Undecodable;

/// The library's own default: little is gained above it.
const LEVEL: i32 = 0;

/// One frame, with its length and a checksum in it; `None` if that does not work.
pub(super) fn compress(content: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = Compressor::new(LEVEL).ok()?;
    compressor.include_checksum(true).ok()?;
    compressor.compress(content).ok()
}

/// What was compressed, if that is not more than `max_bytes`. No more than these are allocated,
/// whatever the frame says.
pub(super) fn expand(frame: &[u8], max_bytes: usize) -> Result<Vec<u8>, Undecodable> {
    let long = zstd::decompressed_size(frame).ok_or(Undecodable::Damaged)?;
    if usize::try_from(long).map_or(true, |long| long > max_bytes) {
        return Err(Undecodable::TooLarge { max_bytes });
    }
    decompress(frame, max_bytes).map_err(|_| Undecodable::Damaged)
}
