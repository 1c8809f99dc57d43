//! Connections that break at each moment, and commits that fail.

use idem_harness::TcpProxy;

use super::prelude::*;

on_each_server!(
    a_transaction_of_the_caller_breaks_at_each_moment,
    a_transaction_of_idem_breaks_at_each_moment,
);
mod other_clients {
    use super::*;
    on_each_other_client_of_a_server!(a_transaction_of_the_caller_breaks_at_each_moment);
    mod counting {
        use super::*;
        on_each_counting_client!(a_transaction_of_idem_breaks_at_each_moment);
    }
}
on!(postgres_only Postgres: a_commit_whose_reply_is_none_or_of_a_proxy_is_unknown);

mod deferred {
    use super::*;
    on!(sqlite Sqlite: a_commit_that_is_refused_leaves_nothing);
    on!(postgres Postgres: a_commit_that_is_refused_leaves_nothing);
}

/// A moment, and the server's progress.
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

/// Each moment, the refusals in both transactions, and the order's fate.
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

/// A shop whose connections break by a proxy before its server.
struct Breaking<C: Client> {
    fixture: Fixture<C>,
    proxy: TcpProxy,
    /// The database behind the proxy.
    url: String,
}

impl<C: Client<Database: Server>> Breaking<C> {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        let server = C::Database::shared().expect("it has a server").addr();
        let proxy = TcpProxy::start(server);
        let url = fixture
            .place
            .url
            .replace(&server.to_string(), &proxy.addr().to_string());
        Self {
            fixture,
            proxy,
            url,
        }
    }

    /// Loses a reply of the server, at moments that await one.
    fn set_trap(&self, moment: Moment) {
        match moment {
            Moment::ClaimReply => self.proxy.drop_next_reply_to("idem_records (record_key"),
            Moment::CompletionReply => self.proxy.drop_next_reply_to("idem_records SET"),
            Moment::CommitReply => self.proxy.drop_next_reply_to("COMMIT"),
            _ => {}
        }
    }

    /// A call of this key, whose body breaks the connection.
    async fn call<T: SqlTransaction + Sql>(
        &self,
        tx: &mut T,
        key: &str,
        breaks: impl Fn() -> Option<Moment>,
    ) -> Answer {
        let work = async |conn: &mut T| match breaks() {
            Some(Moment::SessionEnded) => end_session(&self.fixture, conn).await,
            Some(_) => {
                self.proxy.cut();
            }
            None => {}
        };
        let call = self
            .fixture
            .call_that_ends_after(tx, |tx| tx, key, work, End::Value);
        call.await.expect("it ends")
    }

    /// Checks the rest of a broken call, and its repeat elsewhere.
    async fn assert_left(&self, key: &str, (answer, run): (Answer, u32), expected: &Expected) {
        let (kind, kept) = expected;
        match kind {
            None => assert_eq!(answer, Ok(run), "{key}"),
            Some(kind) => {
                let error = refusal(answer);
                assert_eq!(error.kind(), kind, "{key}");
                assert!(error.is_retryable(), "{key}");
            }
        }
        assert_eq!(self.fixture.orders(key).await, i64::from(*kept), "{key}");
        let mut conn = C::connect(&self.fixture.place.url).await;
        let again = async |tx: &mut C::Tx<'_>| {
            let again = self
                .fixture
                .call_that_ends(tx, |tx| tx, key, End::Value)
                .await;
            (again, Ended::Commit)
        };
        let (again, ended) = C::in_transaction(&mut conn, again).await;
        ended.expect("the server is up");
        let expected = if *kept { run } else { run + 1 };
        assert_eq!(again, Some(Ok(expected)), "{key}");
        assert_eq!(self.fixture.orders(key).await, 1, "{key}");
    }

    fn next_run(&self, moment: Moment) -> u32 {
        self.fixture.runs.count() + u32::from(moment != Moment::ClaimReply)
    }
}

/// The refusal, and whether the order is kept.
type Expected = (Option<ErrorKind>, bool);

/// A lost reply to a commit leaves the key with its answer. Every other loss leaves nothing.
async fn a_transaction_of_the_caller_breaks_at_each_moment<C: Client<Database: Server>>() {
    let breaking = Breaking::<C>::new().await;
    for (moment, refusal, _, kept) in MOMENTS {
        for time in 0..TIMES {
            let key = &format!("{moment:?} {time}");
            let run = breaking.next_run(moment);
            let mut conn = C::connect(&breaking.url).await;
            let work = async |tx: &mut C::Tx<'_>| {
                breaking.set_trap(moment);
                let breaks = || (moment == Moment::Body).then_some(moment);
                let answer = breaking.call(tx, key, breaks).await;
                match moment {
                    Moment::BeforeCommit => {
                        breaking.proxy.cut();
                    }
                    Moment::SessionEnded => end_session(&breaking.fixture, tx).await,
                    _ => {}
                }
                let commits = refusal.is_none();
                (answer, if commits { Ended::Commit } else { Ended::Drop })
            };
            let (answer, ended) = C::in_transaction(&mut conn, work).await;
            if refusal.is_none() {
                ended.expect_err("its reply is lost");
            }
            drop(conn);
            let expected = (refusal.clone(), kept);
            breaking.assert_left(key, (answer, run), &expected).await;
        }
    }
    assert_eq!(breaking.proxy.stats().dropped_replies, 3 * TIMES);
}

/// The same, where idem begins and commits the transaction.
async fn a_transaction_of_idem_breaks_at_each_moment<C>()
where
    C: Client<Database: Server, Conn: SqlTransaction>,
{
    let breaking = Breaking::<C>::new().await;
    for (moment, _, refusal, kept) in MOMENTS {
        for time in 0..TIMES {
            let key = &format!("{moment:?} {time}");
            let run = breaking.next_run(moment);
            let mut conn = C::connect(&breaking.url).await;
            breaking.set_trap(moment);
            // The completion and the commit follow the body at once.
            let in_body = [Moment::Body, Moment::BeforeCommit, Moment::SessionEnded];
            let breaks = || in_body.contains(&moment).then_some(moment);
            let answer = breaking.call(&mut conn, key, breaks).await;
            drop(conn);
            let expected = (refusal.clone(), kept);
            breaking.assert_left(key, (answer, run), &expected).await;
        }
    }
    assert_eq!(breaking.proxy.stats().dropped_replies, 3 * TIMES);
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

/// A commit has a deadline, like every request. A proxy answers for a lost server.
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
