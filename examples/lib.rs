//! Parts that the examples share.
