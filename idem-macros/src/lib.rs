//! The macros of `idem-runtime`.
