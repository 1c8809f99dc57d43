//! The queue for the connections of a pool.
//!
//! Statements that end or keep a claim go first, because a claim that is not ended is an answer that is not stored, and
//! claims in front of it would add more of those. A claim that cannot be sent in time is refused before it is sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::priority::Priority;
use crate::store::pace::{Crowded, Pace, admits, crowded};

/// Reason why a statement got no permit.
#[derive(Debug)]
pub(super) enum NoPermit {
    /// The number of claims that wait already, and the time after which the queue is served.
    Refused {
        waiting: usize,
        retry_after: Duration,
    },
    /// No permit became free in time.
    TooLate,
}

/// The right to use a connection of a pool.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    queue: Arc<PermitQueue>,
    claims: bool,
}

#[derive(Debug)]
pub(super) struct PermitQueue {
    most: usize,
    /// The number of permits for claims and reads; the others are for endings.
    shared: usize,
    state: Mutex<PermitQueueState>,
}

type Waiters = VecDeque<oneshot::Sender<ConnectionPermit>>;

#[derive(Debug)]
struct PermitQueueState {
    used: usize,
    /// The number of used permits, without those of endings.
    used_by_claims: usize,
    endings: Waiters,
    claims: Waiters,
    pace: Pace,
}

impl PermitQueue {
    /// `reserved` of `most` permits are for endings alone.
    pub(super) fn new(most: usize, reserved: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            shared: most.saturating_sub(reserved).max(1),
            state: Mutex::new(PermitQueueState {
                used: 0,
                used_by_claims: 0,
                endings: Waiters::new(),
                claims: Waiters::new(),
                pace: Pace::new(Instant::now()),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, PermitQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn used(&self) -> usize {
        self.lock().used
    }

    /// Waits for a permit.
    ///
    /// Claims wait as long as their admission permits, reads for `patience` at most, endings without a limit.
    pub(super) async fn take(
        self: &Arc<Self>,
        priority: Priority<'_>,
        patience: Duration,
    ) -> Result<ConnectionPermit, NoPermit> {
        let claims = !matches!(priority, Priority::Ending);
        let (given, bound) = {
            let mut state = self.lock();
            let is_first = if claims {
                remove_dropped(&mut state.claims);
                state.claims.is_empty() && state.endings.is_empty()
            } else {
                state.endings.is_empty()
            };
            if is_first && self.has_room(&state, claims) {
                return Ok(self.grant(&mut state, claims));
            }
            let (give, given) = oneshot::channel();
            let bound = if claims {
                let (waiting, now) = (state.claims.len(), Instant::now());
                state.pace.joined(waiting, now);
                let bound = match priority {
                    Priority::Claim(admission) => admits(&state.pace, waiting, admission, now)?,
                    _ => patience,
                };
                state.claims.push_back(give);
                Some(bound)
            } else {
                state.endings.push_back(give);
                None
            };
            (given, bound)
        };
        let permit = match bound {
            None => given.await.ok(),
            Some(bound) => match timeout(bound, given).await {
                Ok(permit) => permit.ok(),
                Err(_) => None,
            },
        };
        match (permit, priority) {
            (Some(permit), _) => Ok(permit),
            (None, Priority::Claim(_)) => {
                let state = self.lock();
                let waiting = state.claims.len();
                Err(crowded(state.pace.wait(waiting, Instant::now()), waiting).into())
            }
            (None, _) => Err(NoPermit::TooLate),
        }
    }

    fn has_room(&self, state: &PermitQueueState, claims: bool) -> bool {
        state.used < self.most && (!claims || state.used_by_claims < self.shared)
    }

    fn grant(self: &Arc<Self>, state: &mut PermitQueueState, claims: bool) -> ConnectionPermit {
        state.used += 1;
        state.used_by_claims += usize::from(claims);
        ConnectionPermit {
            queue: Arc::clone(self),
            claims,
        }
    }

    /// Gives free permits to the queued statements.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let (give, claims) = if self.has_room(&state, false)
                && let Some(give) = state.endings.pop_front()
            {
                (give, false)
            } else if self.has_room(&state, true)
                && let Some(give) = state.claims.pop_front()
            {
                (give, true)
            } else {
                return;
            };
            if give.is_closed() {
                continue;
            }
            if claims {
                let waiting = state.claims.len();
                state.pace.left(1, waiting, Instant::now());
            }
            let permit = self.grant(&mut state, claims);
            drop(state);
            // If its future is dropped at this moment, the permit returns to the queue, and goes to the next statement.
            let returned = give.send(permit);
            drop(returned);
        }
    }
}

/// Removes dropped futures from the front of a queue.
fn remove_dropped(waiters: &mut Waiters) {
    while waiters.front().is_some_and(oneshot::Sender::is_closed) {
        waiters.pop_front();
    }
}

impl From<Crowded> for NoPermit {
    fn from(crowded: Crowded) -> Self {
        Self::Refused {
            waiting: crowded.waiting,
            retry_after: crowded.retry_after,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.used -= 1;
        state.used_by_claims -= usize::from(self.claims);
        drop(state);
        self.queue.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::{ConnectionPermit, NoPermit, PermitQueue, Priority};
    use crate::store::Admission;

    const LONG: Duration = Duration::from_hours(1);

    type Taking<'a> = Pin<Box<dyn Future<Output = Result<ConnectionPermit, NoPermit>> + 'a>>;

    fn poll(taking: &mut Taking<'_>) -> Option<Result<ConnectionPermit, NoPermit>> {
        match taking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    /// Queued, unless a permit is free.
    fn take<'a>(
        permits: &'a Arc<PermitQueue>,
        priority: Priority<'a>,
    ) -> (Taking<'a>, Option<ConnectionPermit>) {
        let mut taking: Taking<'a> = Box::pin(permits.take(priority, LONG));
        let permit = poll(&mut taking).map(|taken| taken.expect("a seat"));
        (taking, permit)
    }

    #[tokio::test]
    async fn endings_go_first() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let (_, first) = take(&permits, Priority::Claim(&admission));
        let (mut claim, none) = take(&permits, Priority::Claim(&admission));
        assert!(none.is_none());
        let (mut read, none) = take(&permits, Priority::Other);
        assert!(none.is_none());
        let (mut ending, none) = take(&permits, Priority::Ending);
        assert!(none.is_none());
        drop(first);
        assert!(poll(&mut claim).is_none() && poll(&mut read).is_none());
        let permit = poll(&mut ending).expect("it came last, and goes first");
        drop(permit);
        let permit = poll(&mut claim).expect("then the others, in their order");
        assert!(poll(&mut read).is_none());
        drop(permit);
        assert!(poll(&mut read).is_some());
    }

    #[tokio::test]
    async fn claims_leave_a_connection_to_endings() {
        let (permits, admission) = (PermitQueue::new(3, 1), Admission::new(LONG));
        let held = [(); 2].map(|()| {
            take(&permits, Priority::Claim(&admission))
                .1
                .expect("a seat")
        });
        let (mut claim, none) = take(&permits, Priority::Claim(&admission));
        assert!(none.is_none());
        let (_, ending) = take(&permits, Priority::Ending);
        assert!(ending.is_some());
        drop(ending);
        assert!(poll(&mut claim).is_none(), "the third is not for claims");
        drop(held);
        assert!(poll(&mut claim).is_some());
    }

    #[tokio::test]
    async fn a_permit_whose_statement_was_dropped_goes_to_the_next() {
        let permits = PermitQueue::new(1, 0);
        let (_, first) = take(&permits, Priority::Ending);
        let (leaves, _) = take(&permits, Priority::Ending);
        let (given, _) = take(&permits, Priority::Ending);
        let (mut next, _) = take(&permits, Priority::Ending);
        drop(leaves);
        drop(first);
        // Dropped after it got the permit, and before it was polled.
        drop(given);
        assert!(poll(&mut next).is_some());
        drop(next);
        assert_eq!(permits.used(), 0);
    }

    #[tokio::test]
    async fn a_claim_that_would_wait_too_long_is_refused_immediately() {
        let (permits, patient) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let (_, first) = take(&permits, Priority::Claim(&patient));
        let _second = take(&permits, Priority::Claim(&patient));
        let hurried = Admission::new(Duration::ZERO);
        let mut claim = pin!(permits.take(Priority::Claim(&hurried), LONG));
        let mut cx = Context::from_waker(Waker::noop());
        let refused = claim.as_mut().poll(&mut cx);
        assert!(
            matches!(
                refused,
                Poll::Ready(Err(NoPermit::Refused { waiting: 1, retry_after })) if !retry_after.is_zero()
            ),
            "{refused:?}"
        );
        assert!(!hurried.was_sent());
        drop(first);
    }

    #[tokio::test]
    async fn a_claim_whose_time_is_over_is_refused() {
        let (permits, admission) = (
            PermitQueue::new(1, 0),
            Admission::new(Duration::from_millis(2)),
        );
        let (_, first) = take(&permits, Priority::Ending);
        let refused = permits.take(Priority::Claim(&admission), LONG).await;
        assert!(
            matches!(refused, Err(NoPermit::Refused { .. })),
            "{refused:?}"
        );
        let late = permits
            .take(Priority::Other, Duration::from_millis(2))
            .await;
        assert!(matches!(late, Err(NoPermit::TooLate)), "{late:?}");
        drop(first);
        assert_eq!(permits.used(), 0);
    }
}
