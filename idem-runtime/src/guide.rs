//! How to do what takes more than one item of this crate.

#[doc = include_str!("docs/operator.md")]
pub mod operator {}
