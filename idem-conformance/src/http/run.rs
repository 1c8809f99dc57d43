//! A run of all tests of a table.

use std::fmt;

use super::finding::Finding;
use super::probe::Probe;
use super::report::Report;
use super::specification::Specification;
use super::target::Target;

/// A server that does not answer the first request of a run with 2xx, so that no row says anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// Makes the requests of all tests of a table, one row after the other.
///
/// # Errors
///
/// [`Unusable`], if a first request for the operation with a fresh key is not answered with 2xx.
///
/// # Cancel safety
///
/// A run that is dropped has made a part of its requests; an outage that it began (`Target::outage`) goes on.
pub async fn check(specification: Specification, target: &Target) -> Result<Report, Unusable> {
    let probe = Probe::new(target, specification.place());
    if let Err(finding) = probe.succeeds(&probe.usual()).await {
        return Err(Unusable(match finding {
            Finding::Failed { expected, got } => {
                format!("no row can be tested: expected {expected}, got {got}")
            }
            finding => format!("no row can be tested: {finding}"),
        }));
    }
    let mut findings = Vec::new();
    for row in specification.rows() {
        findings.push(row.check.run(&probe).await);
    }
    Ok(Report::new(specification, findings))
}
