//! A value as the bytes of a record, and back.
//!
//! `encoded` also maps the class of an error to storing or releasing; `layout` describes the bytes after the header of
//! [`record::header`](crate::record::Header).

mod body;
mod bound;
#[cfg_attr(not(feature = "zstd"), path = "without_compression.rs")]
mod compression;
mod encoded;
#[cfg_attr(not(feature = "encryption"), path = "without_encryption.rs")]
mod encryption;
mod failure;
mod format;
mod layout;
mod lossless;
#[cfg(feature = "msgpack")]
mod packed_number;
mod replay;
mod schema;
mod seal;
mod sink;
#[cfg(test)]
mod tests;

pub use self::body::Body;
pub(crate) use self::encoded::LaterAnswer;
pub use self::encoded::{Encoded, EncodedAnswer};
#[cfg(feature = "encryption")]
pub use self::encryption::EncryptionKeys;
pub use self::failure::{Undecodable, Unencodable};
pub use self::format::Format;
pub use self::layout::AnswerFormat;
pub(crate) use self::layout::is_encrypted;
pub use self::replay::Replay;
#[cfg(feature = "http")]
pub(crate) use self::schema::schema_of;
pub use self::sink::Sink;
