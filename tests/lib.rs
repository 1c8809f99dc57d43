//! Parts that the tests share.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test has nothing better to do with an error than to panic"
)]

mod events;
mod shop;

pub use events::Events;
pub use shop::{
    Failure, MARKERS, PASSWORD, Receipt, Shop, assert_discreet, assert_unavailable, patiently, refused,
};
