//! Commits that fail, that lose their reply, or that never come, and sessions that end during a call.

use idem_harness::TcpProxy;
use idem_runtime::store::sql::Postgres;
use tokio::sync::Barrier;

use crate::prelude::*;

/// Calls on a connection that idem commits on, and makes an order of the key's name.
async fn order<D: Database>(fixture: &Fixture<D>, conn: &mut D::Conn, key: &str) -> Answer {
    let call = fixture.call(key).in_tx(conn);
    call.run(async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, key).await)
        .await
}

/// Ends the session with this id, and waits until it is gone.
async fn end<D: Database>(fixture: &Fixture<D>, session: i64) {
    let mut conn = fixture.connection().await;
    D::execute(&mut conn, &D::end_session(session)).await.done();
    session_ends(fixture, session).await;
}

pub(crate) async fn a_session_that_ends_before_the_commit_leaves_nothing<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let session = D::number(&mut tx, D::SESSION).await.done();
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    end(&fixture, session).await;
    D::commit(tx).await.expect_err("the session is gone");
    assert_eq!(fixture.kept("mine").await, (0, 0));
    assert_eq!(fixture.committed(fixture.order()).await, Ok(2));
    assert_eq!(fixture.kept("mine").await, (1, 1));
}

/// The session is ended while the body runs; another caller runs, and then the body ends.
pub(crate) async fn a_zombie_cannot_finish<D: Database>() {
    for own in [false, true] {
        let fixture = Arc::new(Fixture::<D>::new().await);
        let body = async |conn: &mut D::Conn| -> Answer {
            let session = D::number(conn, D::SESSION).await?;
            insert::<D>(conn, "zombie").await?;
            end(&fixture, session).await;
            let fixture = Arc::clone(&fixture);
            let other = tokio::spawn(async move {
                let mut tx = fixture.begin().await;
                let answer = fixture.ordered(&mut tx).await;
                D::commit(tx).await.done();
                answer
            });
            assert_eq!(patiently("another runs", other).await.unwrap(), Ok(1));
            Ok(666)
        };
        let mut conn = fixture.alone().await;
        let answer = if own {
            let call = fixture.order().in_tx(&mut conn);
            call.run(async |conn: &mut D::Conn, _| body(conn).await)
                .await
        } else {
            let mut tx = fixture.begin().await;
            let call = fixture.order().in_tx(&mut tx);
            let answer = call.run(async |tx: &mut D::Tx, _| body(tx).await).await;
            D::commit(tx).await.expect_err("the session is gone");
            answer
        };
        assert_aborted(&refusal(answer));
        assert_eq!(fixture.orders_of(["zombie", "mine"]).await, [0, 1]);
        assert_eq!(fixture.replayed(fixture.order()).await, Ok(1));
    }
}

/// A proxy in front of the server, and connections through it.
struct Far {
    proxy: TcpProxy,
    url: String,
}

impl Far {
    fn new<D: Database>(fixture: &Fixture<D>) -> Self {
        let server = D::server().expect("it has a server").addr();
        let proxy = TcpProxy::start(server);
        let at = proxy.addr().to_string();
        let url = fixture.place.url.replace(&server.to_string(), &at);
        Self { proxy, url }
    }

    async fn connect<D: Database>(&self) -> D::Conn {
        let options = D::options(&self.url);
        <D::Conn as Connection>::connect_with(&options).await.done()
    }
}

const TIMES: usize = 50;

/// Every second commit was executed, but no caller received its reply.
pub(crate) async fn lost_replies_to_commits_of_the_caller<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let far = Far::new(&fixture);
    for time in 0..TIMES {
        let key = format!("order-{time}");
        let mut conn = far.connect::<D>().await;
        let mut tx = conn.begin().await.done();
        let run = fixture.runs.count() + 1;
        let on: &mut D::Conn = &mut tx;
        assert_eq!(order(&fixture, on, &key).await, Ok(run));
        let arrives = time % 2 == 0;
        if arrives {
            far.proxy.drop_next_reply_to("COMMIT");
        } else {
            far.proxy.cut();
        }
        tx.commit().await.expect_err("its reply is lost");
        let mut conn = fixture.connection().await;
        let again = order(&fixture, &mut conn, &key).await;
        assert_eq!(again, Ok(if arrives { run } else { run + 1 }));
        assert_eq!(fixture.orders(&key).await, 1);
    }
    assert_eq!(far.proxy.stats().dropped_replies, TIMES / 2);
    assert_eq!(fixture.runs.count() as usize, TIMES + TIMES / 2);
}

pub(crate) async fn lost_replies_to_commits_of_idem<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let far = Far::new(&fixture);
    for time in 0..TIMES {
        let key = format!("order-{time}");
        let mut conn = far.connect::<D>().await;
        let run = fixture.runs.count() + 1;
        let arrives = time % 2 == 0;
        if arrives {
            far.proxy.drop_next_reply_to("COMMIT");
        }
        let call = fixture.call(&key).in_tx(&mut conn);
        let answer = call.run(async |conn: &mut D::Conn, _| {
            let made = make::<D>(conn, &fixture.runs, &key).await;
            if !arrives {
                far.proxy.cut();
            }
            made
        });
        let error = refusal(answer.await);
        let kind = if arrives {
            ErrorKind::CommitUnknown
        } else {
            ErrorKind::TransactionAborted
        };
        assert_eq!(*error.kind(), kind, "{error}");
        assert!(error.is_retryable());
        let mut conn = fixture.connection().await;
        let again = order(&fixture, &mut conn, &key).await;
        assert_eq!(again, Ok(if arrives { run } else { run + 1 }));
        assert_eq!(fixture.orders(&key).await, 1);
    }
    assert_eq!(far.proxy.stats().dropped_replies, TIMES / 2);
}

pub(crate) async fn a_lost_reply_to_the_completion<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let far = Far::new(&fixture);
    let mut conn = far.connect::<D>().await;
    let mut tx = conn.begin().await.done();
    far.proxy.drop_next_reply_to("idem_records SET");
    let on: &mut D::Conn = &mut tx;
    assert_aborted(&refusal(order(&fixture, on, "order-7").await));
    drop(tx);
    let mut conn = fixture.connection().await;
    assert_eq!(order(&fixture, &mut conn, "order-7").await, Ok(2));
    assert_eq!(fixture.kept("order-7").await, (1, 1));
}

pub(crate) async fn a_lost_reply_to_the_claim<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let far = Far::new(&fixture);
    let mut conn = far.connect::<D>().await;
    far.proxy.drop_next_reply_to("idem_records (record_key");
    let error = refusal(order(&fixture, &mut conn, "order-7").await);
    assert_aborted(&error);
    let mut conn = fixture.connection().await;
    assert_eq!(order(&fixture, &mut conn, "order-7").await, Ok(1));
    assert_eq!(fixture.kept("order-7").await, (1, 1));
}

pub(crate) async fn a_commit_that_is_refused_leaves_nothing<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let placed = "CREATE TABLE placed (shelf VARCHAR(100) \
                  REFERENCES shelves (name) DEFERRABLE INITIALLY DEFERRED)";
    D::execute(&mut conn, placed).await.done();
    let run = async |conn: &mut D::Conn| -> Answer {
        let call = fixture.order().in_tx(conn);
        call.run(async |conn: &mut D::Conn, _| {
            let made = make::<D>(conn, &fixture.runs, "mine").await;
            D::execute(conn, "INSERT INTO placed VALUES ('a shelf')").await?;
            made
        })
        .await
    };
    assert_aborted(&refusal(run(&mut conn).await));
    insert::<D>(&mut conn, "after").await.done();
    assert_eq!(fixture.orders_of(["mine", "after"]).await, [0, 1]);
    assert_eq!(fixture.records().await, 0);
    D::execute(&mut conn, "INSERT INTO shelves VALUES ('a shelf', 1)")
        .await
        .done();
    assert_eq!(run(&mut conn).await, Ok(2));
    assert_eq!(fixture.kept("mine").await, (1, 1));
}

/// A database that detects a deadlock may undo the whole transaction, not the statement alone. A caller that then
/// commits the rest must not believe that the transaction is complete.
pub(crate) async fn a_body_that_deadlocks_loses_nothing_silently<D: Database>() {
    for business in [false, true] {
        let fixture = Arc::new(Fixture::<D>::new().await);
        fixture.shelves().await;
        let both = Arc::new(Barrier::new(2));
        let strong = tokio::spawn(strong(Arc::clone(&fixture), Arc::clone(&both)));
        let mut tx = fixture.begin().await;
        insert::<D>(&mut tx, "before").await.done();
        let call = fixture.order().in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, _| -> Answer {
            let error = is_victim::<D>(tx, &both).await?;
            Err(if business {
                OrderError::SoldOut { run: 1 }
            } else {
                error.into()
            })
        });
        let answer = patiently("the deadlock is found", answer).await;
        match answer {
            Err(OrderError::Idem(error)) => {
                assert_aborted(&error);
                D::rollback(tx).await.ok();
            }
            Err(_) => {
                D::commit(tx).await.done();
                assert_eq!(fixture.orders("before").await, 1);
            }
            Ok(_) => panic!("{answer:?}"),
        }
        patiently("the other one ends", strong).await.unwrap();
    }
}

/// Runs this PL/pgSQL at the commit of each transaction that makes an order.
async fn at_commit(fixture: &Fixture<Postgres>, action: &str) {
    let trigger = format!(
        "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN {action}; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON orders \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()"
    );
    let mut conn = fixture.connection().await;
    Postgres::execute(&mut conn, &trigger).await.done();
}

async fn assert_commit_unknown(fixture: &Fixture<Postgres>) {
    let mut conn = fixture.alone().await;
    let answer = patiently("the call ends", order(fixture, &mut conn, "mine")).await;
    let error = refusal(answer);
    assert_eq!(*error.kind(), ErrorKind::CommitUnknown);
}

/// A commit without a reply has a deadline, like every other request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_a_reply_is_unknown_in_time() {
    let fixture = Fixture::<Postgres>::new().await;
    at_commit(&fixture, "PERFORM pg_sleep(60)").await;
    assert_commit_unknown(&fixture).await;
}

/// A proxy answers for a lost server; the result of its commit is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_server_was_lost_behind_a_proxy_is_unknown() {
    let fixture = Fixture::<Postgres>::new().await;
    let lost = "RAISE EXCEPTION 'server conn crashed?' USING ERRCODE = '08006'";
    at_commit(&fixture, lost).await;
    assert_commit_unknown(&fixture).await;
}
