//! A [`Browser`] for tests of pages.
//!
//! As in the harness, everything panics when something is wrong, with a message that says what to
//! do.

#![allow(
    clippy::missing_panics_doc,
    reason = "every function panics when the browser does not do as it is told"
)]

mod browser;

pub use browser::Browser;
pub use thirtyfour;
