//! Replacement of `token` in a build without the feature: there are no tokens.

#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "the signatures are those of the feature"
)]

use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::identity::operation::Operation;
use crate::identity::presented_token::PresentedToken;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {}

impl Tokens {
    pub(crate) fn random() -> Self {
        Self {}
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        Ok(())
    }

    pub(crate) fn life_of(
        &self,
        presented: &PresentedToken,
        _: &str,
        _: &Operation,
        _: SystemTime,
    ) -> Result<Option<Duration>, Error> {
        match *presented {}
    }
}
