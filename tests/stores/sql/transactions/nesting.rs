//! Several calls in one transaction, consecutive and nested.

use super::prelude::*;

on_each_database!(each_end_of_an_inner_call_in_each_of_an_outer_one,);

/// `None`: the inner call is replayed.
const INNER: [Option<Answer>; 4] = [
    Some(Ok(7)),
    Some(Err(OrderError::SoldOut { run: 7 })),
    Some(Err(OrderError::Down)),
    None,
];

const OUTER: [Answer; 3] = [
    Ok(8),
    Err(OrderError::SoldOut { run: 8 }),
    Err(OrderError::Down),
];

/// A call whose body writes a row of this name, and ends like this.
async fn order<D: Database>(
    fixture: &Fixture<D>,
    name: &str,
    tx: &mut D::Tx,
    end: &Answer,
) -> Answer {
    let call = fixture.call(name).in_tx(tx);
    let body = async |tx: &mut D::Tx, _| {
        insert::<D>(tx, name).await?;
        end.clone()
    };
    call.run(body).await
}

async fn each_end_of_an_inner_call_in_each_of_an_outer_one<D: Database>() {
    for inner in INNER {
        for outer in OUTER {
            let case = format!("{inner:?} in {outer:?}");
            let fixture = Fixture::<D>::new().await;
            let mut tx = fixture.begin().await;
            let end = inner.clone().unwrap_or(Ok(7));
            if inner.is_none() {
                assert_eq!(order(&fixture, "inner", &mut tx, &end).await, end, "{case}");
                D::commit(tx).await.done();
                tx = fixture.begin().await;
            }
            insert::<D>(&mut tx, "around").await.done();
            let call = fixture.call("outer").in_tx(&mut tx);
            let answer = call.run(async |tx: &mut D::Tx, _| {
                insert::<D>(tx, "outer").await?;
                assert_eq!(order(&fixture, "inner", tx, &end).await, end, "{case}");
                insert::<D>(tx, "outer").await?;
                outer.clone()
            });
            assert_eq!(answer.await, outer, "{case}");
            insert::<D>(&mut tx, "around").await.done();
            D::commit(tx).await.done();
            // An inner call is kept with the rows of the outer one, and is undone with them.
            let (kept, replayed) = (outer.is_ok(), inner.is_none());
            let inner_row = i64::from(end.is_ok() && (kept || replayed));
            let rows = [2, if kept { 2 } else { 0 }, inner_row];
            let found = fixture.orders_of(["around", "outer", "inner"]).await;
            assert_eq!(found, rows, "{case}");
            let inner_record = end != Err(OrderError::Down) && (kept || replayed);
            let outer_record = outer != Err(OrderError::Down);
            let records = i64::from(inner_record) + i64::from(outer_record);
            assert_eq!(fixture.records().await, records, "{case}");
            for (key, record, end) in [
                ("inner", inner_record, &end),
                ("outer", outer_record, &outer),
            ] {
                if record {
                    assert_eq!(&fixture.replayed(fixture.call(key)).await, end, "{case}");
                } else {
                    assert_eq!(state(fixture.call(key)).await, None, "{case}: {key}");
                }
            }
        }
    }
}
