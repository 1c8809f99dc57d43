//! The tables: one file for each specification.

/// The rows of a table: section, force, name, the sentence in other words, its test.
macro_rules! rows {
    ($($section:tt $level:ident $name:literal: $sentence:literal => $check:expr;)+) => {
        pub(in super::super) const ROWS: &[super::super::row::Row] = &[$(super::super::row::Row::new(
            $section,
            super::super::row::Level::$level,
            $name,
            $sentence,
            $check,
        )),+];
    };
}

pub(super) mod acp;
pub(super) mod draft;
pub(super) mod iceberg_rest;
pub(super) mod stripe_v1;
pub(super) mod stripe_v2;
pub(super) mod ucp;
pub(super) mod x402;
