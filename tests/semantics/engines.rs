//! Engines: the engine of a call, and its own refusals.

use std::num::NonZeroU16;

use idem_runtime::Classify;
use idem_tests::shop::assert_contains;

use crate::prelude::*;

#[idempotent(op = "engines.pay", key = number)]
async fn pay(number: u64, #[idem(skip)] runs: &Runs) -> Result<Receipt, PayError> {
    receipt(runs.start())
}

#[tokio::test]
async fn an_engine_is_named_scoped_or_installed_in_this_order() {
    #[idempotent(op = "engines.named", key = number, engine = engine)]
    async fn named(
        number: u64,
        #[idem(skip)] engine: &Engine,
        #[idem(skip)] runs: &Runs,
    ) -> Result<Receipt, PayError> {
        receipt(runs.start())
    }

    let engine = || Engine::new(MemoryStore::new());
    let (installed, scoped, named_engine) = (engine(), engine(), engine());
    let runs = Runs::default();
    let error = pay(1, &runs).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NoEngine);
    assert!(matches!(error, PayError::Idem(error) if error.operation() == "engines.pay"));
    assert_eq!(runs.count(), 0);

    installed.install().unwrap();
    assert!(scoped.install().is_err(), "one engine is installed, once");
    assert_eq!(pay(1, &runs).await, receipt(1));
    assert_eq!(scoped.scope(pay(1, &runs)).await, receipt(2));
    assert_eq!(scoped.scope(pay(1, &runs)).await, receipt(2));
    assert_eq!(pay(1, &runs).await, receipt(1));
    let both = scoped.scope(named(1, &named_engine, &runs)).await;
    assert_eq!(both, receipt(3));
}

#[tokio::test]
async fn a_useless_key_is_refused_and_nothing_runs() {
    let fixture = Fixture::memory();
    let operation = || fixture.engine.operation("pay");
    let long = "secret".repeat(1_000);
    for (call, words) in [
        (operation().key(""), "empty"),
        (operation().key(&long), "1024"),
        (operation(), "give a key"),
        (operation().key(&1).scope("late"), "before the key"),
        // Neither of the two is silently dropped.
        (operation().key(&1).key(&2), "one key"),
    ] {
        let error = refusal(answered(call).await);
        assert_eq!(error.kind(), &ErrorKind::InvalidKey, "{words}");
        let message = error.to_string();
        let names_it = message.contains(words) && !message.contains("secret");
        assert!(names_it, "{words}: {message}");
    }
    assert_eq!(fixture.events.count("refused InvalidKey"), 5);
    assert_eq!(fixture.count(StoreOperation::Claim), 0);
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused_and_nothing_runs() {
    let fixture = Fixture::memory();
    let call = fixture.pay().lease(Duration::from_millis(99));
    let error = refusal(answered(call).await);
    assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
    assert_contains(&error, "`lease` is 99ms; it must be 100ms to 86400s");
    let builder = || Engine::builder(MemoryStore::new());
    let once = builder().max_attempts(NonZeroU16::new(1));
    for (engine, named) in [
        (builder().ttl(Duration::ZERO), "`ttl`"),
        (builder().ttl(Duration::from_hours(20 * 365 * 24)), "`ttl`"),
        (builder().error_ttl(Duration::ZERO), "`error_ttl`"),
        (once.on_outage(OnOutage::Run), "`on_outage` of `Run`"),
        (builder().max_running(0), "max_running"),
        (builder().prefix(""), "prefix"),
        (builder().prefix("a b"), "prefix"),
        (builder().prefix("{a}"), "prefix"),
    ] {
        let error = engine.build().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidPolicy, "{error}");
        assert_contains(&error, named);
    }
}

#[tokio::test]
async fn a_nested_refusal_is_a_system_error_and_a_nested_unknown_stays_unknown() {
    let fixture = Fixture::memory();
    timed_out(fixture.pay()).await;
    let again = answered(fixture.pay()).await.unwrap_err();
    assert_eq!(again.class(), Class::Unknown);
    let empty = fixture.engine.operation("inner").key("");
    assert_eq!(refusal(answered(empty).await).class(), Class::System);
}

#[tokio::test]
async fn the_engine_ends_its_thread_when_its_last_claim_is_dropped() {
    // The thread may check before the claim's lease is gone, or after: both must end it.
    for _ in 0..200 {
        let fixture = Fixture::memory();
        let claim = fixture.pay().begin().await.unwrap();
        fixture.clock.sleeper_within(Duration::from_secs(10)).await;
        let Fixture {
            engine, far, store, ..
        } = fixture;
        drop((engine, far));
        drop(claim);
        while store.handles() > 1 {
            std::thread::yield_now();
        }
    }
}
