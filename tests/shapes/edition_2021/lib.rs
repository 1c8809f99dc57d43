//! The tests of `tests/shapes`, built in edition 2021.
