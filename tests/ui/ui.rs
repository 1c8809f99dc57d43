//! What a user is told about a mistake: one error, on the wrong token, that says what to do.
//!
//! What must compile is in `pass`, as tests of their own: to build these here as well would take
//! all that they depend on, built once more.
//!
//! The texts of rustc drift, so `fail/*.stderr` hold for the compiler of `rust-version`. After
//! `TRYBUILD=overwrite`, read each one that changed: it is a draft, not a verdict.

#[test]
fn every_mistake_is_reported_where_it_was_made() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}
