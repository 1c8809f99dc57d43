//! Calls of processes at neighbouring steps of a change of the digests' secret.

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
    builder.build().expect("the settings are right")
}

/// Both steps, in both orders.
fn rotating<D: Database>(stage: &Stage<D>) -> [[Engine; 2]; 2] {
    let old = engine(stage, DigestKeys::new(OLD).also(NEW));
    let new = engine(stage, DigestKeys::new(NEW).also(OLD));
    [[old.clone(), new.clone()], [new, old]]
}

/// Keys of which the old name comes first, and keys of which the new one does.
fn call(engine: &Engine, number: usize) -> CallBuilder<Classified> {
    engine
        .operation("orders.create")
        .key(&number)
        .fingerprint(&number)
}

const KEYS: usize = 6;

pub(crate) async fn an_answer_is_found_by_the_next_step_and_the_one_before<D: Database>() {
    let stage = Stage::<D>::new().await;
    let last = engine(&stage, DigestKeys::new(NEW));
    for (round, [first, second]) in rotating(&stage).into_iter().enumerate() {
        for key in round * KEYS..(round + 1) * KEYS {
            let mut tx = stage.begin().await;
            let name = format!("order {key}");
            let answer = ordered(&stage, call(&first, key), &mut tx, &name).await;
            D::commit(tx).await.done();
            for engine in [&second, &first, &last] {
                let mut tx = stage.begin().await;
                let again = answered::<D>(call(engine, key), &mut tx).await;
                D::rollback(tx).await.done();
                assert_eq!(again, answer);
            }
            assert_eq!(stage.orders(&name).await, 1);
        }
    }
}

pub(crate) async fn what_is_undone_leaves_neither_record<D: Database>() {
    let stage = Stage::<D>::new().await;
    let [[first, second], _] = rotating(&stage);
    for key in 0..KEYS {
        let mut tx = stage.begin().await;
        let down = failed(&stage, call(&first, key), &mut tx, OrderError::Down).await;
        assert_eq!(down, Err(OrderError::Down));
        // The transaction is of use afterwards.
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
        assert_eq!(stage.records().await, 0);
    }
    assert_eq!(stage.orders("undone").await, 0);
    assert_eq!(stage.orders("around").await, i64::try_from(KEYS).unwrap());
    let sold_out = OrderError::SoldOut { run: 1 };
    for key in 0..KEYS {
        let mut tx = stage.begin().await;
        let error = failed(&stage, call(&first, key), &mut tx, sold_out.clone()).await;
        assert_eq!(error, Err(sold_out.clone()));
        D::commit(tx).await.done();
        let mut tx = stage.begin().await;
        let again = answered::<D>(call(&second, key), &mut tx).await;
        assert_eq!(again, Err(sold_out.clone()));
        D::rollback(tx).await.done();
    }
    assert_eq!(stage.orders("undone").await, 0);
}

pub(crate) async fn another_request_is_refused_across_steps<D: Database>() {
    let stage = Stage::<D>::new().await;
    let [[first, second], _] = rotating(&stage);
    for key in 0..KEYS {
        let mut tx = stage.begin().await;
        ordered(&stage, call(&first, key), &mut tx, "order")
            .await
            .unwrap();
        D::commit(tx).await.done();
        let mut tx = stage.begin().await;
        let other = second
            .operation("orders.create")
            .key(&key)
            .fingerprint("other");
        let error = refusal(answered::<D>(other, &mut tx).await);
        assert_eq!(*error.kind(), ErrorKind::Mismatch, "{error}");
        // What is left of the claim under one name does not stay.
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
    }
    assert_eq!(stage.orders("around").await, i64::try_from(KEYS).unwrap());
    assert_eq!(stage.records().await, 2 * i64::try_from(KEYS).unwrap());
}

pub(crate) async fn a_reset_goes_through_both_records<D: Database>() {
    let stage = Stage::<D>::new().await;
    for (round, [first, second]) in rotating(&stage).into_iter().enumerate() {
        for key in round * KEYS..(round + 1) * KEYS {
            let mut tx = stage.begin().await;
            ordered(&stage, call(&first, key), &mut tx, "order")
                .await
                .unwrap();
            D::commit(tx).await.done();
            let mut resets = 0;
            while let Some(entry) = call(&second, key).entry().await.unwrap() {
                if entry.state() == EntryState::Released {
                    break;
                }
                entry.reset().await.unwrap();
                resets += 1;
            }
            assert_eq!(resets, 2);
            let mut tx = stage.begin().await;
            let name = format!("again {key}");
            ordered(&stage, call(&first, key), &mut tx, &name)
                .await
                .unwrap();
            D::commit(tx).await.done();
            assert_eq!(stage.orders(&name).await, 1);
        }
    }
}

pub(crate) async fn callers_of_both_steps_have_one_effect<D: Database>() {
    let stage = Arc::new(Stage::<D>::new().await);
    let [engines, _] = rotating(&stage);
    let each = 2;
    for key in 0..KEYS {
        let together = Arc::new(Barrier::new(2 * each));
        let mut callers = JoinSet::new();
        for engine in &engines {
            for _ in 0..each {
                let (stage, engine) = (Arc::clone(&stage), engine.clone());
                let together = Arc::clone(&together);
                callers.spawn(async move {
                    let mut conn = stage.connection().await;
                    together.wait().await;
                    let conn: &mut D::Conn = &mut conn;
                    let name = format!("order {key}");
                    let body =
                        async |conn: &mut D::Conn, _| make::<D>(conn, &stage.runs, &name).await;
                    call(&engine, key).in_tx(conn).run(body).await
                });
            }
        }
        let answers = soon("all are answered", callers.join_all()).await;
        let first = answers[0].clone();
        assert!(first.is_ok(), "{answers:?}");
        assert!(answers.iter().all(|answer| *answer == first), "{answers:?}");
        assert_eq!(stage.orders(&format!("order {key}")).await, 1);
    }
}
