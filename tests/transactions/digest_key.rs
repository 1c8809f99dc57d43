//! Names by a secret.

use idem_runtime::{Engine, EntryState, ErrorKind, OutcomeKind};

use crate::database::Database;
use crate::stage::{Done, Stage, answered, make, ordered, refusal};

pub(crate) async fn a_call_has_one_record_under_its_keyed_name<D: Database>() {
    let stage = Stage::<D>::new().await;
    let keyed = Engine::builder(stage.store.clone()).digest_key([7; 32]);
    let keyed = keyed.build().unwrap();
    let call = |cents: u32| {
        keyed
            .operation("orders.create")
            .key("order-7")
            .fingerprint(&cents)
    };
    let mut tx = stage.begin().await;
    let derived = call(5).in_tx(&mut tx).run(async |tx: &mut D::Tx, cx| {
        make::<D>(tx, &stage.runs, "order").await?;
        Ok::<_, crate::stage::OrderError>(cx.derive_key("charge"))
    });
    let derived = derived.await.unwrap();
    D::commit(tx).await.done();

    let mut tx = stage.begin().await;
    let again = call(5)
        .in_tx(&mut tx)
        .run(async |_: &mut D::Tx, _| unreachable!("it is replayed"));
    assert_eq!(
        again.await,
        Ok::<_, crate::stage::OrderError>(derived.clone())
    );
    let other = refusal(answered::<D>(call(6), &mut tx).await);
    assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
    D::rollback(tx).await.done();
    assert_eq!((stage.orders("order").await, stage.records().await), (1, 1));
    let entry = call(5).entry().await.unwrap().expect("the record");
    assert_eq!(entry.state(), EntryState::Answered(OutcomeKind::Value));

    // Without the secret it is another call, whose derived key is the same.
    let mut tx = stage.begin().await;
    let plain = ordered(&stage, stage.order(), &mut tx, "again").await;
    assert!(plain.is_ok(), "{plain:?}");
    D::commit(tx).await.done();
    assert_eq!(stage.records().await, 2);
    let plain = stage
        .call("order-7")
        .run(|cx| async move { Ok::<_, crate::stage::OrderError>(cx.derive_key("charge")) });
    drop(plain);
    let shown = stage
        .engine
        .operation("orders.create")
        .key("order-7")
        .entry()
        .await;
    assert_ne!(shown.unwrap().unwrap().key(), entry.key());
    assert_eq!(derived.len(), 43);
}
