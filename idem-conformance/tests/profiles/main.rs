//! The tables of `idem_conformance::http` on servers with an `IdempotencyLayer`, and on servers with one setting changed,
//! which fail the rows that it concerns and no other.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod plants;
mod shop;

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, Response};
use idem_conformance::http::{Finding, Report, Specification};
use idem_runtime::OnRunning;
use idem_runtime::http::{IdempotencyLayer, KeyRules, Problem, StatusPolicy};
use idem_runtime::testing::Fault;
use serde_json::json;

use self::plants::{PLANTS, Plant};
use self::shop::{HANG_LIMIT, Setup};

/// The specifications whose tables are run.
const SPECIFICATIONS: [Specification; 2] = [Specification::Draft, Specification::StripeV1];

fn stripe_error(problem: Problem) -> Response<String> {
    let (status, r#type, code) = match problem.code() {
        "key-reused" => (400, "idempotency_error", "idempotency_key_reused"),
        "request-running" => (409, "idempotency_error", "idempotency_key_in_use"),
        code => (problem.status().as_u16(), "invalid_request_error", code),
    };
    let error = json!({ "error": { "type": r#type, "code": code, "message": problem.detail() } });
    let mut response = problem.into_response().map(|_| error.to_string());
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// The settings of a specification.
fn profile(specification: Specification) -> fn(IdempotencyLayer) -> IdempotencyLayer {
    match specification {
        Specification::Draft => |layer| {
            layer
                .status_policy(StatusPolicy::draft())
                .keys(KeyRules::default().bare(false))
                .on_running(OnRunning::Reject)
        },
        Specification::StripeV1 => |layer| {
            layer
                .status_policy(StatusPolicy::stripe())
                .methods([Method::POST])
                .optional()
                .on_running(OnRunning::Reject)
                .on_problem(stripe_error)
        },
        other => panic!("no profile of {other}"),
    }
}

fn setup() -> Setup {
    Setup {
        is_layered: true,
        is_scoped: true,
        set: |layer| layer,
        around: |router| router,
        inside: |router| router,
        lifetime: Duration::from_hours(24),
        waits: HANG_LIMIT,
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
    for specification in SPECIFICATIONS {
        let report = table(specification, &setup()).await;
        for (row, finding) in report.rows() {
            let has_test = row.test() != "–";
            assert_eq!(
                *finding == Finding::Passed,
                has_test,
                "{}\n{report}",
                row.name
            );
        }
    }
}

/// Each plant fails its rows and no other, and each row that has a test is failed by a plant.
#[tokio::test]
async fn each_row_fails_on_a_server_that_differs_in_one_thing() {
    let mut wrong = Vec::new();
    for specification in SPECIFICATIONS {
        let rows = specification.rows().iter().filter(|row| row.test() != "–");
        let mut unfailed: BTreeSet<_> = rows.map(|row| row.name).collect();
        for Plant { name, plant, fails } in PLANTS {
            let Some((_, rows)) = fails.iter().find(|(of, _)| *of == specification) else {
                continue;
            };
            let expected: Vec<_> = rows.split_whitespace().collect();
            let mut planted = setup();
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
