//! The provenance that an [`Answer`] names.

use idem_runtime::{Answer, AnswerSource, codec::AnswerFormat};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    an_answer_is_executed_first_and_then_replayed, an_answer_of_another_call_is_this_call_s_own,
    an_answer_that_a_hook_found_is_not_executed, an_answer_has_the_provenance_of_a_wait,
    an_adopted_answer_was_waited_for_and_has_its_own_age,
    an_answer_that_a_duplicate_asked_for_has_its_own_age, a_type_may_become_an_answer_and_back,
}

type Paid = Result<Answer<Receipt>, PayError>;

fn never<T>() -> Result<T, PayError> {
    unreachable!("this body must not run")
}

/// All that an answer says; the age in minutes, since a store's clock runs on by itself.
fn story(answer: &Answer<Receipt>) -> (u32, AnswerSource, u16, u64) {
    let minutes = answer.age().as_secs() / 60;
    (answer.run, answer.how(), answer.attempt(), minutes)
}

/// A body of this run that ends when its test ends it.
async fn started(call: Pay, run: u32) -> Body<Paid> {
    let body = move |gate: Arc<Semaphore>, begun: Arc<Semaphore>| async move {
        begun.add_permits(1);
        gate.acquire().await.unwrap().forget();
        Ok(Receipt { run }.into())
    };
    Body::begun(|gate, begun| tokio::spawn(call.run(move |_| body(gate, begun)))).await
}

async fn an_answer_is_executed_first_and_then_replayed(fixture: Fixture) {
    let pay = || {
        fixture
            .pay()
            .run(|_| async { Ok(Receipt { run: 1 }.into()) })
    };
    let first: Paid = pay().await;
    let first = first.unwrap();
    assert!(first.was_executed());
    assert_eq!(story(&first), (1, AnswerSource::Executed, 1, 0));
    assert_eq!(first.age(), Duration::ZERO);
    fixture.pass_in_store(Duration::from_mins(10));
    let again = pay().await.unwrap();
    assert!(!again.was_executed());
    assert_eq!(story(&again), (1, AnswerSource::Replayed, 1, 10));
    assert_eq!(again.value(), &Receipt { run: 1 });
    assert_eq!(again.into_inner(), Receipt { run: 1 });
}

async fn an_answer_of_another_call_is_this_call_s_own(fixture: Fixture) {
    let inner = || fixture.engine.operation("inner").key(&7);
    let paid = inner().run(|_| async { Ok::<_, PayError>(Answer::from(Receipt { run: 1 })) });
    paid.await.unwrap();
    let outer: Paid = (fixture.pay())
        .run(|_| inner().run(|_| async { never() }))
        .await;
    assert_eq!(story(&outer.unwrap()), (1, AnswerSource::Executed, 1, 0));
}

async fn an_answer_that_a_hook_found_is_not_executed(fixture: Fixture) {
    for (key, landed) in [true, false].into_iter().enumerate() {
        let pay = || fixture.engine.operation("pay").key(&key);
        let first: Paid = pay().run(|_| async { Err(PayError::TimedOut) }).await;
        assert_eq!(first, Err(PayError::TimedOut));
        let hook = |_| async move {
            if landed {
                Reconciled::Landed(Receipt { run: 1 }.into())
            } else {
                Reconciled::NotLanded
            }
        };
        let body = |_| async { Ok::<_, PayError>(Answer::from(Receipt { run: 2 })) };
        let second = pay().run_reconciled(hook, body).await.unwrap();
        let expected = if landed {
            (1, AnswerSource::Replayed, 1, 0)
        } else {
            (2, AnswerSource::Executed, 2, 0)
        };
        assert_eq!(story(&second), expected);
    }
}

async fn an_answer_has_the_provenance_of_a_wait(fixture: Fixture) {
    let first = started(fixture.pay(), 1).await;
    let mut near = pin!(fixture.pay().run(|_| async { never::<Answer<Receipt>>() }));
    tokio::select! {
        biased;
        _ = &mut near => unreachable!("the body runs"),
        () = tokio::task::yield_now() => {}
    }
    let far = tokio::spawn(
        fixture
            .pay_far()
            .run(|_| async { never::<Answer<Receipt>>() }),
    );
    // It claims, has to wait, and sleeps.
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert!(first.end().await.unwrap().was_executed());
    assert_eq!(story(&near.await.unwrap()), (1, AnswerSource::Waited, 1, 0));
    let far = until(&fixture, far).await.unwrap().unwrap();
    assert_eq!(story(&far), (1, AnswerSource::Waited, 1, 0));
}

async fn an_adopted_answer_was_waited_for_and_has_its_own_age(fixture: Fixture) {
    let first = started(fixture.pay(), 1).await;
    fixture.pass_in_store(Duration::from_secs(30));
    let second = started(fixture.pay_far(), 2).await;
    assert_eq!(
        story(&second.end().await.unwrap()),
        (2, AnswerSource::Executed, 2, 0)
    );
    fixture.pass_in_store(Duration::from_mins(5));
    assert_eq!(
        story(&first.end().await.unwrap()),
        (2, AnswerSource::Waited, 2, 5)
    );
    assert_eq!(fixture.events.count("adopted"), 1);
}

/// The duplicate that queries the store does not request the answer's age. It may therefore lack it.
async fn an_answer_that_a_duplicate_asked_for_has_its_own_age(fixture: Fixture) {
    let first = started(fixture.pay(), 1).await;
    assert!(first.end().await.unwrap().was_executed());
    fixture.pass_in_store(Duration::from_mins(5));
    let leader = answered(fixture.pay());
    let follower = fixture.pay().run(|_| async { never::<Answer<Receipt>>() });
    let (leader, follower) = tokio::join!(biased; leader, follower);
    assert_eq!(leader.unwrap(), Receipt { run: 1 });
    assert_eq!(follower.unwrap().age().as_secs() / 60, 5);
}

async fn a_type_may_become_an_answer_and_back(mut fixture: Fixture) {
    for format in [AnswerFormat::Json, AnswerFormat::MessagePack] {
        fixture = fixture.with(|engine| engine.answer_format(format));
        let _row = Row::new(&fixture, format);
        let call = |op| fixture.engine.operation(op).key(&7);
        assert_eq!(paid(call("old"), &Runs::default()).await, receipt(1));
        let read = call("old").run(|_| async { never::<Answer<Receipt>>() });
        let replayed = (1, AnswerSource::Replayed, 1, 0);
        assert_eq!(story(&read.await.unwrap()), replayed);
        let written = call("new").run(|_| async { Ok(Answer::from(Receipt { run: 1 })) });
        assert!(Paid::is_ok(&written.await));
        assert_eq!(answered(call("new")).await, receipt(1));
        let Acquired::Replay(stored) = call("new").begin().await.unwrap() else {
            unreachable!("it is done")
        };
        let answer = stored.decode::<Answer<Receipt>>().unwrap();
        assert_eq!(story(&answer), replayed);
    }
}
