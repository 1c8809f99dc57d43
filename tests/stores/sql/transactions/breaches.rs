//! Sessions of other clients that break the contract of a session.

use std::borrow::Cow;
use std::error::Error as _;

use idem_runtime::credentials::Credentials;
use idem_runtime::store::sql::{
    Dialect, SqlClient, SqlError, SqlFuture, SqlReceiver, SqlReply, SqlRow, SqlSession, SqlSource,
    SqlStatement, SqlStore,
};
use sqlx::SqliteConnection;

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Breach {
    /// Its count does not rise by a `begin`.
    BeginUncounted,
    /// A `rollback` that succeeds does not lower its count.
    RollbackUncounted,
    /// `in_step` fails after so many that have succeeded.
    StepsFail { after: usize },
    /// Its rows cannot be read, and it ignores the receiver's errors.
    RowsUnreadable,
}

/// A session of SQLite with one breach, and its further calls.
struct BreakingSession {
    conn: SqliteConnection,
    breach: Breach,
    calls: Vec<&'static str>,
    steps: usize,
}

impl BreakingSession {
    async fn connect(url: &str, breach: Breach) -> Self {
        Self {
            conn: SqliteConnection::connect(url).await.done(),
            breach,
            calls: Vec::new(),
            steps: 0,
        }
    }
}

impl SqlSession for BreakingSession {
    fn dialect(&self) -> &'static Dialect {
        self.conn.dialect()
    }

    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        if self.breach != Breach::RowsUnreadable {
            return self.conn.send(statement, receive);
        }
        Box::pin(async move {
            let mut ignoring = |reply: SqlReply<'_>| {
                let reply = match reply {
                    SqlReply::Row(row) => SqlReply::Row(&UnreadableRow(row.columns())),
                    done => done,
                };
                let _ = receive(reply);
                Ok(())
            };
            self.conn.send(statement, &mut ignoring).await
        })
    }

    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        self.conn.script(script, receive)
    }

    fn depth(&mut self) -> usize {
        match self.breach {
            Breach::BeginUncounted => 0,
            _ => self.conn.depth(),
        }
    }

    fn begin(&mut self) -> SqlFuture<'_, ()> {
        self.calls.push("begin");
        SqlSession::begin(&mut self.conn)
    }

    fn commit(&mut self) -> SqlFuture<'_, ()> {
        self.calls.push("commit");
        self.conn.commit()
    }

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        assert!(!self.calls.contains(&"rollback"), "it would never end");
        self.calls.push("rollback");
        match self.breach {
            Breach::RollbackUncounted => Box::pin(std::future::ready(Ok(()))),
            _ => self.conn.rollback(),
        }
    }

    fn start_rollback(&mut self) {
        self.calls.push("start_rollback");
        self.conn.start_rollback();
    }

    fn start_script(&mut self, script: String) {
        self.conn.start_script(script);
    }

    fn in_step(&mut self, _: usize) -> SqlFuture<'_, bool> {
        let step = match self.breach {
            Breach::StepsFail { after } if self.steps == after => {
                Err(SqlError::client("no reply to the question"))
            }
            _ => Ok(true),
        };
        self.steps += 1;
        Box::pin(std::future::ready(step))
    }

    fn close(&mut self) -> SqlFuture<'_, ()> {
        self.calls.push("close");
        Box::pin(std::future::ready(Ok(())))
    }
}

impl SqlTransaction for BreakingSession {
    fn session(&mut self) -> &mut dyn SqlSession {
        self
    }

    fn give_up(&mut self) {
        self.calls.push("give_up");
    }
}

/// A row with so many columns.
struct UnreadableRow(usize);

impl SqlRow for UnreadableRow {
    fn columns(&self) -> usize {
        self.0
    }

    fn int(&self, _: usize) -> Result<Option<i64>, SqlError> {
        Err(SqlError::client("a column of another type"))
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        self.int(column).map(|_| None)
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        self.int(column).map(|_| None)
    }
}

/// A client whose sessions have a breach.
struct BreakingClient(String, Breach);

impl SqlClient for BreakingClient {
    fn connect(&self, _: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
        Box::pin(async move { Ok(Box::new(BreakingSession::connect(&self.0, self.1).await) as _) })
    }
}

/// Each breach, its body's end and runs, and the session's calls.
const BREACHES: [(Breach, End, u32, &[&str]); 4] = [
    (
        Breach::BeginUncounted,
        End::Value,
        0,
        &["begin", "start_rollback", "give_up"],
    ),
    (
        Breach::RollbackUncounted,
        End::System,
        1,
        &["begin", "rollback", "start_rollback"],
    ),
    (STEP_FAILS, End::Value, 0, &["give_up", "close"]),
    // In a transaction of the caller, which the body ends, so that its answer cannot be stored.
    (
        LATER_STEP_FAILS,
        End::Value,
        1,
        &["begin", "give_up", "close"],
    ),
];
const STEP_FAILS: Breach = Breach::StepsFail { after: 0 };
const LATER_STEP_FAILS: Breach = Breach::StepsFail { after: 1 };

#[tokio::test]
async fn a_breach_leaves_no_transaction_and_no_usable_connection() {
    for (breach, end, runs, calls) in BREACHES {
        let fixture = Fixture::<Sqlite>::new().await;
        let mut session = BreakingSession::connect(&fixture.place.url, breach).await;
        let of_caller = breach == LATER_STEP_FAILS;
        if of_caller {
            SqlSession::begin(&mut session).await.unwrap();
        }
        let work = async |conn: &mut SqliteConnection| {
            if of_caller {
                Sqlite::execute(conn, "ROLLBACK").await.done();
            }
        };
        let call = fixture.call_that_ends_after(&mut session, beneath, "mine", work, end);
        let answer = call.await.expect("it ends");
        if end == End::System {
            assert_eq!(Some(answer), end.answer(1), "{breach:?}");
        } else {
            let error = refusal(answer);
            assert_aborted(&error);
            // That of `in_step`; the others have no cause but their own.
            let has_source = breach == STEP_FAILS;
            assert_eq!(error.source().is_some(), has_source, "{breach:?}");
        }
        assert_eq!(session.calls, calls, "{breach:?}");
        assert_eq!(fixture.runs.count(), runs, "{breach:?}");
        drop(session);
        assert_eq!(fixture.kept("mine").await, (0, 0), "{breach:?}");
    }
}

fn beneath(session: &mut BreakingSession) -> &mut SqliteConnection {
    &mut session.conn
}

#[tokio::test]
async fn a_record_that_a_session_cannot_read_is_not_absent() {
    let fixture = Fixture::<Sqlite>::new().await;
    assert_eq!(fixture.committed_as("mine").await, Ok(1));
    let client = BreakingClient(fixture.place.url.clone(), Breach::RowsUnreadable);
    let store = SqlStore::connect(SqlSource::<Sqlite>::new(client)).await;
    let engine = Engine::new(store.expect("its scripts are readable"));
    let entry = engine.operation("orders.create").key("mine").entry().await;
    let error = entry.expect_err("the record cannot be read");
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error}");
}
