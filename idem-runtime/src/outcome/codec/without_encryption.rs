//! Replacement of `encryption` in a build without the feature.

#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "the signatures are those of `encryption`"
)]

use super::bound::Bound;
use super::failure::{Undecodable, Unencodable};

#[derive(Clone, Debug, Default)]
pub(crate) struct Encryption {}

impl Encryption {
    pub(super) fn apart(&self) -> Self {
        Self {}
    }

    pub(crate) fn under(&self, _: &str) -> Self {
        Self {}
    }

    pub(super) fn check(&self) -> Result<(), String> {
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn seal(&self, _: &Bound<'_>, _: &[u8]) -> Result<Vec<u8>, Unencodable> {
        Err(Unencodable::NotEncrypted)
    }

    pub(super) fn open(&self, _: &Bound<'_>, _: &[u8]) -> Result<Vec<u8>, Undecodable> {
        Err(Undecodable::Feature { name: "encryption" })
    }

    pub(super) fn accept_plain(&self) -> Result<(), Undecodable> {
        Ok(())
    }
}
