//! The settings of stored answers.

use super::compression::Compression;
use super::encryption::Encryption;
use super::layout::AnswerFormat;

/// The answer formats that an engine writes and reads.
#[derive(Clone, Debug)]
pub struct Format {
    pub(crate) write: AnswerFormat,
    /// The longest answer, both serialized and stored.
    pub(crate) max_value_bytes: usize,
    /// The longest answer that the store reads back, whatever its layout.
    pub(crate) max_stored_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) encryption: Encryption,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            write: AnswerFormat::Json,
            max_value_bytes: 256 << 10,
            max_stored_bytes: usize::MAX,
            compression: Compression::default(),
            encryption: Encryption::default(),
        }
    }
}

/// The longest answer that a type encodes itself, unless `max_value_bytes` is more.
pub(super) const MAX_OWN_BYTES: usize = 64 << 20;

impl Format {
    /// The longest answer that a type encodes itself.
    pub(crate) fn max_own_bytes(&self) -> usize {
        MAX_OWN_BYTES
            .max(self.max_value_bytes)
            .min(self.max_stored_bytes)
    }

    /// The same, with its own copy of the keys.
    pub(crate) fn apart(&self) -> Self {
        Self {
            encryption: self.encryption.apart(),
            ..self.clone()
        }
    }

    /// Checks these settings for mistakes.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_value_bytes > 512 << 20 {
            return Err("`max_value_bytes` must be at most 512 MiB".to_owned());
        }
        self.encryption.check()
    }

    pub(crate) fn encrypts(&self) -> bool {
        self.encryption.is_on()
    }
}
