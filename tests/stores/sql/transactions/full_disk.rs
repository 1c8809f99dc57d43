//! A server whose disk is full at one statement of a call.

use super::prelude::*;

on_each_server!(a_full_disk_leaves_nothing_of_a_call);
mod other_clients {
    use super::*;
    on_each_other_client_of_a_server!(a_full_disk_leaves_nothing_of_a_call);
}

/// The statement, the runs of the body, and the caller's committed rows.
const STATEMENTS: [(&str, &str, u32, i64); 3] = [
    // The claim, and then a statement of the body: the transaction goes on.
    ("INSERT", "idem_records", 0, 2),
    ("INSERT", "orders", 1, 2),
    // The completion: the effect cannot be kept without it.
    ("UPDATE", "idem_records", 1, 0),
];

/// A trigger that fails like a full disk for the order `mine`.
fn trigger<D: Server>(event: &str, table: &str) -> String {
    let condition = if table == "orders" {
        "NEW.name = 'mine'"
    } else {
        "1 = 1"
    };
    if D::POSTGRES {
        format!(
            "CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN \
             RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END IF; \
             RETURN NEW; END $$; \
             CREATE TRIGGER disk_full BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION disk_full()"
        )
    } else {
        format!(
            "CREATE TRIGGER disk_full BEFORE {event} ON {table} FOR EACH ROW IF {condition} THEN \
             SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'; END IF"
        )
    }
}

async fn a_full_disk_leaves_nothing_of_a_call<C: Client<Database: Server>>() {
    for (event, table, runs, around) in STATEMENTS {
        let case = &format!("{event} of {table}");
        let fixture = Fixture::<C>::new().await;
        let mut operator = C::Database::acquire(&fixture.pool).await.done();
        operator
            .run(&trigger::<C::Database>(event, table))
            .await
            .unwrap();
        let mut conn = C::connect(&fixture.place.url).await;
        let work = async |tx: &mut C::Tx<'_>| {
            insert_by(tx, "around").await.unwrap();
            let answer = fixture.call_that_ends(tx, |tx| tx, "mine", End::Value);
            let answer = answer.await.expect("it ends");
            if around == 0 {
                return (answer, Ended::Rollback);
            }
            insert_by(tx, "around")
                .await
                .expect("the transaction goes on");
            (answer, Ended::Commit)
        };
        let (answer, ended) = C::in_transaction(&mut conn, work).await;
        ended.expect("the server is up");
        match (event, table) {
            ("INSERT", "idem_records") => {
                let error = refusal(answer);
                assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error}");
            }
            ("INSERT", _) => assert!(matches!(answer, Err(OrderError::Database(_))), "{answer:?}"),
            _ => assert_aborted(&refusal(answer)),
        }
        assert_eq!(fixture.runs.count(), runs, "{case}");
        let kept = fixture.orders_of(["around", "mine"]).await;
        assert_eq!((kept, fixture.records().await), ([around, 0], 0), "{case}");
        let room = if C::Database::POSTGRES {
            format!("DROP TRIGGER disk_full ON {table}")
        } else {
            "DROP TRIGGER disk_full".to_owned()
        };
        operator.run(&room).await.unwrap();
        let again = async |tx: &mut C::Tx<'_>| {
            let again = fixture.call_that_ends(tx, |tx| tx, "mine", End::Value);
            (again.await, Ended::Commit)
        };
        let (again, ended) = C::in_transaction(&mut conn, again).await;
        ended.expect("the server is up");
        assert_eq!(again, Some(Ok(runs + 1)), "{case}");
        assert_eq!(fixture.kept("mine").await, (1, 1), "{case}");
    }
}
