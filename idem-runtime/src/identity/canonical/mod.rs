//! The canonical encoding, format 1: deterministic CBOR (RFC 8949 §4.2.1) of any `Serialize` value.
//!
//! Two processes, releases or platforms that hold the same value must write the same bytes, because
//! keys and fingerprints are digests of them. The rules are frozen:
//!
//! | serde | CBOR |
//! |---|---|
//! | integers of any width | the shortest integer; beyond 64 bits tags 2 and 3 |
//! | floats | the shortest float that is exact; every NaN is `f97e00`, −0.0 is 0.0; never an integer |
//! | str, char; bytes | text string; byte string |
//! | seq, tuple, tuple struct | array |
//! | struct | map by field name; a field whose value is encoded as null is left out |
//! | map | map; two entries of the same key are an error |
//! | unit variant; other variants | the name; a map of one entry, from the name to the content |
//! | newtype struct | its content |
//! | `None`; `Some(x)` | null; `x`, and `[x]` where `x` is null or null in one-element arrays |
//! | `()`, unit struct | the empty array |
//!
//! A `serde_json::Number` is an integer of 64 bits or a float. With the feature `arbitrary_precision` of `serde_json`,
//! which any crate of a build may enable, it serializes as a struct with its text, which is read back: see
//! [`json_number`].
//!
//! The entries of maps and structs are sorted by their encoded keys, byte by byte. The serializer reports a
//! human-readable format, so that UUIDs and addresses are text.
//!
//! Not visible to an encoder: a `HashSet` serializes as a sequence in random order, a `Vec<u8>` as an array of numbers,
//! and a struct with `#[serde(flatten)]` as a map, whose nulls are kept.

mod compound;
mod encoder;
mod error;
mod float;
mod json_number;
mod serializer;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod vectors;

#[cfg(feature = "http")]
pub(crate) use encoder::CLIENT_KEY;
pub(crate) use encoder::{Encoder, FORMAT, Major};
pub use error::CanonicalError;

/// The encoding of `value` alone, for tests.
#[cfg(test)]
pub(crate) fn to_vec<T>(value: &T) -> Result<Vec<u8>, CanonicalError>
where
    T: serde::Serialize + ?Sized,
{
    let mut encoder = Encoder::take();
    encoder.hold();
    encoder.put(value)?;
    Ok(encoder.held_bytes().clone())
}
