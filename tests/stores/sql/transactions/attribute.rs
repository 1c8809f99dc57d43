//! The same cases through the attribute.

use idem_runtime::idempotent;

use crate::prelude::*;

impl<D: Database> Fixture<D> {
    #[idempotent(op = "orders.place", key = order, engine = self.engine, tx = tx)]
    async fn place(&self, tx: &mut D::Tx, order: &str, sold_out: bool) -> Answer {
        let run = make::<D>(tx, &self.runs, order).await?;
        if sold_out {
            return Err(OrderError::SoldOut { run });
        }
        Ok(run)
    }

    #[idempotent(op = "orders.place", key = order, engine = self.engine, tx = conn)]
    async fn place_on(&self, conn: &mut D::Conn, order: &str, sold_out: bool) -> Answer {
        let run = make::<D>(conn, &self.runs, order).await?;
        if sold_out {
            return Err(OrderError::SoldOut { run });
        }
        Ok(run)
    }
}

pub(crate) async fn functions_in_the_callers_transaction<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for (run, commits) in [(1, false), (2, true), (2, true)] {
        let mut tx = fixture.begin().await;
        assert_eq!(fixture.place(&mut tx, "mine", false).await, Ok(run));
        if commits {
            D::commit(tx).await.done();
        } else {
            D::rollback(tx).await.done();
        }
    }
    assert_eq!(fixture.kept("mine").await, (1, 1));
    for _ in 0..2 {
        let mut tx = fixture.begin().await;
        insert::<D>(&mut tx, "around").await.done();
        let sold_out = Err(OrderError::SoldOut { run: 3 });
        assert_eq!(fixture.place(&mut tx, "other", true).await, sold_out);
        D::commit(tx).await.done();
    }
    assert_eq!(fixture.orders_of(["other", "around"]).await, [0, 2]);
    assert_eq!(fixture.records().await, 2);
}

pub(crate) async fn functions_on_a_connection<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    for _ in 0..2 {
        assert_eq!(fixture.place_on(&mut conn, "mine", false).await, Ok(1));
        assert_eq!(fixture.orders("mine").await, 1);
        let sold_out = Err(OrderError::SoldOut { run: 2 });
        assert_eq!(fixture.place_on(&mut conn, "other", true).await, sold_out);
        assert_eq!(fixture.kept("other").await, (0, 2));
        insert::<D>(&mut conn, "after").await.done();
        // In a transaction of the caller's it is the same record.
        let mut tx = fixture.begin().await;
        assert_eq!(fixture.place(&mut tx, "mine", false).await, Ok(1));
        D::commit(tx).await.done();
    }
    assert_eq!(
        (fixture.orders("after").await, fixture.runs.count()),
        (2, 2)
    );
}
