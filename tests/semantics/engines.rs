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
    let kind = |call: CallBuilder<_>| async {
        let answer: Result<(), PayError> = call.run(|_| async { unreachable!("no key") }).await;
        let PayError::Idem(error) = answer.unwrap_err() else {
            unreachable!()
        };
        assert_eq!(error.kind(), &ErrorKind::InvalidKey);
        error.to_string()
    };
    let operation = || fixture.engine.operation("pay");
    assert!(kind(operation().key("")).await.contains("empty"));
    assert!(
        kind(operation().key(&("", None::<u8>)))
            .await
            .contains("empty")
    );
    assert!(kind(operation().scope("").key(&1)).await.contains("scope"));
    let long = "secret".repeat(1_000);
    let message = kind(operation().key(&long)).await;
    assert!(
        message.contains("1024") && !message.contains("secret"),
        "{message}"
    );
    assert!(kind(operation()).await.contains("give a key"));
    assert!(
        kind(operation().key(&1).scope("late"))
            .await
            .contains("before the key")
    );
    assert!(
        kind(operation().key(&1).key(&2)).await.contains("one key"),
        "neither of the two is silently dropped"
    );
    assert_eq!(fixture.events.count("refused InvalidKey"), 7);
    assert_eq!(fixture.count(StoreOperation::Claim), 0);
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused_and_nothing_runs() {
    let fixture = Fixture::memory();
    let call = fixture.pay().lease(Duration::from_millis(99));
    let answer: Result<(), PayError> = call.run(|_| async { unreachable!("too short") }).await;
    let PayError::Idem(error) = answer.unwrap_err() else {
        unreachable!()
    };
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
    let nested = fixture.engine.operation("inner").key(&1);
    let nested = nested.run(|_| async { Err::<Receipt, _>(PayError::TimedOut) });
    assert_eq!(nested.await, Err(PayError::TimedOut));
    let again = fixture.engine.operation("inner").key(&1);
    let again: Result<Receipt, PayError> = again.run(|_| async { unreachable!() }).await;
    assert_eq!(again.unwrap_err().class(), Class::Unknown);
    let empty = fixture.engine.operation("inner").key("");
    let empty: Result<Receipt, Error> = empty.run(|_| async { unreachable!() }).await;
    assert_eq!(empty.unwrap_err().class(), Class::System);
}

#[tokio::test]
async fn a_derived_key_is_the_same_for_every_attempt_and_no_other_call() {
    let fixture = Fixture::memory();
    let derived = |key: u32| {
        let call = fixture.engine.operation("pay").key(&key);
        call.run(|cx| async move {
            // A system error would hide it; a business error carries it out.
            Ok::<_, PayError>((cx.derive_key("charge"), cx.derive_key("mail")))
        })
    };
    let (charge, mail) = derived(1).await.unwrap();
    let (other, _) = derived(2).await.unwrap();
    assert!(charge != mail && charge != other);
    fixture.pass_in_store(Duration::from_hours(25));
    assert_eq!(derived(1).await.unwrap().0, charge, "and for a later run");
}

#[tokio::test]
async fn a_context_is_found_only_within_its_body() {
    let fixture = Fixture::memory();
    assert!(idem_runtime::try_context().is_none());
    let seen = fixture.pay().run(|_| async {
        let operation = idem_runtime::context().operation().to_string();
        Ok::<_, PayError>(operation)
    });
    assert_eq!(seen.await, Ok("pay".to_owned()));
    assert!(idem_runtime::try_context().is_none());
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
