//! What a user is told about a mistake: one error, on the wrong token, that says what to do.
//!
//! The texts of rustc drift, so `ui/fail/*.stderr` hold for the compiler of `rust-version`. After
//! `TRYBUILD=overwrite`, read each one that changed: it is a draft, not a verdict.

#[test]
fn every_mistake_is_reported_where_it_was_made() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
    cases.compile_fail("ui/fail/*.rs");
}
