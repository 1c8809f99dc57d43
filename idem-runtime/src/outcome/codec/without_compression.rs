//! Replacement of `compression` in a build without the feature `zstd`.

#![allow(
    clippy::unused_self,
    reason = "the signatures are those of `compression`"
)]

use super::failure::Undecodable;

#[derive(Clone, Debug, Default)]
pub(crate) struct Compression {}

impl Compression {
    pub(super) fn compress(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

pub(super) fn expand(_: &[u8], _: usize) -> Result<Vec<u8>, Undecodable> {
    Err(Undecodable::Feature { name: "zstd" })
}
