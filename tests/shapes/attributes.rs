//! Every argument of the attribute, its neighbours, and the engine's sources.

use super::{Answer, Failure, Runs, engine, once, twice};
use idem_runtime::{Class, Engine, idempotent};
use std::time::Duration;

const WEEK: Duration = Duration::from_hours(168);

#[idempotent(
    op = "shapes.all",
    scope = "tenant-{tenant}",
    key = (order, "eu"),
    fingerprint(order, lines.0, lines.1),
    ttl = WEEK + Duration::from_secs(1),
    error_ttl = "1h30m",
    lease = "10s",
    on_error = judge,
    on_duplicate = replay,
    on_running = wait(Duration::from_secs(2)),
    engine = engine,
    crate = ::idem_runtime,
)]
async fn all(
    order: u64,
    tenant: &str,
    lines: (u8, u8),
    #[idem(skip)] engine: &Engine,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    runs.hit();
    Err(Failure::Declined)
}

const fn judge(failure: &Failure) -> Class {
    match failure {
        Failure::Declined => Class::Business,
        Failure::Refused(_) => Class::System,
    }
}

#[tokio::test]
async fn every_argument_at_once() {
    let engine = engine();
    let declined = twice(async |runs| all(1, "t", (1, 2), &engine, runs).await).await;
    assert_eq!(declined, Err(Failure::Declined));
}

#[idempotent(key = order, fingerprint = none, on_error = keep, on_running = reject, ttl = "1s")]
async fn kept(order: u64, amount: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = amount;
    runs.hit();
    Err(Failure::Declined)
}

#[idempotent(key = order, on_error = release)]
async fn released(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (order, runs.hit());
    Err(Failure::Declined)
}

#[idempotent(key = order, on_error = unknown)]
async fn unknown(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (order, runs.hit());
    Err(Failure::Declined)
}

#[idempotent(key = order, on_duplicate = reject, on_running = wait("1s"))]
async fn cool_down(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn words_are_those_of_their_argument() {
    let (engine, runs) = (engine(), Runs::default());
    let declined = || Err(Failure::Declined);
    let calls = async {
        // The amount is not compared.
        assert_eq!(kept(1, 5, &runs).await, declined());
        assert_eq!(kept(1, 6, &runs).await, declined());
        assert_eq!(runs.count(), 1);
        assert_eq!(released(1, &runs).await, declined());
        assert_eq!(released(1, &runs).await, declined());
        assert_eq!(runs.count(), 3);
        assert_eq!(unknown(1, &runs).await, declined());
        let refused = unknown(1, &runs).await;
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        assert_eq!(cool_down(1, &runs).await, Ok(5));
        let refused = cool_down(1, &runs).await;
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
    };
    engine.scope(calls).await;
    assert_eq!(runs.count(), 5);
}

fn digits(text: &str) -> Answer<u64> {
    text.parse().map_err(|_| Failure::Declined)
}

#[idempotent(key = digits(text)?)]
async fn fallible_key(text: &str, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn a_key_may_fail() {
    once("fallible_key", async |runs| fallible_key("17", runs).await).await;
    let runs = Runs::default();
    let failed = engine().scope(fallible_key("x", &runs)).await;
    assert_eq!((failed, runs.count()), (Err(Failure::Declined), 0));
}

#[tracing::instrument(skip(runs))]
#[idempotent(key = order)]
async fn traced_outside(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[idempotent(key = order)]
#[tracing::instrument(skip(runs))]
async fn traced_inside(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

fn token(order: u64) -> String {
    format!("order {order}")
}

// Of the same name as the one-time token, which would take no scope.
#[idempotent(scope = tenant, key = token(order))]
async fn own_token(order: u64, tenant: &str, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn arguments_and_attributes_beside_them() {
    once("traced_outside", async |runs| traced_outside(1, runs).await).await;
    once("traced_inside", async |runs| traced_inside(1, runs).await).await;
    once("own_token", async |runs| own_token(1, "eu", runs).await).await;
}
