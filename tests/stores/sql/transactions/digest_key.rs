//! Record keys with a secret.

use idem_runtime::{CallBuilder, store::OutcomeKind};
use idem_tests::fixture::Classified;
use idem_tests::shop::assert_contains;

use crate::prelude::*;

pub(crate) async fn a_call_has_one_record_under_its_keyed_name<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let keyed = Engine::builder(fixture.store.clone()).digest_key([7; 32]);
    let keyed = keyed.build().unwrap();
    let call = |cents: u32| {
        keyed
            .operation("orders.create")
            .key("order-7")
            .fingerprint(&cents)
    };
    let mut tx = fixture.begin().await;
    let derived = call(5).in_tx(&mut tx).run(async |tx: &mut D::Tx, cx| {
        make::<D>(tx, &fixture.runs, "order").await?;
        Ok::<_, OrderError>(cx.derive_key("charge"))
    });
    let derived = derived.await.unwrap();
    D::commit(tx).await.done();

    let mut tx = fixture.begin().await;
    let again = call(5)
        .in_tx(&mut tx)
        .run(async |_: &mut D::Tx, _| unreachable!("it is replayed"));
    assert_eq!(again.await, Ok::<_, OrderError>(derived.clone()));
    let other = refusal(answered(call(6), &mut tx).await);
    assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
    D::rollback(tx).await.done();
    assert_eq!(fixture.kept("order").await, (1, 1));
    let entry = call(5).entry().await.unwrap().expect("the record");
    assert_eq!(entry.state(), EntryState::Answered(OutcomeKind::Value));

    // Without the secret it is another call, whose derived key is the same.
    let mut tx = fixture.begin().await;
    let plain = ordered(&fixture, fixture.order(), &mut tx, "again").await;
    assert!(plain.is_ok(), "{plain:?}");
    D::commit(tx).await.done();
    assert_eq!(fixture.records().await, 2);
    let plain = fixture
        .call("order-7")
        .run(|cx| async move { Ok::<_, OrderError>(cx.derive_key("charge")) });
    drop(plain);
    let shown = fixture
        .engine
        .operation("orders.create")
        .key("order-7")
        .entry()
        .await;
    assert_ne!(shown.unwrap().unwrap().key(), entry.key());
    assert_eq!(derived.len(), 43);
}

/// Engines before and after a change of the secret.
fn changed<D: Database>(fixture: &Fixture<D>) -> [Engine; 2] {
    let engine = || Engine::builder(fixture.store.clone()).observer(fixture.events.clone());
    let before = engine().digest_key([7; 32]).build();
    let after = engine().digest_key([8; 32]).former_digest_key([7; 32]);
    [before.unwrap(), after.build().unwrap()]
}

fn call(engine: &Engine, cents: u32) -> CallBuilder<Classified> {
    let call = engine.operation("orders.create").key("order-7");
    call.fingerprint(&cents)
}

pub(crate) async fn an_answer_from_before_the_secret_was_changed_is_replayed<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let [before, after] = changed(&fixture);
    let mut tx = fixture.begin().await;
    let answer = ordered(&fixture, call(&before, 5), &mut tx, "order").await;
    assert!(answer.is_ok(), "{answer:?}");
    D::commit(tx).await.done();

    let mut tx = fixture.begin().await;
    assert_eq!(answered(call(&after, 5), &mut tx).await, answer);
    let other = refusal(answered(call(&after, 6), &mut tx).await);
    assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
    // The transaction remains usable afterwards.
    insert::<D>(&mut tx, "around").await.done();
    D::commit(tx).await.done();
    let leased = call(&after, 5).run(|_| async { Err::<u32, _>(OrderError::Down) });
    assert_eq!(leased.await, answer, "of a call outside of a transaction");
    assert_eq!(fixture.orders_of(["order", "around"]).await, [1, 1]);
    assert_eq!(fixture.records().await, 1);
    assert_eq!(fixture.events.count("formerdigestkey"), 3);
}

/// While the transaction is open, an unfinished record that it took over could expire for other connections.
pub(crate) async fn an_unfinished_record_from_before_is_not_taken_over<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let [before, after] = changed(&fixture);
    let counted = call(&before, 5).count_errors(true);
    let down = counted.run(|_| async { Err::<u32, _>(OrderError::Down) });
    assert_eq!(down.await, Err(OrderError::Down));

    let mut tx = fixture.begin().await;
    let refused = refusal(answered(call(&after, 5), &mut tx).await);
    assert_running(&refused);
    assert_contains(&refused, "former digest key");
    insert::<D>(&mut tx, "around").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("around").await, (1, 1));

    // A call outside of a transaction takes the record over.
    let run = call(&after, 5).run(|cx| async move { Ok::<_, OrderError>(u32::from(cx.attempt())) });
    assert_eq!(run.await, Ok(2));
    assert_eq!(fixture.replayed(call(&after, 5)).await, Ok(2));
}

pub(crate) async fn a_call_after_the_change_begins_under_the_new_name<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let [_, after] = changed(&fixture);
    let last = Engine::builder(fixture.store.clone()).digest_key([8; 32]);
    let last = last.build().unwrap();
    let mut tx = fixture.begin().await;
    let answer = ordered(&fixture, call(&after, 5), &mut tx, "order").await;
    D::commit(tx).await.done();
    for engine in [&after, &last] {
        assert_eq!(fixture.replayed(call(engine, 5)).await, answer);
    }
    assert_eq!(fixture.kept("order").await, (1, 1));
    assert_eq!(fixture.events.count("formerdigestkey"), 0);
}
