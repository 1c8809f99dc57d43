//! Replacement of `presented_token` in a build without the feature: no call presents a token.

#[derive(Debug)]
pub(crate) enum PresentedToken {}
