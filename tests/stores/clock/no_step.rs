//! Events that are no step of a clock, nor reported as one.

use std::sync::Arc;
use std::time::Duration;

use idem_harness::{FakeClock, SentinelSetup, TcpProxy};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_tests::sentinel_url;
use idem_tests::shop::{connect, patiently};

use super::fixture::{Fixture, LEASE, started};
use super::servers::{ClockedServer, on_each_server};

on_each_server! {
    slow_replies_are_no_step, a_restart_is_no_step, renewals_are_no_step,
}

fn assert_no_step(fixture: &Fixture) {
    let events = fixture.events.all();
    assert_eq!(fixture.events.count("clock stepped"), 0, "{events:?}");
}

/// Shows that a test without a reported step would have reported one.
async fn sees_steps(clock: &FakeClock, fixture: &Fixture) {
    assert_no_step(fixture);
    clock.set(7);
    fixture.pay_until("clock stepped forward", 1).await;
}

async fn slow_replies_are_no_step<P: ClockedServer>() {
    let clock = FakeClock::new();
    let server = P::start_by(&clock);
    let proxy = TcpProxy::start(server.server().addr());
    let fixture = Fixture::on(&P::store_at(proxy.addr()).await);
    for millis in [0, 800, 0, 1_500, 300] {
        proxy.delay(Duration::from_millis(millis));
        fixture.pay_anew().await;
    }
    proxy.delay(Duration::ZERO);
    sees_steps(&clock, &fixture).await;
}

async fn a_restart_is_no_step<P: ClockedServer>() {
    let clock = FakeClock::new();
    let server = P::start_by(&clock);
    let fixture = Fixture::going_on(&server.store().await);
    fixture.pay_anew().await;
    server.server().restart();
    fixture.pay_anew().await;
    assert_no_step(&fixture);
    // As after a failover behind one address.
    clock.set(3);
    server.server().restart();
    fixture.pay_until("clock stepped forward", 1).await;
}

async fn renewals_are_no_step<P: ClockedServer>() {
    let (clock, _server, fixture) = started::<P>().await;
    let running = fixture.begin("a").await;
    for renewal in 1..=5 {
        // By the engine's clock ten seconds pass; by the machine's, which decides, none.
        fixture.clock.sleeper_within(LEASE / 3).await;
        fixture.clock.advance(LEASE / 3);
        patiently("renewed", fixture.events.wait_for("renewed", renewal)).await;
    }
    running.end().await.unwrap();
    sees_steps(&clock, &fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_with_the_same_time_is_no_step() {
    let setup = SentinelSetup::start();
    let store = connect(sentinel_url(&setup)).await.unwrap();
    let fixture = Fixture::going_on(&(Arc::new(store) as _));
    fixture.pay_anew().await;
    setup.failover();
    for _ in 0..3 {
        fixture.pay_anew().await;
    }
    assert_no_step(&fixture);
}

/// The movement of an engine's or a test's clock is no step.
#[tokio::test]
async fn a_clock_that_a_test_moves_is_no_step() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let fixture = Fixture::on(&(Arc::new(store) as _));
    for _ in 0..3 {
        fixture.pay_anew().await;
        clock.advance(Duration::from_hours(1));
    }
    assert_no_step(&fixture);
}
