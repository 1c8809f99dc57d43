//! Calls in transactions after the secret of the digests was changed.

use std::sync::Arc;

use idem_runtime::{CallBuilder, DigestKeys, EncryptionKeys, Engine, EntryState, ErrorKind};
use idem_tests::world::Classified;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::stage::{
    Done, OrderError, Stage, answered, failed, insert, make, ordered, refusal, soon,
};

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];

fn engine<D: Database>(stage: &Stage<D>, keys: DigestKeys) -> Engine {
    let builder = Engine::builder(stage.store.clone()).digest_key(keys);
    // An encrypted answer opens under one name.
    let builder = builder.encrypt(EncryptionKeys::new(1, [9; 32]));
    let builder = builder.observer(stage.events.clone());
    builder.build().expect("the settings are right")
}

fn before_and_after<D: Database>(stage: &Stage<D>) -> [Engine; 2] {
    let after = DigestKeys::new(NEW).formerly(OLD);
    [DigestKeys::new(OLD), after].map(|keys| engine(stage, keys))
}

fn call(engine: &Engine, request: u32) -> CallBuilder<Classified> {
    engine
        .operation("orders.create")
        .key("order-7")
        .fingerprint(&request)
}

pub(crate) async fn an_answer_from_before_is_replayed<D: Database>() {
    let stage = Stage::<D>::new().await;
    let [before, after] = before_and_after(&stage);
    let mut tx = stage.begin().await;
    let answer = ordered(&stage, call(&before, 1), &mut tx, "order").await;
    D::commit(tx).await.done();
    assert_eq!(answer, Ok(1));
    for _ in 0..2 {
        let mut tx = stage.begin().await;
        assert_eq!(answered::<D>(call(&after, 1), &mut tx).await, answer);
        let other = refusal(answered::<D>(call(&after, 2), &mut tx).await);
        assert_eq!(*other.kind(), ErrorKind::Mismatch, "{other}");
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
    }
    assert_eq!(stage.orders("around").await, 2);
    assert_eq!((stage.orders("order").await, stage.records().await), (1, 1));
}

/// One that has no record yet stands under the new name alone.
pub(crate) async fn a_call_after_the_change_has_one_record<D: Database>() {
    let stage = Stage::<D>::new().await;
    let [_, after] = before_and_after(&stage);
    let last = engine(&stage, DigestKeys::new(NEW));
    let mut tx = stage.begin().await;
    let down = failed(&stage, call(&after, 1), &mut tx, OrderError::Down).await;
    assert_eq!(down, Err(OrderError::Down));
    D::commit(tx).await.done();
    assert_eq!(stage.records().await, 0);
    let mut tx = stage.begin().await;
    let answer = ordered(&stage, call(&after, 1), &mut tx, "order").await;
    D::commit(tx).await.done();
    assert_eq!(stage.records().await, 1);
    let mut tx = stage.begin().await;
    assert_eq!(answered::<D>(call(&last, 1), &mut tx).await, answer);
    D::rollback(tx).await.done();
}

pub(crate) async fn a_reset_from_before_the_change_is_one<D: Database>() {
    let stage = Stage::<D>::new().await;
    let [before, after] = before_and_after(&stage);
    let mut tx = stage.begin().await;
    ordered(&stage, call(&before, 1), &mut tx, "order")
        .await
        .unwrap();
    D::commit(tx).await.done();
    let entry = call(&after, 1).entry().await.unwrap().expect("it is found");
    entry.reset().await.unwrap();
    let entry = call(&after, 1).entry().await.unwrap().expect("it is found");
    assert_eq!(entry.state(), EntryState::Released);
    let mut tx = stage.begin().await;
    ordered(&stage, call(&after, 1), &mut tx, "again")
        .await
        .unwrap();
    D::commit(tx).await.done();
    assert_eq!((stage.orders("again").await, stage.records().await), (1, 1));
}

pub(crate) async fn callers_at_once_have_one_effect<D: Database>() {
    let stage = Arc::new(Stage::<D>::new().await);
    let [before, after] = before_and_after(&stage);
    let engines = [after, engine(&stage, DigestKeys::new(NEW).formerly(OLD))];
    for from_before in [true, false] {
        let name = format!("order {from_before}");
        let call = |engine: &Engine| engine.operation("orders.create").key(&from_before);
        if from_before {
            let mut tx = stage.begin().await;
            ordered(&stage, call(&before), &mut tx, &name)
                .await
                .unwrap();
            D::commit(tx).await.done();
        }
        let together = Arc::new(Barrier::new(6));
        let mut callers = JoinSet::new();
        for number in 0..6 {
            let (stage, engine) = (Arc::clone(&stage), engines[number % 2].clone());
            let (together, name) = (Arc::clone(&together), name.clone());
            let call = call(&engine);
            callers.spawn(async move {
                let mut conn = stage.connection().await;
                together.wait().await;
                let conn: &mut D::Conn = &mut conn;
                let body = async |conn: &mut D::Conn, _| make::<D>(conn, &stage.runs, &name).await;
                call.in_tx(conn).run(body).await
            });
        }
        let answers = soon("all are answered", callers.join_all()).await;
        let run = if from_before { 1 } else { 2 };
        assert_eq!(answers, vec![Ok(run); 6]);
        assert_eq!(stage.orders(&name).await, 1);
    }
}
