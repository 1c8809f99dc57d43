//! Compressed answers.
//!
//! zstd is the reference library of the format: fuzzed for years, and bounded by the limit that it is given. The
//! decoders in Rust are younger, and their encoders compress less. The price is a C compiler.

use zstd::bulk::{Compressor, decompress};

use super::failure::Undecodable;

/// The library's own default: little is gained above it.
const LEVEL: i32 = 0;

/// The least limit of a decompressed answer, in bytes. It applies where `max_value_bytes` is less, because another
/// process may have written the answer with a higher limit.
const EXPANDED: usize = 8 << 20;

/// The compression setting of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compression {
    /// Answers of more bytes than this are compressed; `None` for none.
    pub(crate) above: Option<usize>,
}

impl Compression {
    /// One frame with its length and a checksum; `None` if the content stays uncompressed.
    pub(super) fn compress(&self, content: &[u8]) -> Option<Vec<u8>> {
        if content.len() <= self.above? {
            return None;
        }
        let mut compressor = Compressor::new(LEVEL).ok()?;
        compressor.include_checksum(true).ok()?;
        compressor.compress(content).ok()
    }
}

/// The decompressed content, if it is within the limit. The limit also bounds the allocation, whatever length the frame
/// declares.
pub(super) fn expand(frame: &[u8], max_value_bytes: usize) -> Result<Vec<u8>, Undecodable> {
    let max_bytes = max_value_bytes.max(EXPANDED);
    let long = zstd::decompressed_size(frame).ok_or(Undecodable::Damaged)?;
    if usize::try_from(long).map_or(true, |long| long > max_bytes) {
        return Err(Undecodable::TooLarge { max_bytes });
    }
    decompress(frame, max_bytes).map_err(|_| Undecodable::Damaged)
}
