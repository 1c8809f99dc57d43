//! Compressed answers.
//!
//! zstd is the library that the format comes from: fuzzed for years, and bounded by what it is told.
//! The decoders in Rust are younger, and their encoders compress less. The price is a C compiler.

use zstd::bulk::{Compressor, decompress};

use super::Undecodable;

/// The library's own default: little is gained above it.
const LEVEL: i32 = 0;

/// To how much an answer may decompress where `max_value_bytes` is less: another process may have
/// written it with a higher limit.
const EXPANDED: usize = 8 << 20;

/// Which answers are compressed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compression {
    /// Those of more bytes than this; `None` for none.
    pub(crate) above: Option<usize>,
}

impl Compression {
    /// One frame, with its length and a checksum in it; `None` for what stays as it is.
    pub(super) fn compress(&self, content: &[u8]) -> Option<Vec<u8>> {
        if content.len() <= self.above? {
            return None;
        }
        let mut compressor = Compressor::new(LEVEL).ok()?;
        compressor.include_checksum(true).ok()?;
        compressor.compress(content).ok()
    }
}

/// What was compressed, if it is not too much. No more is allocated, whatever the frame says.
pub(super) fn expand(frame: &[u8], max_value_bytes: usize) -> Result<Vec<u8>, Undecodable> {
    let max_bytes = max_value_bytes.max(EXPANDED);
    let long = zstd::decompressed_size(frame).ok_or(Undecodable::Damaged)?;
    if usize::try_from(long).map_or(true, |long| long > max_bytes) {
        return Err(Undecodable::TooLarge { max_bytes });
    }
    decompress(frame, max_bytes).map_err(|_| Undecodable::Damaged)
}
