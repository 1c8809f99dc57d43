//! Several calls in one transaction, consecutive and nested, and sqlx's own savepoints.

use crate::prelude::*;

pub(crate) async fn calls_of_one_transaction_are_committed_together<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.ordered_as("a", &mut tx).await, Ok(1));
    let answer = failed(&fixture, fixture.call("b"), &mut tx, OrderError::Down).await;
    assert_eq!(answer, Err(OrderError::Down));
    let sold_out = OrderError::SoldOut { run: 3 };
    let answer = failed(&fixture, fixture.call("c"), &mut tx, sold_out.clone()).await;
    assert_eq!(answer, Err(sold_out.clone()));
    assert_eq!(fixture.ordered_as("d", &mut tx).await, Ok(4));
    assert_eq!(answered(fixture.call("a"), &mut tx).await, Ok(1));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders_of(["a", "d"]).await, [1, 1]);
    assert_eq!(fixture.kept("undone").await, (0, 3));
    let mut tx = fixture.begin().await;
    assert_eq!(answered(fixture.call("c"), &mut tx).await, Err(sold_out));
    assert_eq!(answered(fixture.call("d"), &mut tx).await, Ok(4));
    assert_eq!(fixture.ordered_as("b", &mut tx).await, Ok(5));
    D::rollback(tx).await.done();
    assert_eq!(fixture.kept("b").await, (0, 3));
}

/// A body that makes an order, calls another key, and ends like this.
async fn outer<D: Database>(fixture: &Fixture<D>, tx: &mut D::Tx, end: Answer) -> Answer {
    let call = fixture.call("outer").in_tx(tx);
    call.run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "outer").await?;
        ordered(fixture, fixture.call("inner"), tx, "inner").await?;
        insert::<D>(tx, "outer").await?;
        end
    })
    .await
}

pub(crate) async fn an_inner_call_is_committed_with_the_outer_one<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(outer(&fixture, &mut tx, Ok(7)).await, Ok(7));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders_of(["outer", "inner"]).await, [2, 1]);
    let mut tx = fixture.begin().await;
    assert_eq!(answered(fixture.call("outer"), &mut tx).await, Ok(7));
    assert_eq!(answered(fixture.call("inner"), &mut tx).await, Ok(2));
    D::commit(tx).await.done();
}

pub(crate) async fn an_inner_call_is_undone_with_the_outer_one<D: Database>() {
    for error in [OrderError::Down, OrderError::SoldOut { run: 1 }] {
        let kept = i64::from(error != OrderError::Down);
        let fixture = Fixture::<D>::new().await;
        let mut tx = fixture.begin().await;
        insert::<D>(&mut tx, "before").await.done();
        let answer = outer(&fixture, &mut tx, Err(error.clone())).await;
        assert_eq!(answer, Err(error));
        insert::<D>(&mut tx, "after").await.done();
        D::commit(tx).await.done();
        assert_eq!(fixture.orders_of(["outer", "inner"]).await, [0, 0]);
        assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
        assert_eq!(fixture.records().await, kept);
        let mut tx = fixture.begin().await;
        assert_eq!(fixture.ordered_as("inner", &mut tx).await, Ok(3));
        D::commit(tx).await.done();
    }
}

pub(crate) async fn an_inner_call_that_fails_leaves_the_outer_one<D: Database>() {
    for error in [OrderError::Down, OrderError::SoldOut { run: 2 }] {
        let kept = i64::from(error != OrderError::Down);
        let fixture = Fixture::<D>::new().await;
        let mut tx = fixture.begin().await;
        let call = fixture.call("outer").in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| {
            let run = make::<D>(tx, &fixture.runs, "outer").await;
            let inner = failed(&fixture, fixture.call("inner"), tx, error.clone()).await;
            assert_eq!(inner, Err(error.clone()));
            run
        });
        assert_eq!(answer.await, Ok(1));
        D::commit(tx).await.done();
        assert_eq!(fixture.orders_of(["outer", "undone"]).await, [1, 0]);
        assert_eq!(fixture.records().await, 1 + kept);
    }
}

pub(crate) async fn an_inner_replay_leaves_the_outer_one<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.ordered_as("inner", &mut tx).await, Ok(1));
    D::commit(tx).await.done();
    for end in [Ok(2), Err(OrderError::SoldOut { run: 2 })] {
        let mut tx = fixture.begin().await;
        let call = fixture.call("outer").in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| {
            make::<D>(tx, &fixture.runs, "outer").await?;
            assert_eq!(answered(fixture.call("inner"), tx).await, Ok(1));
            end.clone()
        });
        assert_eq!(answer.await, end);
        D::rollback(tx).await.done();
        assert_eq!(fixture.kept("outer").await, (0, 1));
    }
}

pub(crate) async fn a_body_that_calls_itself_is_refused<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let call = fixture.order().in_tx(&mut tx);
    let answer = call.run(async |tx: &mut D::Tx, _| {
        let error = refusal(answered(fixture.order(), tx).await);
        assert_eq!(*error.kind(), ErrorKind::Reentered);
        make::<D>(tx, &fixture.runs, "mine").await
    });
    assert_eq!(answer.await, Ok(1));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn a_savepoint_of_sqlx_around_a_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    D::execute(&mut tx, "SAVEPOINT mine").await.done();
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    D::execute(&mut tx, "ROLLBACK TO SAVEPOINT mine")
        .await
        .done();
    // The claim was rolled back with it.
    assert_eq!(fixture.ordered(&mut tx).await, Ok(2));
    D::execute(&mut tx, "RELEASE SAVEPOINT mine").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("mine").await, (1, 1));
}
