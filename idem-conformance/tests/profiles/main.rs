//! The tables of `idem_conformance::http` on servers with an `IdempotencyLayer`. Servers that differ in one thing fail
//! the rows that it concerns and no other.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[cfg(feature = "command")]
mod command;
mod plants;
mod shop;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use idem_conformance::http::{Report, RowResult, Specification, Target, check};
use idem_runtime::http::Profile;
use idem_runtime::testing::Fault;

use self::plants::{PLANTS, PlantedServer};
use self::shop::{Served, ShopSetup, WAIT};

/// The profile of a specification.
fn preset(specification: Specification) -> Profile {
    match specification {
        Specification::Draft => Profile::draft(),
        Specification::StripeV1 => Profile::stripe_v1(),
        Specification::StripeV2 => Profile::stripe_v2(),
        Specification::Acp => Profile::acp(),
        Specification::Ucp => Profile::ucp(),
        Specification::X402 => Profile::x402(),
        Specification::IcebergRest => Profile::iceberg_rest(),
        other => panic!("no profile of {other}"),
    }
}

/// The settings of the servers: the terms of payment of a shop require an identifier.
fn profile(specification: Specification) -> Profile {
    match specification {
        Specification::X402 => preset(specification).required(),
        _ => preset(specification),
    }
}

fn setup(specification: Specification) -> ShopSetup {
    let waits = matches!(
        specification,
        Specification::Ucp | Specification::X402 | Specification::IcebergRest
    );
    ShopSetup {
        is_layered: true,
        is_scoped: true,
        set: |layer| layer,
        around: |router| router,
        inside: |router| router,
        waits: waits.then_some(WAIT),
        // The engine reports this fault at once.
        fault: Fault::Overloaded,
    }
}

async fn table(specification: Specification, setup: &ShopSetup) -> Report {
    let shop = Served::start(specification, profile(specification), setup).await;
    check(specification, &shop.target).await.unwrap()
}

/// The settings and the tables of all profiles. Every row that has a test passes, and the page in the documentation has
/// both: `IDEM_GOLDEN=overwrite` renews it.
#[tokio::test]
async fn each_profile_meets_its_specification() {
    let mut page = INTRODUCTION.to_owned();
    let mut wrong = Vec::new();
    for &specification in Specification::ALL {
        let report = table(specification, &setup(specification)).await;
        for (row, result) in report.rows() {
            let has_test = row.test() != "–";
            if (*result == RowResult::Passed) != has_test {
                wrong.push(format!("{specification}: {}: {result}", row.name));
            }
        }
        let sources = specification.sources().iter().map(|it| format!("<{it}>"));
        let sources: Vec<_> = sources.collect();
        let settings = preset(specification).to_string();
        let plain = Profile::default().to_string();
        let settings = settings.lines().filter(|line| {
            let is_default = plain.lines().any(|it| it == *line);
            // The members of a template have the order that a feature of `serde_json` sets; unit tests have the words.
            !is_default && !line.starts_with("refusals: ")
        });
        let settings: Vec<_> = settings.collect();
        write!(
            page,
            "\n## `{specification}`: {}\n\n{}\n\n```text\n{}\n```\n\n{}",
            specification.title(),
            sources.join(", "),
            settings.join("\n"),
            report.to_markdown()
        )
        .unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/profiles.md");
    if std::env::var_os("IDEM_GOLDEN").is_some_and(|value| value == "overwrite") {
        fs::write(path, &page).unwrap();
    }
    let golden = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        page, golden,
        "if this is intended, set IDEM_GOLDEN=overwrite"
    );
}

const INTRODUCTION: &str = "# Profiles, sentence by sentence

Each sentence of a specification that concerns idempotency, in other words, and the result of its test on a server with
`IdempotencyLayer::profile`. Above each table are the settings of its profile, without the words of refusals. The tables are
those of `idem_conformance::http`, which has the same tests for a server of yours; `idem-conformance/tests/profiles` writes
this page, and has for each row that passes a server that fails it.

\"not checked\": no client of a server can see it. \"cannot be met\": the layer does not do it, for the reason given.
";

/// A target of one operation: no row fails, and each unchecked row names the missing ability.
#[tokio::test]
async fn a_row_that_lacks_an_ability_of_the_target_names_it() {
    let draft = Specification::Draft;
    let shop = Served::start(draft, profile(draft), &setup(draft)).await;
    let (base, operation) = (shop.base.clone(), shop.operation.clone());
    let caller = shop.caller.clone();
    let report = check(draft, &Target::new(base, operation).caller(caller))
        .await
        .unwrap();
    assert_eq!(report.failed(), [""; 0]);
    let lacking = report.rows().filter_map(|(row, result)| match result {
        RowResult::NotChecked(why) if row.test() != "–" => {
            let (_, ability) = why.rsplit_once("(`")?;
            Some((row.name, ability.trim_end_matches("`)")))
        }
        _ => None,
    });
    let lacking: Vec<_> = lacking.collect();
    let expected = [
        ("patch", "also"),
        ("expiry", "clock"),
        ("retry_of_4xx", "rejected"),
        ("retry_of_5xx", "failing"),
        ("one_effect", "effects"),
        ("concurrent", "slow"),
        ("streaming", "streamed"),
        ("running", "slow"),
        ("conflict_needs_no_correction", "slow"),
        ("composite", "other_caller"),
        ("suite_retries", "effects"),
        ("suite_running", "slow"),
        ("suite_store", "outage"),
        ("suite_get", "effects"),
        ("suite_put", "also"),
        ("suite_delete", "also"),
    ];
    assert_eq!(lacking, expected);
}

/// Each plant fails exactly its rows; each testable row has a plant.
async fn plants_fail_their_rows(specification: Specification) {
    let mut wrong = Vec::new();
    let rows = specification.rows().iter().filter(|row| row.test() != "–");
    let mut unfailed: BTreeSet<_> = rows.map(|row| row.name).collect();
    for PlantedServer {
        name,
        change,
        fails,
    } in PLANTS
    {
        let Some((_, rows)) = fails.iter().find(|(of, _)| *of == specification) else {
            continue;
        };
        let expected: Vec<_> = rows.split_whitespace().collect();
        let mut planted = setup(specification);
        change(&mut planted);
        let failed = table(specification, &planted).await.failed();
        if failed != expected {
            wrong.push(format!(
                "{name}\n        {specification:?}: {:?}",
                failed.join(" ")
            ));
        }
        unfailed.retain(|row| !failed.contains(row));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(unfailed, BTreeSet::new(), "no plant fails these rows");
}

macro_rules! plants_fail_their_rows {
    ($($name:ident $specification:ident)+) => {
        $(#[tokio::test]
        async fn $name() {
            plants_fail_their_rows(Specification::$specification).await;
        })+
    };
}

plants_fail_their_rows! {
    rows_of_the_draft_fail_on_a_server_that_differs_in_one_thing Draft
    rows_of_stripe_v1_fail_on_a_server_that_differs_in_one_thing StripeV1
    rows_of_stripe_v2_fail_on_a_server_that_differs_in_one_thing StripeV2
    rows_of_acp_fail_on_a_server_that_differs_in_one_thing Acp
    rows_of_ucp_fail_on_a_server_that_differs_in_one_thing Ucp
    rows_of_x402_fail_on_a_server_that_differs_in_one_thing X402
    rows_of_iceberg_rest_fail_on_a_server_that_differs_in_one_thing IcebergRest
}
