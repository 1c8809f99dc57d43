//! Nothing of its own: the tests of `tests/shapes.rs`, built in edition 2021.
