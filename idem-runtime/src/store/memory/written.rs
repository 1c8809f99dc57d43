//! The bytes of a write.

use bytes::Bytes;

use crate::record::{HEADER, Header};

pub(super) fn encoded(header: &Header) -> Bytes {
    Bytes::copy_from_slice(&header.encode())
}

/// `record` with the header `new`, cloned cheaply if the header stays the same.
pub(super) fn rewritten(record: &Bytes, old: &Header, new: &Header) -> Bytes {
    if old == new {
        return record.clone();
    }
    let mut bytes = record.to_vec();
    bytes[..HEADER].copy_from_slice(&new.encode());
    bytes.into()
}
