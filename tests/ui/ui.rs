//! The message about a mistake: one error, on the wrong token, with its remedy.
//!
//! What must compile is in `tests/shapes`, where unsafe functions are forbidden.
//!
//! A file has the cases of one theme that rustc reports in one phase: errors of an earlier phase may hide those of a
//! later one.
//!
//! The texts of rustc drift, so `fail/*.stderr` hold for the compiler of `rust-version`. After
//! `TRYBUILD=overwrite`, read each changed file: it is a draft, not a verdict.

/// Its unsafety is the caller's, and so is that of its entry.
#[allow(dead_code)]
#[idem_runtime::idempotent(op = "not_safe", key = order, on_error = release, entry = not_safe_entry)]
async unsafe fn not_safe(order: u64) -> Result<u64, idem_runtime::Error> {
    Ok(order)
}

#[test]
fn every_mistake_is_reported_where_it_was_made() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}
