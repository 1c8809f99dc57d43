//! Steps that are interrupted, refused or not polled, at the moments at which that is easy to get wrong.

use std::future::{pending, ready};

use idem_runtime::step;
use idem_runtime::store::RecordKey;
use idem_runtime::testing::Forward;

use crate::prelude::*;
use crate::steps::{appends, counted, without_reply};

on_every_store![
    a_step_whose_beginning_was_not_confirmed_did_not_begin,
    a_step_that_is_dropped_while_it_begins_did_not_begin,
    a_step_that_is_not_polled_holds_no_other_back,
    a_hook_that_finds_nothing_is_believed_only_while_the_lease_is_held,
    a_hook_that_cannot_say_is_asked_again_by_the_next_attempt,
    a_task_that_outlives_its_body_has_no_steps,
    a_claim_that_is_held_by_hand_gets_an_error_at_an_unknown_step,
    a_task_that_hears_of_an_unknown_step_ends_its_body,
    a_panic_beside_an_unknown_step_is_a_panic,
    a_step_without_an_effect_is_told_apart_in_a_full_journal,
    the_steps_of_a_cancelled_call_are_sent_until_the_store_has_them,
];

/// A call whose step begins and has no end; its process then dies.
async fn begun(fixture: &Fixture, name: &'static str) {
    let begun = Semaphore::new(0);
    let mut call = Box::pin(fixture.pay().run(|_| {
        step(name, async |_| {
            begun.add_permits(1);
            pending::<Answer>().await
        })
        .once()
    }));
    while begun.available_permits() == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
}

async fn a_step_whose_beginning_was_not_confirmed_did_not_begin(fixture: Fixture) {
    let mail = Runs::default();
    // It arrives, and its reply does not.
    fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
    let answer = fixture.pay().run(|_| async {
        let refused = refusal(counted("mail", &mail).once().await);
        assert_eq!(*refused.kind(), ErrorKind::StoreUnavailable, "{refused}");
        Err(PayError::Down) as Answer
    });
    assert_eq!(without_reply(&fixture, answer).await, Err(PayError::Down));
    assert_eq!(mail.count(), 0);
    let answer = fixture.pay_far().run(|_| counted("mail", &mail).once());
    assert_eq!(answer.await, receipt(1));
}

async fn a_step_that_is_dropped_while_it_begins_did_not_begin(fixture: Fixture) {
    let mail = Runs::default();
    fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
    let answer = fixture.pay().run(|_| async {
        let mut begins = Box::pin(counted("mail", &mail).once());
        while appends(&fixture) == 0 {
            assert!(poll_once(begins.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(begins);
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture.pay_far().run(|_| counted("mail", &mail).once());
    assert_eq!(answer.await, receipt(1));
}

async fn a_step_that_is_not_polled_holds_no_other_back(fixture: Fixture) {
    let [charge, label] = &[Runs::default(), Runs::default()];
    fixture.fail(StoreOperation::Append, [Fault::Hangs]);
    let start = fixture.clock.now();
    let answer = fixture.pay().run(|_| async {
        let mut first = Box::pin(counted("charge", charge));
        while appends(&fixture) == 0 {
            assert!(poll_once(first.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        // As in a `select!` whose other branch has steps of its own.
        assert_eq!(counted("label", label).await, receipt(1));
        drop(first);
        Err(PayError::Down) as Answer
    });
    assert_eq!(until(&fixture, answer).await, Err(PayError::Down));
    assert!(fixture.clock.now() < start + Duration::from_secs(1));
    let answer = fixture.pay_far().run(|_| async {
        counted("charge", charge).await?;
        counted("label", label).await
    });
    assert_eq!(answer.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_hook_that_finds_nothing_is_believed_only_while_the_lease_is_held(fixture: Fixture) {
    begun(&fixture, "label").await;
    let label = Runs::default();
    let zombie = fixture.pay_far().on_lease_lost(OnLeaseLost::Continue);
    let answer = zombie.run(|_| async {
        let hook = async |_| {
            // It takes long, and the next attempt does the work meanwhile.
            fixture.pass_in_store(LEASE_OVER);
            let next = fixture
                .pay()
                .run(|_| counted("label", &label).reconcile(async |_| Reconciled::NotLanded));
            assert_eq!(next.await, receipt(1));
            Reconciled::NotLanded
        };
        let late = refusal(counted("label", &label).reconcile(hook).await);
        assert!(matches!(late.kind(), ErrorKind::Running { .. }), "{late}");
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    assert_eq!(label.count(), 1);
}

async fn a_hook_that_cannot_say_is_asked_again_by_the_next_attempt(fixture: Fixture) {
    begun(&fixture, "label").await;
    let asked = Runs::default();
    for last in [false, false, true] {
        let answer = fixture.pay_far().run(|_| {
            step("label", async |_| never()).reconcile(async |_| match asked.start() {
                run if last => Reconciled::Landed(Receipt { run }),
                _ => Reconciled::Unknown,
            })
        });
        match answer.await {
            Ok(found) => assert_eq!((found, last), (Receipt { run: 3 }, true)),
            refused => assert_unknown(&refusal(refused)),
        }
    }
    assert_eq!(answered(fixture.pay_far()).await, receipt(3));
}

async fn a_task_that_outlives_its_body_has_no_steps(fixture: Fixture) {
    let gate = Arc::new(Semaphore::new(0));
    let mut left_over = None;
    let answer = fixture.pay().run(|cx| {
        let gate = Arc::clone(&gate);
        left_over = Some(tokio::spawn(async move {
            gate.acquire().await.unwrap().forget();
            cx.step("mail", async |_| never()).await
        }));
        ready(receipt(1))
    });
    assert_eq!(answer.await, receipt(1));
    gate.add_permits(1);
    let error = refusal(left_over.unwrap().await.unwrap());
    assert_eq!(*error.kind(), ErrorKind::InvalidStep);
    assert!(error.to_string().contains("the body has ended"), "{error}");
}

async fn a_claim_that_is_held_by_hand_gets_an_error_at_an_unknown_step(fixture: Fixture) {
    begun(&fixture, "mail").await;
    let Acquired::Run(claim) = fixture.pay_far().begin().await.unwrap() else {
        panic!("nothing is stored");
    };
    let mail = claim.context().step("mail", async |_| never()).once();
    let error = refusal(mail.await);
    assert_unknown(&error);
    assert!(error.to_string().contains("step `mail`"), "{error}");
    claim.release().await;
}

async fn a_task_that_hears_of_an_unknown_step_ends_its_body(fixture: Fixture) {
    begun(&fixture, "mail").await;
    // The body waits for another thing, and has had no step when it began to.
    let answer = fixture.pay_far().run(|cx| async move {
        let task = tokio::spawn(async move { cx.step("mail", async |_| never()).once().await });
        let told = task.await.unwrap();
        assert_unknown(&refusal(told));
        receipt(1)
    });
    assert_unknown(&refusal(answer.await));
    assert_eq!(stands(&fixture).await.0, EntryState::Unknown);
}

async fn a_panic_beside_an_unknown_step_is_a_panic(fixture: Fixture) {
    begun(&fixture, "mail").await;
    let engine = fixture.engine.clone();
    let call = tokio::spawn(engine.operation("pay").key(&7).run(|cx| async move {
        let mut mail = Box::pin(cx.step("mail", async |_| never()).once());
        assert!(poll_once(mail.as_mut()).await.is_none());
        panic!("beside it");
        #[allow(unreachable_code, reason = "the type of the answer")]
        receipt(1)
    }));
    assert!(call.await.unwrap_err().is_panic());
    let answer = fixture
        .pay_far()
        .run(|_| step("mail", async |_| never()).once());
    assert_unknown(&refusal(answer.await));
}

async fn a_step_without_an_effect_is_told_apart_in_a_full_journal(fixture: Fixture) {
    let (begun, filled) = (Semaphore::new(0), Semaphore::new(0));
    let answer = fixture.pay().run(|_| async {
        let mail = step("mail", async |_| {
            begun.add_permits(1);
            filled.acquire().await.unwrap().forget();
            Err(PayError::Down) as Answer
        });
        let fill = async {
            begun.acquire().await.unwrap().forget();
            // No other entry fits behind it.
            let label = step("label", async |_| {
                Ok::<_, PayError>("x".repeat((256 << 10) - 120))
            });
            label.await.unwrap();
            filled.add_permits(1);
        };
        tokio::join!(mail.once(), fill).0
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture
        .pay_far()
        .run(|_| step("mail", async |_| never()).once());
    // Not that its outcome is unknown.
    let error = refusal(answer.await);
    assert_eq!(*error.kind(), ErrorKind::InvalidStep, "{error}");
    assert!(
        error.to_string().contains("at most 262144 bytes"),
        "{error}"
    );
}

async fn the_steps_of_a_cancelled_call_are_sent_until_the_store_has_them(fixture: Fixture) {
    let charge = Runs::default();
    fixture.fail(
        StoreOperation::Append,
        [Fault::Hangs, Fault::Lost, Fault::Lost],
    );
    let mut call = Box::pin(fixture.pay().run(|_| async {
        counted("charge", &charge).await?;
        pending::<Answer>().await
    }));
    while appends(&fixture) == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    until(&fixture, sent(&fixture, StoreOperation::Append, 4)).await;
    let idle = until(&fixture, fixture.engine.shutdown(Duration::from_secs(20)));
    idle.await.unwrap();
    fixture.pass_in_store(LEASE_OVER);
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(charge.count(), 1);
}

/// A store of a kind that keeps no steps, or few.
#[derive(Debug)]
struct Limited {
    store: MemoryStore,
    keeps: bool,
    most: Option<usize>,
}

impl Forward for Limited {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn keeps_journals(&self) -> bool {
        self.keeps
    }

    fn max_record_bytes(&self) -> Option<usize> {
        self.most
    }
}

fn limited(keeps: bool, most: Option<usize>) -> Engine {
    let store = MemoryStore::new();
    Engine::new(Limited { store, keeps, most })
}

#[tokio::test]
async fn a_store_that_keeps_no_steps_refuses_them_before_their_effect() {
    let (engine, charge) = (limited(false, None), Runs::default());
    let call = engine.operation("pay").key(&7);
    let error = refusal(call.run(|_| counted("charge", &charge)).await);
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("this store keeps no steps"),
        "{error}"
    );
    assert_eq!(charge.count(), 0);
}

#[tokio::test]
async fn the_steps_of_a_call_take_no_more_than_a_record_of_the_store() {
    let engine = limited(true, Some(1_000));
    let printed = Runs::default();
    let call = |ends: Answer| {
        let printed = &printed;
        let call = engine.operation("print").key(&7);
        call.run(move |_| async move {
            let label = step("label", async |_| {
                let _ = printed.start();
                Ok::<_, PayError>("x".repeat(950))
            });
            assert_eq!(label.await?.len(), 950);
            ends
        })
    };
    assert_eq!(call(Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(
        *refusal(call(receipt(1)).await).kind(),
        ErrorKind::NotStored
    );
    assert_eq!(printed.count(), 1);
}

#[tokio::test]
async fn steps_continue_under_the_digest_key_of_their_record() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let before = Engine::builder(Arc::clone(&store)).digest_key([1; 32]);
    let after = Engine::builder(store)
        .digest_key([2; 32])
        .former_digest_key([1; 32]);
    let (before, after) = (before.build().unwrap(), after.build().unwrap());
    let charge = Runs::default();
    for (engine, ends) in [(before, Err(PayError::Down)), (after, receipt(1))] {
        let call = engine.operation("pay").key(&7);
        let answer = call.run(|_| async {
            let charge = counted("charge", &charge).input(&("card-1", 500));
            charge.await?;
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
    assert_eq!(charge.count(), 1);
}

#[tokio::test]
async fn a_reader_of_the_store_cannot_try_guesses_against_the_steps_of_a_keyed_engine() {
    let journal = async |secret| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let engine = Engine::builder(Arc::clone(&store)).digest_key(secret);
        let engine = engine.build().unwrap();
        let mut name = None;
        let answer = engine.operation("pay").key(&7).run(|cx| {
            name = Some(*cx.key());
            async {
                let part = async |_| receipt(1);
                step(("charge", "card-1"), part).input(&500).await?;
                Err(PayError::Down) as Answer
            }
        });
        assert_eq!(answer.await, Err(PayError::Down));
        let key = RecordKey::new(
            "idem".into(),
            idem_runtime::key::Operation::new("pay"),
            name.unwrap(),
        );
        let ReadReply::Found { record, .. } = store.read(&key).await.unwrap() else {
            panic!("there is a record");
        };
        record.journal().as_bytes().clone()
    };
    let (one, other) = (journal([1; 32]).await, journal([2; 32]).await);
    // Of the step, and of its input.
    assert_ne!(one[5..21], other[5..21]);
    assert_ne!(one[31..47], other[31..47]);
    assert_eq!(one[47..54], other[47..54], "operators see the label");
}
