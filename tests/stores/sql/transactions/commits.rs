//! Connections that break during a call, at each of its moments, and commits that fail.

use idem_harness::TcpProxy;

use super::prelude::*;

on_each_server!(a_connection_that_breaks_at_each_moment);
mod another_client {
    use super::*;
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_breaks_at_each_moment() {
        super::a_connection_that_breaks_at_each_moment::<Tokio>().await;
    }
}
on!(postgres_only Postgres: a_commit_whose_reply_is_none_or_of_a_proxy_is_unknown);

mod deferred {
    use super::*;
    on!(sqlite Sqlite: a_commit_that_is_refused_leaves_nothing);
    on!(postgres Postgres: a_commit_that_is_refused_leaves_nothing);
}

/// A moment, and what the server has done.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// The server has executed the claim.
    ClaimReply,
    /// The body has written.
    Body,
    CompletionReply,
    /// The call has its answer, and its transaction is open.
    BeforeCommit,
    /// The same, and the server has ended the session.
    SessionEnded,
    /// The server has committed.
    CommitReply,
}

/// Each moment, the refusal in a transaction of the caller, that in one of idem, and whether the order is kept.
const MOMENTS: [(Moment, Option<ErrorKind>, Option<ErrorKind>, bool); 6] = [
    (Moment::ClaimReply, ABORTED, ABORTED, false),
    (Moment::Body, ABORTED, ABORTED, false),
    (Moment::CompletionReply, ABORTED, ABORTED, false),
    (Moment::BeforeCommit, None, ABORTED, false),
    (Moment::SessionEnded, None, ABORTED, false),
    (
        Moment::CommitReply,
        None,
        Some(ErrorKind::CommitUnknown),
        true,
    ),
];
const ABORTED: Option<ErrorKind> = Some(ErrorKind::TransactionAborted);

/// How often each moment is repeated, on other connections.
const TIMES: usize = 5;

/// A reply to a commit that is lost leaves the key with its answer, and every other loss leaves nothing.
async fn a_connection_that_breaks_at_each_moment<C: Client<Database: Server>>() {
    let fixture = Fixture::<C>::new().await;
    let server = C::Database::shared().expect("it has a server").addr();
    let proxy = TcpProxy::start(server);
    let url = fixture
        .place
        .url
        .replace(&server.to_string(), &proxy.addr().to_string());
    let sets_trap = |moment| match moment {
        Moment::ClaimReply => proxy.drop_next_reply_to("idem_records (record_key"),
        Moment::CompletionReply => proxy.drop_next_reply_to("idem_records SET"),
        Moment::CommitReply => proxy.drop_next_reply_to("COMMIT"),
        _ => {}
    };
    for (moment, of_caller, of_idem, kept) in MOMENTS {
        for time in 0..TIMES {
            for own in [false, true] {
                let key = &format!("{moment:?} {own} {time}");
                let run = fixture.runs.count() + u32::from(moment != Moment::ClaimReply);
                let mut conn = C::connect(&url).await;
                let work = async |conn: &mut C::Conn| match moment {
                    // The completion and the commit of idem follow the body at once.
                    Moment::BeforeCommit if !own => {}
                    Moment::SessionEnded if own => end_session(&fixture, conn).await,
                    Moment::Body | Moment::BeforeCommit => {
                        proxy.cut();
                    }
                    _ => {}
                };
                let (answer, expected) = if own {
                    sets_trap(moment);
                    let on = &mut conn;
                    let call = fixture.call_that_ends_after(on, |conn| conn, key, work, End::Value);
                    (call.await, &of_idem)
                } else {
                    let call = async |tx: &mut C::Conn| {
                        sets_trap(moment);
                        let call = fixture.call_that_ends_after(tx, |tx| tx, key, work, End::Value);
                        let answer = call.await;
                        match moment {
                            Moment::BeforeCommit => {
                                proxy.cut();
                            }
                            Moment::SessionEnded => end_session(&fixture, tx).await,
                            _ => {}
                        }
                        let commits = of_caller.is_none();
                        (answer, if commits { Ended::Commit } else { Ended::Drop })
                    };
                    let (answer, ended) = C::in_transaction(&mut conn, call).await;
                    if of_caller.is_none() {
                        ended.expect_err("its reply is lost");
                    }
                    (answer, &of_caller)
                };
                let answer = answer.expect("it ends");
                match expected {
                    None => assert_eq!(answer, Ok(run), "{key}"),
                    Some(kind) => {
                        let error = refusal(answer);
                        assert_eq!(error.kind(), kind, "{key}");
                        assert!(error.is_retryable(), "{key}");
                    }
                }
                drop(conn);
                let left = i64::from(kept);
                assert_eq!(fixture.orders(key).await, left, "{key}");
                let mut conn = C::connect(&fixture.place.url).await;
                let again = fixture.call_that_ends(&mut conn, |conn| conn, key, End::Value);
                let expected = if kept { run } else { run + 1 };
                assert_eq!(again.await, Some(Ok(expected)), "{key}");
                assert_eq!(fixture.orders(key).await, 1, "{key}");
            }
        }
    }
    assert_eq!(proxy.stats().dropped_replies, 3 * 2 * TIMES);
}

async fn a_commit_that_is_refused_leaves_nothing<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut conn = fixture.alone().await;
    let placed = "CREATE TABLE placed (shelf VARCHAR(100) \
                  REFERENCES shelves (name) DEFERRABLE INITIALLY DEFERRED)";
    D::execute(&mut conn, placed).await.done();
    let run = async |conn: &mut D::Conn| {
        let work = async |conn: &mut D::Conn| {
            D::execute(conn, "INSERT INTO placed VALUES ('a shelf')")
                .await
                .done();
        };
        let call = fixture.call_that_ends_after(conn, |conn| conn, "mine", work, End::Value);
        call.await.expect("it ends")
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

/// A commit has a deadline, like every other request, and a proxy answers for a lost server.
async fn a_commit_whose_reply_is_none_or_of_a_proxy_is_unknown<D: Database>() {
    for action in [
        "PERFORM pg_sleep(60)",
        "RAISE EXCEPTION 'server conn crashed?' USING ERRCODE = '08006'",
    ] {
        let fixture = Fixture::<D>::new().await;
        let mut conn = fixture.alone().await;
        let at_commit = format!(
            "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN {action}; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON orders \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()"
        );
        D::execute(&mut conn, &at_commit).await.done();
        let call = fixture.call_that_ends(&mut conn, |conn| conn, "mine", End::Value);
        let error = refusal(patiently("the call ends", call).await.unwrap());
        assert_eq!(*error.kind(), ErrorKind::CommitUnknown, "{action}");
    }
}
