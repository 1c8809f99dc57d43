//! A package of its own, so that the cases are built without the stores and servers of the other
//! tests.
