//! The tables: one file for each specification.

/// A specification: name, title, pages, place of keys, rows.
///
/// A row is a section, the force of
/// the sentence, a name, the sentence in other words, and its test: a `Check` of an `AnswerKind` or a `Change`.
macro_rules! table {
    (
        $name:literal: $title:literal, $($source:literal,)+ KeyPlace::$place:ident;
        $($section:tt $level:ident $row:literal: $sentence:literal => $check:expr;)+
    ) => {
        pub(in super::super) const TABLE: super::super::row::Table = {
            #[allow(clippy::enum_glob_use, reason = "a row names its test and no path")]
            use super::super::{
                change::Change::*, check::AnswerKind::*, check::Check::*, key::KeyPlace, row::Level, row::Row, row::Table,
            };
            Table {
                name: $name,
                title: $title,
                sources: &[$($source),+],
                place: KeyPlace::$place,
                rows: &[$(Row {
                    section: $section,
                    level: Level::$level,
                    name: $row,
                    sentence: $sentence,
                    check: $check,
                }),+],
            }
        };
    };
}

pub(super) mod acp;
pub(super) mod draft;
pub(super) mod iceberg_rest;
pub(super) mod stripe_v1;
pub(super) mod stripe_v2;
pub(super) mod ucp;
pub(super) mod x402;
