//! The clock of a server steps.

use idem_runtime::ErrorKind;
use idem_tests::shop::{happened, until};

use super::fixture::{Fixture, LEASE, started};
use super::servers::{ClockedServer, on_each_server};

const HOUR: i64 = 60 * 60;

on_each_server! {
    a_step_is_reported, a_renewal_sees_a_step, a_step_within_a_lease_renews_it_at_once,
    a_lease_that_a_step_has_ended_is_renewed_unless_taken_over,
    an_hour_back_and_forth_starts_no_second_body,
    limit_a_step_of_more_than_the_lease_starts_a_second_body,
}

async fn a_step_is_reported<P: ClockedServer>() {
    let (clock, _server, fixture) = started::<P>().await;
    fixture.pay_anew().await;
    clock.set(31);
    fixture.pay_until("clock stepped", 1).await;
    clock.set(0);
    fixture.pay_until("clock stepped", 2).await;
    for _ in 0..10 {
        fixture.pay_anew().await;
    }
    let steps = fixture.events.all();
    let steps: Vec<_> = (steps.iter().filter(|event| event.starts_with("clock"))).collect();
    assert_eq!(steps, ["clock stepped forward", "clock stepped back"]);
}

async fn a_renewal_sees_a_step<P: ClockedServer>() {
    let (clock, _server, fixture) = started::<P>().await;
    let running = fixture.begin("a").await;
    clock.set(-40);
    fixture.clock.sleeper_within(LEASE / 3).await;
    fixture.clock.advance(LEASE / 3);
    happened(&fixture.events, "renewed", 1).await;
    happened(&fixture.events, "clock stepped back", 1).await;
    running.end().await.unwrap();
}

async fn a_step_within_a_lease_renews_it_at_once<P: ClockedServer>() {
    let (clock, server, fixture) = started::<P>().await;
    let other = Fixture::of(&server).await;
    let running = fixture.begin("a").await;
    clock.set(20);
    fixture.pay_until("clock stepped forward", 1).await;
    // The engine's clock stands still, so no renewal is due by it.
    happened(&fixture.events, "renewed", 1).await;
    fixture.until_renewed("a").await;
    let left = other.finds_running("a").await;
    assert!(left > LEASE / 3, "it was not renewed: {left:?} left");
    running.end().await.unwrap();
}

async fn a_lease_that_a_step_has_ended_is_renewed_unless_taken_over<P: ClockedServer>() {
    let (clock, server, fixture) = started::<P>().await;
    let other = Fixture::of(&server).await;
    let running = fixture.begin("a").await;
    clock.set(31);
    fixture.pay_until("clock stepped forward", 1).await;
    fixture.until_renewed("a").await;
    other.finds_running("a").await;
    running.end().await.unwrap();
    assert_eq!(fixture.events.count("lease lost"), 0);
}

/// Claims and answers last an hour longer, and then an hour less.
async fn an_hour_back_and_forth_starts_no_second_body<P: ClockedServer>() {
    let (clock, server, fixture) = started::<P>().await;
    let other = Fixture::of(&server).await;
    fixture.pay("before").await.unwrap();
    let running = fixture.begin("running").await;
    clock.set(-HOUR);
    other.finds_running("running").await;
    other.pay("between").await.unwrap();
    let later = other.begin("later").await;
    running.end().await.unwrap();
    later.end().await.unwrap();
    for seconds in [-HOUR, 0] {
        clock.set(seconds);
        for key in ["before", "running", "between", "later"] {
            for process in [&fixture, &other] {
                let refused = process.pay(key).await.unwrap_err();
                let is_duplicate = matches!(refused.kind(), ErrorKind::Duplicate { .. });
                assert!(is_duplicate, "{key} at {seconds}: {refused}");
            }
        }
    }
}

/// Documented as a limit of leases: no store of this kind works without a clock.
async fn limit_a_step_of_more_than_the_lease_starts_a_second_body<P: ClockedServer>() {
    let (clock, server, fixture) = started::<P>().await;
    let other = Fixture::of(&server).await;
    let running = fixture.begin("a").await;
    clock.set(31);
    let second = other.begin("a").await;
    assert_eq!(other.events.count("claimed 2"), 1);
    // The first owner detects both the step and the lost lease with its next reply.
    fixture.pay_until("clock stepped forward", 1).await;
    until("it is told", || fixture.events.count("lease lost") == 1).await;
    second.end().await.unwrap();
    running.end().await.unwrap();
}
