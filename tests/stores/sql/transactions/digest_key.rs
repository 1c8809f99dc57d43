//! Record keys with a secret.

use idem_tests::shop::assert_contains;

use super::prelude::*;

on_each_database!(
    an_answer_from_before_the_secret_was_changed_is_replayed,
    an_unfinished_record_from_before_is_not_taken_over,
);

/// Engines before, during and after a change of the secret.
fn changed<D: Database>(fixture: &Fixture<D>) -> [Engine; 3] {
    let engine = || Engine::builder(fixture.store.clone()).observer(fixture.events.clone());
    let before = engine().digest_key([7; 32]).build();
    let during = engine().digest_key([8; 32]).former_digest_key([7; 32]);
    let after = engine().digest_key([8; 32]).build();
    [before.unwrap(), during.build().unwrap(), after.unwrap()]
}

fn call(engine: &Engine, cents: u32) -> CallBuilder<Classified> {
    let call = engine.operation("orders.create").key("order-7");
    call.fingerprint(&cents)
}

async fn an_answer_from_before_the_secret_was_changed_is_replayed<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let [before, during, after] = changed(&fixture);
    let mut tx = fixture.begin().await;
    let answer = ordered(&fixture, call(&before, 5), &mut tx, "order").await;
    assert!(answer.is_ok(), "{answer:?}");
    D::commit(tx).await.done();

    let mut tx = fixture.begin().await;
    assert_eq!(answered(call(&during, 5), &mut tx).await, answer);
    let other = refusal(answered(call(&during, 6), &mut tx).await);
    assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
    // The transaction remains usable afterwards.
    insert::<D>(&mut tx, "around").await.done();
    D::commit(tx).await.done();
    let leased = call(&during, 5).run(|_| async { Err::<u32, _>(OrderError::Down) });
    assert_eq!(leased.await, answer, "of a call outside of a transaction");
    assert_eq!(fixture.orders_of(["order", "around"]).await, [1, 1]);
    assert_eq!(fixture.records().await, 1);
    assert_eq!(fixture.events.count("formerdigestkey"), 3);
    // A new call begins under the new name.
    let other = |engine: &Engine| engine.operation("orders.create").key("order-8");
    let answer = fixture.committed(other(&during)).await;
    for engine in [&during, &after] {
        assert_eq!(fixture.replayed(other(engine)).await, answer);
    }
    assert_eq!(fixture.records().await, 2);
    assert_eq!(fixture.events.count("formerdigestkey"), 3);
}

/// During the transaction, a taken-over record could expire elsewhere.
async fn an_unfinished_record_from_before_is_not_taken_over<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let [before, during, _] = changed(&fixture);
    let counted = call(&before, 5).count_errors(true);
    let down = counted.run(|_| async { Err::<u32, _>(OrderError::Down) });
    assert_eq!(down.await, Err(OrderError::Down));

    let mut tx = fixture.begin().await;
    let refused = refusal(answered(call(&during, 5), &mut tx).await);
    assert_running(&refused);
    assert_contains(&refused, "former digest key");
    insert::<D>(&mut tx, "around").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("around").await, (1, 1));

    // A call outside of a transaction takes the record over.
    let run =
        call(&during, 5).run(|cx| async move { Ok::<_, OrderError>(u32::from(cx.attempt())) });
    assert_eq!(run.await, Ok(2));
    assert_eq!(fixture.replayed(call(&during, 5)).await, Ok(2));
}
