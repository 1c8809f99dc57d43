//! Group commit: the statements of several calls in one transaction.
//!
//! The transaction takes one write of the disk.
//!
//! A statement that finds no other in progress is sent immediately, on a connection of its
//! [pool](crate::store::sql::pool), as without group commit. Otherwise it is queued, and the store's own thread takes
//! all statements that were queued while it wrote the previous batch. No caller receives a reply before the commit. The
//! thread does not belong to a caller, because a caller's thread that blocks or ends would delay all others.

mod batch;
mod gather;
mod message;
pub(crate) mod multi_row;
mod queue;
mod queued_statement;
mod writer_thread;

use std::sync::Arc;

use tokio::sync::oneshot;

use self::queue::{LoneWrite, WriteQueue};
use self::queued_statement::QueuedStatement;
use crate::store::pace::{Crowded, admits};
use crate::store::sql::argument::SqlArgument;
use crate::store::sql::queue::Priority;
use crate::store::sql::session::SqlClient;
use crate::store::sql::statement::Statement;
use crate::store::sql::statement::StatementOutcome;

/// The group commit of one store.
pub(crate) struct GroupCommit(Arc<WriteQueue>);

/// How a statement is sent.
pub(crate) enum WritePath<'g> {
    /// Alone; statements that arrive while this is held are queued.
    Alone(LoneWrite<'g>),
    /// In a batch.
    Queued(oneshot::Receiver<StatementOutcome>),
    /// Alone, because there is no thread.
    Unqueued,
    /// A claim that could not be written in time.
    Refused(Crowded),
}

impl GroupCommit {
    pub(crate) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self(WriteQueue::new(client))
    }

    /// Queues a statement, or lets it be sent alone.
    pub(crate) fn enter(
        &self,
        what: &'static str,
        priority: Priority<'_>,
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> WritePath<'_> {
        let mut state = self.0.lock();
        if let Some(lone) = self.0.lone_write(&mut state) {
            return WritePath::Alone(lone);
        }
        if !state.thread {
            // Without another thread it works as well, but slower.
            if writer_thread::start(&self.0).is_err() {
                return WritePath::Unqueued;
            }
            state.thread = true;
        }
        if let Priority::Claim(admission) = priority {
            let (waiting, now) = (state.claims.len(), std::time::Instant::now());
            state.pace.joined(waiting, now);
            if let Err(crowded) = admits(&state.pace, waiting, admission, now) {
                return WritePath::Refused(crowded);
            }
        }
        let (queued, reply) = QueuedStatement::new(what, statement, arguments);
        match priority {
            Priority::Ending => state.endings.push(queued),
            _ => state.claims.push(queued),
        }
        let enough = state.queued() >= state.wanted;
        drop(state);
        if enough {
            self.0.wake.notify_one();
        }
        WritePath::Queued(reply)
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

debug_fields!(GroupCommit {});

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::gather::GatherPause;
    use super::queue::Next;
    use super::*;
    use crate::credentials::Credentials;
    use crate::store::sql::dialect::StatementKind;
    use crate::store::sql::session::{SqlFuture, SqlSession};

    struct NoClient;

    impl SqlClient for NoClient {
        fn connect(&self, _: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
            unreachable!("there is no thread")
        }
    }

    /// A queue without a thread, with a lone write in progress and two queued statements.
    fn queued(group: &GroupCommit) -> LoneWrite<'_> {
        let statement = Statement::new(StatementKind::Execute, "", Vec::new());
        group.0.lock().thread = true;
        let enter = |what, priority| group.enter(what, priority, &statement, &[]);
        let WritePath::Alone(lone) = enter("first", Priority::Other) else {
            panic!("the first write is alone")
        };
        for (what, priority) in [
            ("a read", Priority::Other),
            ("a completion", Priority::Ending),
        ] {
            assert!(matches!(enter(what, priority), WritePath::Queued(_)));
        }
        lone
    }

    #[test]
    fn endings_are_written_first() {
        let group = GroupCommit::new(Arc::new(NoClient));
        drop(queued(&group));
        let next = group
            .0
            .next((0, Instant::now()), &mut GatherPause::default());
        let Next::Write(batch) = next else {
            panic!("no write is in progress")
        };
        let order: Vec<_> = batch.iter().map(|queued| queued.what).collect();
        assert_eq!(order, ["a completion", "a read"]);
    }

    #[test]
    fn a_lone_write_is_awaited_until_its_limit() {
        let group = GroupCommit::new(Arc::new(NoClient));
        let _lone = queued(&group);
        let now = Instant::now();
        let next = |lone, until| group.0.next((lone, until), &mut GatherPause::default());
        // Another one was awaited before, and its limit has passed.
        assert!(matches!(next(0, now), Next::AwaitLone(1)));
        assert!(matches!(
            next(1, now + Duration::from_hours(1)),
            Next::AwaitLone(1)
        ));
        assert!(matches!(next(1, now), Next::Write(_)));
    }
}
