//! A run of all tests of a table.

use std::fmt;

use super::report::Report;
use super::result::RowResult;
use super::specification::Specification;
use super::target::Target;
use super::tester::Tester;

/// A first request not answered with 2xx: no row is conclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// Makes the requests of a table's tests, row by row.
///
/// # Errors
///
/// [`Unusable`], if a first request for the operation with a fresh key is not answered with 2xx.
///
/// # Cancel safety
///
/// A run that is dropped has made a part of its requests; an outage that it began (`Target::outage`) goes on.
pub async fn check(specification: Specification, target: &Target) -> Result<Report, Unusable> {
    let tester = Tester::new(target, specification.place());
    if let Err(result) = tester.succeeds(&tester.usual()).await {
        return Err(Unusable(match result {
            RowResult::Failed { expected, got } => {
                format!("no row can be tested: expected {expected}, got {got}")
            }
            result => format!("no row can be tested: {result}"),
        }));
    }
    let mut results = Vec::new();
    for row in specification.rows() {
        results.push(row.check.run(&tester).await);
    }
    Ok(Report::new(specification, results))
}
