//! Reasons that an answer is not stored, or cannot be read back.

/// Reason that an answer became a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// More bytes than the engine or the layer stores.
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// Its `Serialize` returned an error.
    NotSerializable,
    /// Its format encodes it as another value.
    Lossy,
    /// Its `Deserialize` does not read what its `Serialize` has written.
    Unreadable {
        /// The name of its type.
        type_name: &'static str,
        /// The byte of the serialized value at which decoding failed.
        at: usize,
    },
    /// Its `Serialize` or `Deserialize` panicked.
    Panicked,
    /// It is an error whose classification panicked.
    Unclassified,
    /// The operating system provided no randomness to encrypt it with.
    NotEncrypted,
    /// It is an upgrade, or a stream without a whole recording.
    #[cfg(feature = "http")]
    Stream,
}

display_text!(Unencodable {
    Self::TooLarge { max_bytes } =>
        "it is larger than {max_bytes} bytes (`max_value_bytes`, or the limit of the store; of a response of an HTTP layer, \
         `max_response_bytes`); duplicates get `NotStored`";
    Self::NotSerializable => "its `Serialize` refused; duplicates get `NotStored`";
    Self::Lossy =>
        "its format does not bring it back: it holds `Some` of nothing (`Some(None)`, `Some(())`) or, in JSON, a number that \
         is not finite; duplicates get `NotStored`";
    Self::Unreadable { type_name, at } =>
        "the `Deserialize` of `{type_name}` refuses what its `Serialize` wrote, at byte {at} (a field that is skipped or \
         renamed one way; under `flatten` or in an untagged enum a 128-bit integer, or in JSON a float, if a crate of the \
         build enables `arbitrary_precision` of serde_json); duplicates get `NotStored`";
    Self::Panicked => "its `Serialize` or `Deserialize` panicked; duplicates get `NotStored`";
    Self::Unclassified => "what classifies the error panicked; duplicates get `Unknown`";
    Self::NotEncrypted =>
        "the operating system gave no randomness to encrypt it with; duplicates get `NotStored`";
    #[cfg(feature = "http")]
    Self::Stream =>
        "it is an upgrade, or a stream that is not recorded (`record_streams`) or goes on for longer than `max_run`; \
         duplicates get `NotStored`";
});

/// Reason that a stored answer cannot be read back. The record is kept, and nothing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// It is no value of the type, or answers are not kept.
    Mistyped {
        /// The byte of the serialized value at which decoding failed; 0 where the function keeps no such answer.
        at: usize,
    },
    /// A format that this version does not know.
    Format {
        /// Its first byte.
        tag: u8,
    },
    /// A format that this build leaves out.
    Feature {
        /// The feature of the crate that reads it.
        name: &'static str,
    },
    /// It ends before its format does.
    Short,
    /// It is encrypted, and the engine has no key of this id.
    KeyMissing {
        /// The key's id.
        id: u32,
    },
    /// It was not encrypted with this key for this call.
    Forged {
        /// The key's id.
        id: u32,
    },
    /// It is not encrypted, and the engine does not read such answers.
    Plain,
    /// It does not decompress.
    Damaged,
    /// It decompresses to more than the engine reads.
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
}

impl Undecodable {
    /// The reason not to store a value unreadable in its own form.
    pub(crate) fn in_own_form(self, type_name: &'static str) -> Unencodable {
        Unencodable::Unreadable {
            type_name,
            at: match self {
                Self::Mistyped { at } => at,
                _ => 0,
            },
        }
    }
}

display_text!(Undecodable {
    Self::Mistyped { at } => "failed at byte {at}";
    Self::Format { tag } =>
        "its format byte 0x{tag:02x} is not known to this version: a newer version of idem wrote it, or it is damaged";
    Self::Feature { name } => "reading it takes the feature `{name}`, which this build leaves out";
    Self::Short => "it ends too early";
    Self::KeyMissing { id } => "it is encrypted with key {id}, which this engine does not have";
    Self::Forged { id } =>
        "it does not open with key {id}: it was changed, belongs to another call, or was encrypted with another key of \
         this id";
    Self::Plain =>
        "it is not encrypted, and this engine reads encrypted answers only (`accept_plaintext` reads both)";
    Self::Damaged => "it does not decompress";
    Self::TooLarge { max_bytes } => "it decompresses to more than {max_bytes} bytes";
});
