//! The tables of `idem_conformance::http` on servers with an `IdempotencyLayer`, and on servers with one setting changed,
//! which fail the rows that it concerns and no other.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod plants;
mod shop;

use std::collections::BTreeSet;

use idem_conformance::http::{Finding, Report, Specification};
use idem_runtime::http::Profile;
use idem_runtime::testing::Fault;

use self::plants::{PLANTS, Plant};
use self::shop::{HANG_LIMIT, Setup, WAIT};

/// The settings of a specification.
fn profile(specification: Specification) -> Profile {
    match specification {
        Specification::Draft => Profile::draft(),
        Specification::StripeV1 => Profile::stripe_v1(),
        Specification::StripeV2 => Profile::stripe_v2(),
        Specification::Acp => Profile::acp(),
        Specification::Ucp => Profile::ucp(),
        Specification::X402 => Profile::x402().required(),
        Specification::IcebergRest => Profile::iceberg_rest(),
        other => panic!("no profile of {other}"),
    }
}

fn setup(specification: Specification) -> Setup {
    let waits = matches!(
        specification,
        Specification::Ucp | Specification::X402 | Specification::IcebergRest
    );
    Setup {
        is_layered: true,
        is_scoped: true,
        set: |layer| layer,
        around: |router| router,
        inside: |router| router,
        waits: if waits { WAIT } else { HANG_LIMIT },
        // One that the engine reports at once.
        fault: Fault::Overloaded,
    }
}

async fn table(specification: Specification, setup: &Setup) -> Report {
    shop::table(specification, profile(specification), setup).await
}

/// Every row that has a test passes.
#[tokio::test]
async fn each_profile_meets_its_specification() {
    let mut wrong = Vec::new();
    for specification in Specification::ALL {
        let report = table(specification, &setup(specification)).await;
        println!("{report}");
        for (row, finding) in report.rows() {
            let has_test = row.test() != "–";
            if (*finding == Finding::Passed) != has_test {
                wrong.push(format!("{specification}: {}: {finding}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each plant fails its rows and no other, and each row that has a test is failed by a plant.
#[tokio::test]
async fn each_row_fails_on_a_server_that_differs_in_one_thing() {
    let mut wrong = Vec::new();
    for specification in Specification::ALL {
        let rows = specification.rows().iter().filter(|row| row.test() != "–");
        let mut unfailed: BTreeSet<_> = rows.map(|row| row.name).collect();
        for Plant { name, plant, fails } in PLANTS {
            let Some((_, rows)) = fails.iter().find(|(of, _)| *of == specification) else {
                continue;
            };
            let expected: Vec<_> = rows.split_whitespace().collect();
            let mut planted = setup(specification);
            plant(&mut planted);
            let report = table(specification, &planted).await;
            let failed = report.failed();
            if failed != expected {
                wrong.push(format!(
                    "{name}\n        {specification:?}: {:?}",
                    failed.join(" ")
                ));
            }
            unfailed.retain(|row| !failed.contains(row));
        }
        if !unfailed.is_empty() {
            wrong.push(format!("{specification}: no plant fails {unfailed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
