//! Lives that answers choose: how long a repeat gets one, and when it runs again.

use std::panic::panic_any;

use idem_runtime::claim::Completion;
use idem_runtime::life::{IntoLife, LifeOf};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    a_value_lives_as_long_as_it_chooses_within_the_bounds, a_repeat_runs_again_after_the_chosen_life,
    a_claim_is_completed_for_a_chosen_life, what_is_no_value_has_the_life_of_the_policy,
    a_panic_of_the_closure_keeps_the_answer_for_the_whole_ttl, a_cool_down_ends_with_the_chosen_life,
    a_finding_of_a_hook_chooses_its_life_too, an_answer_that_is_stored_late_has_the_life_that_it_chose,
}

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A closure that chooses this life.
fn chooses<R: IntoLife + Copy>(life: R) -> impl Fn(&Receipt) -> R {
    move |_| life
}

/// A call that is executed, and the remaining life of its record.
async fn left<L: LifeOf<Answer>>(fixture: &Fixture, call: CallBuilder<Classified, L>) -> Duration {
    assert_eq!(call.run(|_| async { receipt(1) }).await, receipt(1));
    remaining(fixture).await
}

/// How long the record lives, as an operator sees it.
async fn remaining(fixture: &Fixture) -> Duration {
    fixture.pay_far().entry().await.unwrap().unwrap().left()
}

/// Panics unless the record lives this long. The clock of a server goes on.
#[track_caller]
fn assert_life(left: Duration, life: Duration) {
    let least = life.saturating_sub(Duration::from_mins(1));
    assert!(left <= life && left >= least, "{left:?} of {life:?}");
}

async fn a_value_lives_as_long_as_it_chooses_within_the_bounds(fixture: Fixture) {
    let (second, hour, days) = (Duration::from_secs(1), Some(HOUR), Some(7 * DAY));
    for (name, ttl, chosen, life) in [
        ("a life", None, hour, HOUR),
        ("none", None, None, DAY),
        ("more than the engine's", None, days, DAY),
        ("up to its own maximum", Some(30 * DAY), days, 7 * DAY),
        ("more than its own", Some(2 * HOUR), days, 2 * HOUR),
        ("zero", None, Some(Duration::ZERO), second),
        ("for ever", None, Some(Duration::MAX), DAY),
    ] {
        let _row = Row::new(&fixture, name);
        let call = fixture.pay();
        let call = ttl.into_iter().fold(call, CallBuilder::ttl);
        assert_life(left(&fixture, call.ttl_of(chooses(chosen))).await, life);
    }
    let _row = Row::new(&fixture, "a duration");
    // In either order with the treatment of errors.
    let call = fixture.pay().ttl_of(chooses(HOUR));
    let call = call.on_error(idem_runtime::on_error::Keep);
    let answer: Answer = call.run(|_| async { receipt(1) }).await;
    assert_eq!(answer, receipt(1));
    assert_life(remaining(&fixture).await, HOUR);
}

async fn a_repeat_runs_again_after_the_chosen_life(fixture: Fixture) {
    let runs = Runs::default();
    let pay = async |engine: &Engine| {
        let call = engine.operation("pay").key(&7);
        // The third receipt has the whole `ttl`.
        let call = call.ttl_of(|receipt: &Receipt| (receipt.run < 3).then_some(HOUR));
        call.run(|_| async { receipt(runs.start()) }).await
    };
    for run in 1..=3 {
        assert_eq!(pay(&fixture.engine).await, receipt(run));
        fixture.pass_in_store(Duration::from_mins(59));
        assert_eq!(pay(&fixture.far).await, receipt(run));
        fixture.pass_in_store(Duration::from_mins(1));
    }
    assert_eq!(pay(&fixture.engine).await, receipt(3));
    fixture.pass_in_store(DAY);
    assert_eq!(pay(&fixture.engine).await, receipt(4));
}

async fn a_claim_is_completed_for_a_chosen_life(fixture: Fixture) {
    for (name, chosen, life) in [("less", HOUR, HOUR), ("more", 7 * DAY, DAY)] {
        let _row = Row::new(&fixture, name);
        let claim = claimed(fixture.pay()).await;
        let completed = claim
            .complete_for(Receipt { run: 1 }, chosen)
            .await
            .unwrap();
        assert!(matches!(completed, Completion::Own(Receipt { run: 1 })));
        assert_life(remaining(&fixture).await, life);
    }
}

async fn what_is_no_value_has_the_life_of_the_policy(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(1_024).error_ttl(2 * HOUR));
    let short = |_: &String| Duration::from_secs(1);
    for (name, answer, life) in [
        (
            "a business error",
            Err(PayError::Declined { run: 1 }),
            2 * HOUR,
        ),
        ("an unknown outcome", Err(PayError::TimedOut), DAY),
        ("a lost answer", Ok("x".repeat(2_000)), DAY),
    ] {
        let _row = Row::new(&fixture, name);
        let call = fixture.pay().ttl_of(short);
        assert_eq!(call.run(|_| async { answer.clone() }).await, answer);
        assert_life(remaining(&fixture).await, life);
    }
}

async fn a_panic_of_the_closure_keeps_the_answer_for_the_whole_ttl(fixture: Fixture) {
    let panics = |_: &Receipt| -> Duration { panic_any("no life") };
    assert_life(left(&fixture, fixture.pay().ttl_of(panics)).await, DAY);
    assert_eq!(answered(fixture.pay()).await, receipt(1));
    let warning = "warning: the closure that chooses the life of an answer panicked";
    assert_eq!(
        fixture.events.count(warning),
        1,
        "{:?}",
        fixture.events.all()
    );
}

async fn a_cool_down_ends_with_the_chosen_life(fixture: Fixture) {
    left(&fixture, fixture.pay().ttl_of(chooses(HOUR))).await;
    let call = fixture.pay_far().on_duplicate(OnDuplicate::Reject);
    let refused = refusal(answered(call).await);
    assert_life(assert_duplicate(&refused), HOUR);
}

async fn a_finding_of_a_hook_chooses_its_life_too(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let call = fixture.pay().ttl_of(chooses(HOUR));
    let hook = |_| async { Reconciled::Landed(Receipt { run: 1 }) };
    let answer: Answer = call.run_reconciled(hook, |_| async { never() }).await;
    assert_eq!(answer, receipt(1));
    assert_life(remaining(&fixture).await, HOUR);
}

async fn an_answer_that_is_stored_late_has_the_life_that_it_chose(fixture: Fixture) {
    // The life runs from the first send, and not from the end of an outage.
    let begun = fixture.clock.now();
    fixture.fail(StoreOperation::Complete, [Fault::Refused; 1_000]);
    let call = fixture.pay().ttl_of(chooses(HOUR));
    assert_eq!(call.run(|_| async { receipt(1) }).await, receipt(1));
    until(&fixture, fixture.events.wait_for("completed value", 1)).await;
    let away = fixture.clock.now().saturating_sub(begun);
    // The clock may have gone on since the answer was sent.
    let (left, minute) = (remaining(&fixture).await, Duration::from_mins(1));
    assert!(left < HOUR.saturating_sub(minute), "{left:?}");
    assert!(left + away > HOUR.saturating_sub(minute), "{left:?}");
    // And storing is given up when that is over.
    let begun = fixture.clock.now();
    fixture.fail(StoreOperation::Complete, [Fault::Refused; 10_000]);
    let other = fixture.engine.operation("pay").key(&8);
    let other = other.ttl_of(chooses(Duration::from_mins(3)));
    assert_eq!(other.run(|_| async { receipt(2) }).await, receipt(2));
    let given_up = "unsaved: an injected fault; storing is given up";
    until(&fixture, fixture.events.wait_for(given_up, 1)).await;
    let tried = fixture.clock.now().saturating_sub(begun);
    let expected = Duration::from_mins(3)..Duration::from_mins(30);
    assert!(expected.contains(&tried), "given up after {tried:?}");
}

/// To the millisecond, by a clock that stands.
#[tokio::test]
async fn the_shortest_life_is_a_second_and_a_life_is_cut_to_milliseconds() {
    let long = Duration::new(7, 1_999_999);
    for (chosen, life) in [
        (Duration::ZERO, Duration::from_secs(1)),
        (Duration::from_millis(999), Duration::from_secs(1)),
        (long, Duration::from_millis(7_001)),
    ] {
        let fixture = Fixture::memory();
        let left = left(&fixture, fixture.pay().ttl_of(chooses(chosen))).await;
        assert_eq!(left, life);
        let (runs, millisecond) = (Runs::default(), Duration::from_millis(1));
        fixture.pass_in_store(life.saturating_sub(millisecond));
        assert_eq!(answered(fixture.pay()).await, receipt(1));
        fixture.pass_in_store(millisecond);
        runs.start();
        assert_eq!(paid(fixture.pay(), &runs).await, receipt(2));
    }
}

/// With a SQL store, a choice is bounded by 10 years. The policy is not.
#[tokio::test]
async fn a_choice_below_for_ever_is_ten_years_at_most() {
    let dir = idem_harness::TestDir::new("chosen_lives").unwrap();
    let url = format!("sqlite:{}", dir.path().join("pay.db").display());
    let store = idem_runtime::store::sql::SqliteStore::connect(&url).await;
    let store = store.unwrap();
    store.migrate().await.unwrap();
    let engine = Engine::new(store);
    let years = |years: u64| Duration::from_hours(24 * 365 * years);
    for (key, chosen, life) in [
        (1, years(1), years(1)),
        (2, years(20), years(10)),
        (3, idem_runtime::FOREVER, idem_runtime::FOREVER),
    ] {
        let call = || engine.operation("pay").key(&key);
        let first = call().ttl(idem_runtime::FOREVER);
        let first: Answer = first
            .ttl_of(chooses(chosen))
            .run(|_| async { receipt(1) })
            .await;
        assert_eq!(first, receipt(1));
        assert_eq!(answered(call()).await, receipt(1));
        let left = call().entry().await.unwrap().unwrap().left();
        if life == idem_runtime::FOREVER {
            assert_eq!(left, life);
        } else {
            assert_life(left, life);
        }
    }
}
