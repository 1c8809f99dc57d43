//! Several calls in one transaction, consecutive and nested.

use super::prelude::*;

on_each_database!(each_end_of_an_inner_call_in_each_of_an_outer_one,);

const ENDS: [End; 3] = [End::Value, End::Business, End::System];

async fn each_end_of_an_inner_call_in_each_of_an_outer_one<D: Database>() {
    let inner = ENDS.map(|end| (end, false));
    let inner = inner.into_iter().chain([(End::Value, true)]);
    for ((inner_end, is_replayed), outer_end) in
        inner.flat_map(|inner| ENDS.map(|outer| (inner, outer)))
    {
        let case = format!("{inner_end:?} in {outer_end:?}, replayed: {is_replayed}");
        let fixture = Fixture::<D>::new().await;
        let runs = if is_replayed { [1, 2] } else { [2, 1] };
        let [inner, outer] = [inner_end.answer(runs[0]), outer_end.answer(runs[1])];
        if is_replayed {
            assert_eq!(fixture.committed_as("inner").await, Ok(1), "{case}");
        }
        let mut tx = fixture.begin().await;
        insert::<D>(&mut tx, "around").await.done();
        let nested = async |conn: &mut D::Conn| {
            let call = fixture.call_that_ends(conn, |conn| conn, "inner", inner_end);
            assert_eq!(call.await, inner, "{case}");
            insert::<D>(conn, "outer").await.done();
        };
        let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "outer", nested, outer_end);
        assert_eq!(call.await, outer, "{case}");
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
        // An inner call is kept with the rows of the outer one, and is undone with them.
        let [inner, outer] = [inner, outer].map(|answer| answer.expect("it ends"));
        let (kept, down) = (outer.is_ok(), Err(OrderError::Down));
        let inner_row = i64::from(inner.is_ok() && (kept || is_replayed));
        let rows = [2, if kept { 2 } else { 0 }, inner_row];
        let found = fixture.orders_of(["around", "outer", "inner"]).await;
        assert_eq!(found, rows, "{case}");
        let inner_record = inner != down && (kept || is_replayed);
        let records = i64::from(inner_record) + i64::from(outer != down);
        assert_eq!(fixture.records().await, records, "{case}");
        let outer_record = outer != down;
        for (key, record, end) in [
            ("inner", inner_record, inner),
            ("outer", outer_record, outer),
        ] {
            if record {
                assert_eq!(fixture.replayed(fixture.call(key)).await, end, "{case}");
            } else {
                assert_eq!(state(fixture.call(key)).await, None, "{case}: {key}");
            }
        }
    }
}
