//! Engines: which one a call uses, and what it refuses by itself.

use idem_runtime::Classify;

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
        (operation().key(&("", None::<u8>)), "empty"),
        (operation().scope("").key(&1), "scope"),
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
    assert_eq!(fixture.events.count("refused InvalidKey"), 7);
    assert_eq!(fixture.count(StoreOperation::Claim), 0);
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused_and_nothing_runs() {
    let fixture = Fixture::memory();
    let call = fixture.pay().lease(Duration::from_millis(99));
    let error = refusal(answered(call).await);
    assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
    assert!(error.to_string().contains("`lease` is 99ms"), "{error}");
    let refused = |engine: idem_runtime::EngineBuilder| engine.build().unwrap_err().to_string();
    let builder = || Engine::builder(MemoryStore::new());
    assert!(refused(builder().ttl(Duration::ZERO)).contains("`ttl`"));
    assert!(refused(builder().prefix("")).contains("`prefix`"));
    assert!(refused(builder().prefix("a b")).contains("`prefix`"));
    assert!(refused(builder().prefix("{a}")).contains("`prefix`"));
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
async fn the_engine_ends_its_thread_when_it_is_dropped() {
    let fixture = Fixture::memory();
    let runs = Runs::default();
    let paid = fixture.engine.scope(pay(1, &runs)).await;
    assert_eq!(paid, receipt(1));
    let Fixture {
        engine, far, store, ..
    } = fixture;
    drop((engine, far));
    // The thread holds the last other handle of the store.
    while store.handles() > 1 {
        std::thread::yield_now();
    }
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

#[tokio::test]
async fn functions_of_one_name_do_not_share_their_answers() {
    struct Orders;
    struct Invoices;

    impl Orders {
        #[idempotent(key = number)]
        async fn create(number: u64) -> Result<String, PayError> {
            Ok(format!("order {number}"))
        }
    }

    impl Invoices {
        #[idempotent(key = number)]
        async fn create(number: u64) -> Result<String, PayError> {
            Ok(format!("invoice {number}"))
        }
    }

    #[idempotent(key = number)]
    async fn create(number: u64) -> Result<String, PayError> {
        let operation = idem_runtime::context().operation().to_string();
        Ok(format!("{number} by {operation}"))
    }

    let fixture = Fixture::memory();
    let all = async {
        assert_eq!(Orders::create(1).await, Ok("order 1".to_owned()));
        assert_eq!(Invoices::create(1).await, Ok("invoice 1".to_owned()));
        let function = create(1).await.unwrap();
        let path = "1 by semantics::engines::functions_of_one_name_do_not_share_their_answers";
        assert!(
            function.starts_with(path) && function.ends_with("::create"),
            "{function}"
        );
    };
    fixture.engine.scope(all).await;
}
