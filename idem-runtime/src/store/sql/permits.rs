//! The queue for the connections of a pool.
//!
//! Statements that end or keep a claim go first, because a claim that is not ended is an answer that is not stored, and
//! claims in front of it would add more of those. A claim that cannot be sent in time is refused before it is sent.
//!
//! A statement that leaves the queue may take others along that wait there, and is then sent for all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::priority::Priority;
use super::write_batch::queued_call::{BatchMember, QueuedCall, TakenCall};
use crate::store::Admission;
use crate::store::pace::{Crowded, Pace, admits, crowded};

/// The number of waiting statements that a batch passes over at most.
///
/// Many may wait with one key, of which a batch has one.
const MAX_PASSED: usize = 64;

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
    /// Its statement waited, and is not counted yet as one that left.
    waited: bool,
}

/// How a statement goes on that has waited.
#[derive(Debug)]
pub(super) enum Turn {
    /// It is sent, and may take others along if it is a queued call.
    Permit(ConnectionPermit, Option<QueuedCall>),
    /// Another statement has taken it along.
    Taken(TakenCall),
}

#[derive(Debug)]
pub(super) struct PermitQueue {
    most: usize,
    /// The number of permits for claims and reads; the others are for endings.
    shared: usize,
    state: Mutex<PermitQueueState>,
}

type Waiters = VecDeque<Waiter>;

/// A statement that waits.
#[derive(Debug)]
struct Waiter {
    wake: oneshot::Sender<Turn>,
    call: Option<QueuedCall>,
}

/// The future's side of a [`Waiter`].
struct Waiting<'a> {
    turn: oneshot::Receiver<Turn>,
    claim: Option<&'a Admission>,
    since: Instant,
}

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
        call: impl FnOnce() -> Option<QueuedCall>,
    ) -> Result<Turn, NoPermit> {
        let claims = !matches!(priority, Priority::Ending);
        let (mut waiting, bound) = {
            let mut state = self.lock();
            let is_first = if claims {
                remove_dropped(&mut state.claims);
                state.claims.is_empty() && state.endings.is_empty()
            } else {
                state.endings.is_empty()
            };
            if is_first && self.has_room(&state, claims) {
                return Ok(Turn::Permit(self.grant(&mut state, claims), None));
            }
            let now = Instant::now();
            let (wake, turn) = oneshot::channel();
            let mut waiting = Waiting {
                turn,
                claim: None,
                since: now,
            };
            let bound = if claims {
                let others = state.claims.len();
                state.pace.joined(others, now);
                let bound = match priority {
                    Priority::Claim(admission) => {
                        waiting.claim = Some(admission);
                        admits(&state.pace, others, admission, now)?
                    }
                    _ => patience,
                };
                state.claims.push_back(Waiter { wake, call: call() });
                Some(bound)
            } else {
                state.endings.push_back(Waiter { wake, call: call() });
                None
            };
            (waiting, bound)
        };
        let turn = match bound {
            None => (&mut waiting.turn).await.ok(),
            Some(bound) => match timeout(bound, &mut waiting.turn).await {
                Ok(turn) => turn.ok(),
                Err(_) => waiting.close(),
            },
        };
        match (turn, priority) {
            (Some(turn), _) => Ok(turn),
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
            waited: false,
        }
    }

    /// Gives free permits to the queued statements.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let (waiter, claims) = if self.has_room(&state, false)
                && let Some(waiter) = state.endings.pop_front()
            {
                (waiter, false)
            } else if self.has_room(&state, true)
                && let Some(waiter) = state.claims.pop_front()
            {
                (waiter, true)
            } else {
                return;
            };
            if waiter.wake.is_closed() {
                continue;
            }
            let mut permit = self.grant(&mut state, claims);
            permit.waited = true;
            drop(state);
            // If its future is dropped at this moment, the permit returns to the queue, and goes to the next statement.
            let returned = waiter.wake.send(Turn::Permit(permit, waiter.call));
            drop(returned);
        }
    }
}

/// Removes dropped futures from the front of a queue.
fn remove_dropped(waiters: &mut Waiters) {
    while (waiters.front()).is_some_and(|waiter| waiter.wake.is_closed()) {
        waiters.pop_front();
    }
}

/// Takes those out of a queue that can be sent together with this call.
fn take_joining(
    waiters: &mut Waiters,
    first: &QueuedCall,
) -> Vec<(QueuedCall, oneshot::Sender<Turn>)> {
    let mut taken: Vec<(QueuedCall, oneshot::Sender<Turn>)> = Vec::new();
    let mut index = 0;
    while index < waiters.len().min(MAX_PASSED) {
        let call = waiters[index].call.as_ref();
        if !call.is_some_and(|call| call.joins(first, &taken)) {
            index += 1;
        } else if let Some(waiter) = waiters.remove(index)
            && let Some(call) = waiter.call
            && !waiter.wake.is_closed()
        {
            taken.push((call, waiter.wake));
        }
    }
    taken
}

impl ConnectionPermit {
    /// Takes waiting calls along with this one, which has the permit.
    ///
    /// `None`: it goes alone.
    pub(super) fn take_along(
        &mut self,
        first: Option<QueuedCall>,
    ) -> Option<(Vec<BatchMember>, TakenCall)> {
        let taken = self.leave(first.as_ref());
        let at = Instant::now();
        let mut batch = Vec::new();
        for (call, wake) in taken {
            let (member, taken) = call.join(at);
            // Its future may have been dropped at this moment.
            if wake.send(Turn::Taken(taken)).is_ok() {
                batch.push(member);
            }
        }
        let (member, taken) = first.filter(|_| !batch.is_empty())?.join(at);
        batch.push(member);
        Some((batch, taken))
    }

    /// Counts its statement, and those that go with it, as claims that left the queue.
    fn leave(&mut self, first: Option<&QueuedCall>) -> Vec<(QueuedCall, oneshot::Sender<Turn>)> {
        if !std::mem::take(&mut self.waited) {
            return Vec::new();
        }
        let mut state = self.queue.lock();
        let waiters = if self.claims {
            &mut state.claims
        } else {
            &mut state.endings
        };
        let taken = first.map_or_else(Vec::new, |first| take_joining(waiters, first));
        if self.claims {
            let waiting = state.claims.len();
            (state.pace).left(1 + taken.len(), waiting, Instant::now());
        }
        taken
    }
}

impl Waiting<'_> {
    /// The turn that arrived at the last moment.
    fn close(&mut self) -> Option<Turn> {
        self.turn.close();
        self.turn.try_recv().ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // The statement of another may have claimed for it already.
        if let Some(Turn::Taken(taken)) = self.close()
            && let Some(admission) = self.claim
        {
            admission.sent_after(taken.at.saturating_duration_since(self.since));
        }
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
        self.leave(None);
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

    use super::{ConnectionPermit, NoPermit, PermitQueue, Priority, Turn};
    use crate::store::Admission;
    use crate::store::sql::argument::Argument;
    use crate::store::sql::statement::{BatchStatement, Statement, StatementKind};
    use crate::store::sql::write_batch::queued_call::QueuedCall;

    const LONG: Duration = Duration::from_secs(60 * 60);

    type Taking<'a> = Pin<Box<dyn Future<Output = Result<Turn, NoPermit>> + 'a>>;

    /// The permit, if there is one.
    fn poll(taking: &mut Taking<'_>) -> Option<ConnectionPermit> {
        match poll_turn(taking)? {
            Turn::Permit(permit, _) => Some(permit),
            Turn::Taken(_) => panic!("it was taken along"),
        }
    }

    fn poll_turn(taking: &mut Taking<'_>) -> Option<Turn> {
        match taking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(turn) => Some(turn.expect("a seat")),
            Poll::Pending => None,
        }
    }

    /// Queued, unless a permit is free.
    fn take<'a>(
        permits: &'a Arc<PermitQueue>,
        priority: Priority<'a>,
    ) -> (Taking<'a>, Option<ConnectionPermit>) {
        queue(permits, priority, None)
    }

    fn queue<'a>(
        permits: &'a Arc<PermitQueue>,
        priority: Priority<'a>,
        call: Option<QueuedCall>,
    ) -> (Taking<'a>, Option<ConnectionPermit>) {
        let mut taking: Taking<'a> = Box::pin(permits.take(priority, LONG, || call));
        let permit = poll(&mut taking);
        (taking, permit)
    }

    /// A statement whose batches have arguments of so many bytes at most.
    fn statement(most_bytes: usize) -> Statement {
        let of = |batch| Statement {
            text: "".into(),
            order: Arc::default(),
            kind: StatementKind::Execute,
            is_known: false.into(),
            #[cfg(feature = "sqlite")]
            multi_row: None,
            batch,
        };
        let batch = BatchStatement {
            statement: of(None),
            most_bytes,
        };
        of(Some(Arc::new(batch)))
    }

    fn call(statement: &Statement, key: usize, bytes: usize) -> Option<QueuedCall> {
        let (key, body) = (key.to_be_bytes(), vec![0; bytes]);
        QueuedCall::new(statement, &[Argument::Bytes(&key), Argument::Bytes(&body)])
    }

    /// Queues calls of these keys behind a statement that has the only permit, and ends that: the number of calls in
    /// the batch of the first, and the others.
    fn first_batch<'a>(
        permits: &'a Arc<PermitQueue>,
        admission: &'a Admission,
        calls: impl IntoIterator<Item = Option<QueuedCall>>,
    ) -> (usize, Vec<Taking<'a>>) {
        let (_, before) = take(permits, Priority::Ending);
        let claim = Priority::Claim(admission);
        let mut waiting: Vec<_> = (calls.into_iter())
            .map(|call| queue(permits, claim, call).0)
            .collect();
        drop(before);
        let Some(Turn::Permit(mut permit, call)) = poll_turn(&mut waiting.remove(0)) else {
            panic!("the first has the permit");
        };
        let batch = permit.take_along(call);
        (batch.map_or(1, |(batch, _)| batch.len()), waiting)
    }

    fn is_taken(taking: &mut Taking<'_>) -> bool {
        matches!(poll_turn(taking), Some(Turn::Taken(_)))
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
        let mut claim = pin!(permits.take(Priority::Claim(&hurried), LONG, || None));
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
        let refused = permits
            .take(Priority::Claim(&admission), LONG, || None)
            .await;
        assert!(
            matches!(refused, Err(NoPermit::Refused { .. })),
            "{refused:?}"
        );
        let late = permits
            .take(Priority::Other, Duration::from_millis(2), || None)
            .await;
        assert!(matches!(late, Err(NoPermit::TooLate)), "{late:?}");
        drop(first);
        assert_eq!(permits.used(), 0);
    }

    #[tokio::test]
    async fn a_statement_takes_those_along_that_wait_behind_it() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let (claim, other) = (statement(1 << 20), statement(1 << 20));
        let calls = [
            call(&claim, 1, 10),
            call(&claim, 2, 10),
            call(&other, 3, 10),
            call(&claim, 2, 10),
            None,
            call(&claim, 4, 10),
        ];
        let (batch, mut waiting) = first_batch(&permits, &admission, calls);
        assert_eq!(batch, 3);
        let taken: Vec<_> = waiting.iter_mut().map(is_taken).collect();
        // Not the other statement, the second claim of a key, nor a statement that is always sent alone.
        assert_eq!(taken, [true, false, false, false, true]);
    }

    #[tokio::test]
    async fn a_batch_is_bounded_in_calls_and_in_bytes() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let claim = statement(1 << 20);
        let calls = (0..100).map(|key| call(&claim, key, 16_000));
        assert_eq!(first_batch(&permits, &admission, calls).0, 64);
        assert!(call(&claim, 1, 16_384).is_none(), "it is sent alone");
    }

    #[tokio::test]
    async fn claims_of_one_key_are_not_passed_over_without_end() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let claim = statement(1 << 20);
        let same = (0..100).map(|_| call(&claim, 1, 10));
        let (batch, _waiting) =
            first_batch(&permits, &admission, same.chain([call(&claim, 2, 10)]));
        assert_eq!(batch, 1);
    }

    #[tokio::test]
    async fn a_claim_in_a_batch_counts_as_sent_though_its_future_is_dropped() {
        let permits = PermitQueue::new(1, 0);
        let [first, second, third] = [(); 3].map(|()| Admission::new(LONG));
        let claim = statement(1 << 20);
        let (_, before) = take(&permits, Priority::Ending);
        let queue =
            |admission, key| queue(&permits, Priority::Claim(admission), call(&claim, key, 10)).0;
        let mut leads = queue(&first, 1);
        let (drops, leaves) = (queue(&second, 2), queue(&third, 3));
        drop(leaves);
        drop(before);
        let Some(Turn::Permit(mut permit, call)) = poll_turn(&mut leads) else {
            panic!("the first has the permit");
        };
        let (batch, _taken) = permit.take_along(call).expect("a batch");
        assert_eq!(batch.len(), 2, "one had left before");
        drop(drops);
        assert!(second.was_sent() && !third.was_sent());
    }

    #[tokio::test]
    async fn a_future_that_is_dropped_with_its_permit_leaves_the_others_queued() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let claim = statement(1 << 20);
        let (_, before) = take(&permits, Priority::Ending);
        let queue = |key| queue(&permits, Priority::Claim(&admission), call(&claim, key, 10)).0;
        let (leads, mut second, mut third) = (queue(1), queue(2), queue(3));
        drop(before);
        drop(leads);
        let Some(Turn::Permit(mut permit, call)) = poll_turn(&mut second) else {
            panic!("it has the permit now");
        };
        assert_eq!(permit.take_along(call).expect("a batch").0.len(), 2);
        assert!(is_taken(&mut third));
    }

    #[tokio::test]
    async fn the_claims_of_a_batch_are_counted_together() {
        let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
        let claim = statement(1 << 20);
        let (_, before) = take(&permits, Priority::Ending);
        let mut waiting: Vec<_> = (0..128)
            .map(|key| queue(&permits, Priority::Claim(&admission), call(&claim, key, 10)).0)
            .collect();
        std::thread::sleep(Duration::from_millis(64));
        drop(before);
        let Some(Turn::Permit(mut permit, call)) = poll_turn(&mut waiting[0]) else {
            panic!("the first has the permit");
        };
        assert_eq!(permit.take_along(call).expect("a batch").0.len(), 64);
        let state = permits.lock();
        let wait = state.pace.wait(64, std::time::Instant::now());
        assert!(
            wait >= Duration::from_millis(60),
            "{wait:?} for another batch"
        );
    }
}
