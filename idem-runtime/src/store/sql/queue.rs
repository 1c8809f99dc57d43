//! The queue for the connections of a pool.
//!
//! Statements that end or keep a claim go first, because a claim that is not ended is an answer that is not stored, and
//! claims in front of it would add more of those. A claim that cannot be sent in time is refused before it is sent.
//!
//! A limited number of reads is in flight. A statement that leaves the queue may take others along that wait there, and
//! is then sent for all of them: see [`batch`](super::batch).
//!
//! A queue of writes has one permit. A thread takes all statements along that wait for it: see `sqlite::group_commit`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::queued_call::QueuedCall;
use super::statement::StatementOutcome;
use crate::store::Admission;
use crate::store::pace::{Crowded, Pace, admits, crowded};

/// The number of waiting statements that a batch passes over at most.
///
/// Many may wait with one key, of which a batch has one.
const MAX_PASSED: usize = 64;

/// The reads in flight from which on further reads are batched.
const MAX_READING: usize = 4;

/// The purpose of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priority<'a> {
    /// It ends or keeps a claim. It is served first and never refused.
    Ending,
    /// It claims. It is refused if it cannot be sent in time.
    Claim(&'a Admission),
    /// It reads, or works for an operator. It is served after endings, and bounded by the response time-out.
    Other,
}

impl Priority<'_> {
    /// The priority of the next statement. A claim that has sent one continues as an ending.
    pub(super) fn of_next(self) -> Self {
        match self {
            Self::Claim(admission) if admission.was_sent() => Self::Ending,
            priority => priority,
        }
    }
}

/// Reason why a statement got no permit.
#[derive(Debug)]
pub(super) enum NoPermit {
    Refused(Crowded),
    /// No permit became free in time.
    TooLate,
}

/// The permits that a statement can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// Every permit.
    Endings,
    /// The permits that are not reserved for endings.
    Claims,
    /// The permits of claims, [`MAX_READING`] at a time.
    Reads,
}

/// The right to use a connection of a pool.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    queue: Arc<PermitQueue>,
    share: Share,
    /// Its statement waited, and is not counted yet as served.
    waited: bool,
}

/// How a statement goes on that has waited.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is sent once, and most are outcomes"
)]
pub(super) enum Turn {
    /// It is sent; a queued call may take others along.
    Permit(ConnectionPermit, Option<QueuedCall>),
    /// Another statement has taken it along: its part of the reply.
    Outcome(StatementOutcome),
    /// Another statement took it along, and failed or is silent: it is sent alone.
    Alone,
}

/// A call of a batch. If `reply` is dropped, the call is sent alone.
#[derive(Debug)]
pub(super) struct BatchMember {
    pub(super) call: QueuedCall,
    pub(super) reply: oneshot::Sender<Turn>,
}

#[derive(Debug)]
pub(super) struct PermitQueue {
    most: usize,
    /// The number of permits for claims and reads; the others are for endings.
    shared: usize,
    /// Wakes the thread of a queue of writes.
    writer: Option<Notify>,
    state: Mutex<PermitQueueState>,
}

type Waiters = VecDeque<Waiter>;

/// A statement that waits.
#[derive(Debug)]
struct Waiter {
    wake: oneshot::Sender<Turn>,
    share: Share,
    since: Instant,
    call: Option<QueuedCall>,
}

/// The future's side of a [`Waiter`].
struct Waiting<'a> {
    queue: &'a Arc<PermitQueue>,
    share: Share,
    turn: oneshot::Receiver<Turn>,
    has_turn: bool,
    claim: Option<&'a Admission>,
    since: Instant,
    /// When another statement took it along, if it can.
    taken: Option<Arc<OnceLock<Instant>>>,
}

/// No waiter has room: a permit that returns is passed on under the same lock.
#[derive(Debug)]
struct PermitQueueState {
    /// The number of used permits of each [`Share`].
    used: [usize; 3],
    endings: Waiters,
    claims: Waiters,
    reads: Waiters,
    pace: Pace,
    /// The number of waiting statements that wakes the thread.
    wanted: usize,
    #[cfg(feature = "_sqlite")]
    closed: bool,
}

impl PermitQueueState {
    fn waiting(&self) -> usize {
        self.endings.len() + self.claims.len() + self.reads.len()
    }

    fn waiters(&mut self, share: Share) -> &mut Waiters {
        match share {
            Share::Endings => &mut self.endings,
            Share::Claims => &mut self.claims,
            Share::Reads => &mut self.reads,
        }
    }
}

impl PermitQueue {
    /// `reserved` of `most` permits are for endings alone.
    pub(super) fn new(most: usize, reserved: usize) -> Arc<Self> {
        Arc::new(Self::of(most, reserved))
    }

    fn of(most: usize, reserved: usize) -> Self {
        Self {
            most,
            shared: most.saturating_sub(reserved).max(1),
            writer: None,
            state: Mutex::new(PermitQueueState {
                used: [0; 3],
                endings: Waiters::new(),
                claims: Waiters::new(),
                reads: Waiters::new(),
                pace: Pace::new(Instant::now()),
                wanted: 0,
                #[cfg(feature = "_sqlite")]
                closed: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn used(&self) -> usize {
        self.lock().used.iter().sum()
    }

    /// Waits for a permit. `reads`: the statement changes nothing.
    ///
    /// Claims wait as long as their admission permits, others for `patience` at most, endings without a limit. In a
    /// queue of writes all wait for `patience`, from which the transaction takes its time, too.
    pub(super) async fn take(
        self: &Arc<Self>,
        (priority, reads): (Priority<'_>, bool),
        patience: Duration,
        call: impl FnOnce() -> Option<QueuedCall>,
    ) -> Result<Turn, NoPermit> {
        let share = match priority {
            Priority::Ending => Share::Endings,
            _ if reads => Share::Reads,
            _ => Share::Claims,
        };
        let (mut waiting, bound, wakes) = {
            let mut state = self.lock();
            if self.has_room(&state, share) {
                return Ok(Turn::Permit(self.grant(&mut state, share), None));
            }
            let since = Instant::now();
            let (mut claim, mut bound) = (None, None);
            match (share, priority) {
                (Share::Endings, _) => {}
                (Share::Reads, Priority::Claim(admission)) => {
                    // The rest is for its statement.
                    bound = Some(admission.patience() * 3 / 4);
                }
                (Share::Reads, _) => bound = Some(patience),
                (Share::Claims, _) => {
                    remove_dropped(&mut state.claims);
                    let others = state.claims.len();
                    state.pace.joined(others, since);
                    bound = Some(patience);
                    if let Priority::Claim(admission) = priority {
                        claim = Some(admission);
                        let longest = admits(&state.pace, others, admission, since);
                        bound = Some(longest.map_err(NoPermit::Refused)?);
                    }
                }
            }
            let (wake, turn) = oneshot::channel();
            let call = call();
            if self.writer.is_some() {
                if call.is_none() {
                    return Ok(Turn::Alone);
                }
                if let Some(admission) = claim {
                    // The thread may take it along at any moment.
                    admission.sent();
                }
            }
            let waiting = Waiting {
                queue: self,
                share,
                turn,
                has_turn: false,
                claim,
                since,
                taken: call.as_ref().map(|call| Arc::clone(&call.taken)),
            };
            let waiter = Waiter {
                wake,
                share,
                since,
                call,
            };
            state.waiters(share).push_back(waiter);
            (waiting, bound, state.waiting() >= state.wanted)
        };
        if let Some(writer) = &self.writer
            && wakes
        {
            writer.notify_one();
        }
        let turn = waiting.turn(bound, patience).await;
        match (turn, priority) {
            (Some(turn), _) => Ok(turn),
            (None, Priority::Claim(admission)) if !admission.was_sent() => {
                let mut state = self.lock();
                let waiting = state.waiters(share).len();
                let wait = match share {
                    Share::Claims => state.pace.wait(waiting, Instant::now()),
                    // The pace is that of claims, and may be hours old.
                    _ => Duration::ZERO,
                };
                Err(NoPermit::Refused(crowded(wait, waiting)))
            }
            (None, _) => Err(NoPermit::TooLate),
        }
    }

    fn has_room(&self, state: &PermitQueueState, share: Share) -> bool {
        let reads = state.used[Share::Reads as usize];
        self.has_connection(state, share)
            && (share != Share::Reads || reads < MAX_READING)
            // The thread has been woken for the waiting statements.
            && (self.writer.is_none() || state.waiting() == 0)
    }

    fn has_connection(&self, state: &PermitQueueState, share: Share) -> bool {
        let [endings, claims, reads] = state.used;
        endings + claims + reads < self.most
            && (share == Share::Endings || claims + reads < self.shared)
    }

    fn grant(self: &Arc<Self>, state: &mut PermitQueueState, share: Share) -> ConnectionPermit {
        state.used[share as usize] += 1;
        ConnectionPermit {
            queue: Arc::clone(self),
            share,
            waited: false,
        }
    }

    /// The next waiter that has room.
    fn next(&self, state: &mut PermitQueueState) -> Option<Waiter> {
        while self.has_room(state, Share::Endings) {
            let waiter = if let Some(ending) = state.endings.pop_front() {
                ending
            } else {
                let has_room = |waiter: &&Waiter| self.has_room(state, waiter.share);
                let fronts = [&state.claims, &state.reads].map(|waiters| waiters.front());
                let first = fronts.into_iter().flatten().filter(has_room);
                let share = first.min_by_key(|waiter| waiter.since)?.share;
                state.waiters(share).pop_front()?
            };
            if !waiter.wake.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// Gives free permits to the queued statements.
    fn serve<'q>(self: &'q Arc<Self>, mut state: MutexGuard<'q, PermitQueueState>) {
        if let Some(writer) = &self.writer {
            if state.waiting() > 0 {
                writer.notify_one();
            }
            return;
        }
        while let Some(waiter) = self.next(&mut state) {
            let mut permit = self.grant(&mut state, waiter.share);
            permit.waited = true;
            drop(state);
            // If its future is dropped at this moment, the permit returns to the queue, and goes to the next statement.
            let returned = waiter.wake.send(Turn::Permit(permit, waiter.call));
            drop(returned);
            state = self.lock();
        }
    }
}

/// The thread's side of a queue of writes.
#[cfg(feature = "_sqlite")]
impl PermitQueue {
    /// A queue of writes.
    pub(super) fn of_writes() -> Arc<Self> {
        Arc::new(Self {
            writer: Some(Notify::new()),
            ..Self::of(1, 0)
        })
    }

    /// Waits for enough statements, a returned permit, or the queue's end.
    pub(super) async fn woken(&self) {
        if let Some(writer) = &self.writer {
            writer.notified().await;
        }
    }

    /// A permit for the thread, beside that of a statement in progress.
    pub(super) fn overtaking(self: &Arc<Self>) -> ConnectionPermit {
        self.grant(&mut self.lock(), Share::Endings)
    }

    /// The waiting calls, `most` at most. Endings go first.
    pub(super) fn take_all(&self, most: usize) -> Vec<BatchMember> {
        let state = &mut *self.lock();
        let endings = state.endings.len().min(most);
        let claims = state.claims.len().min(most - endings);
        let taken = (state.endings.drain(..endings)).chain(state.claims.drain(..claims));
        let member = |Waiter { call, wake, .. }| call.map(|call| BatchMember { call, reply: wake });
        let taken = taken.filter_map(member).collect();
        let waiting = state.claims.len();
        state.pace.left(claims, waiting, Instant::now());
        taken
    }

    /// Sets the number of waiting statements that wakes the thread. Returns their number now.
    pub(super) fn wake_from(&self, wanted: usize) -> usize {
        let mut state = self.lock();
        state.wanted = wanted;
        state.waiting()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        if let Some(writer) = &self.writer {
            writer.notify_one();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

/// How long a call waits for its batch before it goes alone.
///
/// A read has nothing to lose by a longer wait, within which the batch is sent again: many reads that go alone would
/// take the connections of a slow server.
pub(super) fn stall(patience: Duration, reads: bool) -> Duration {
    patience / if reads { 2 } else { 4 }
}

/// Removes dropped futures from the front of a queue.
fn remove_dropped(waiters: &mut Waiters) {
    while (waiters.front()).is_some_and(|waiter| waiter.wake.is_closed()) {
        waiters.pop_front();
    }
}

/// Takes calls out of a queue that join this call's batch.
fn take_joining(waiters: &mut Waiters, first: &QueuedCall) -> Vec<BatchMember> {
    let (mut taken, at) = (Vec::<BatchMember>::new(), Instant::now());
    let mut index = 0;
    while index < waiters.len().min(MAX_PASSED) && taken.len() + 1 < first.batch.width() {
        let joins = |call: &QueuedCall| {
            call.joins(first) && taken.iter().all(|member| call.joins(&member.call))
        };
        if !waiters[index].call.as_ref().is_some_and(joins) {
            index += 1;
        } else if let Some(waiter) = waiters.remove(index)
            && let Some(call) = waiter.call
            && !waiter.wake.is_closed()
        {
            // It is not woken before it has its outcome.
            let _ = call.taken.set(at);
            let reply = waiter.wake;
            taken.push(BatchMember { call, reply });
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
    ) -> Option<(Vec<BatchMember>, oneshot::Receiver<Turn>)> {
        let mut batch = self.leave(first.as_ref());
        let call = first.filter(|_| !batch.is_empty())?;
        let (reply, outcome) = oneshot::channel();
        batch.push(BatchMember { call, reply });
        Some((batch, outcome))
    }

    /// Counts the statement and its batch as claims that left.
    fn leave(&mut self, first: Option<&QueuedCall>) -> Vec<BatchMember> {
        if !std::mem::take(&mut self.waited) {
            return Vec::new();
        }
        let mut state = self.queue.lock();
        let waiters = state.waiters(self.share);
        let taken = first.map_or_else(Vec::new, |first| take_joining(waiters, first));
        if self.share == Share::Claims {
            let waiting = state.claims.len();
            (state.pace).left(1 + taken.len(), waiting, Instant::now());
        }
        taken
    }
}

impl Waiting<'_> {
    /// Waits `bound` for the turn; a part of `patience` once taken along.
    ///
    /// The task of a batch runs on the runtime of another caller, which may be blocked.
    async fn turn(&mut self, bound: Option<Duration>, patience: Duration) -> Option<Turn> {
        if self.queue.writer.is_some() {
            let turn = timeout(patience, &mut self.turn).await.ok()?;
            return Some(turn.unwrap_or(Turn::Alone));
        }
        let stall = stall(patience, self.share == Share::Reads);
        loop {
            let waited = self.since.elapsed();
            let left = bound.map(|bound| bound.saturating_sub(waited));
            let pause = match self.taken_for() {
                Some(taken) => stall.saturating_sub(taken),
                None => left.map_or(stall, |left| left.min(patience / 4)),
            };
            if let Ok(turn) = timeout(pause, &mut self.turn).await {
                self.has_turn = true;
                // If it was dropped, its batch has failed.
                return Some(turn.unwrap_or(Turn::Alone));
            }
            let is_over = match self.taken_for() {
                Some(taken) => taken >= stall,
                None => left.is_some_and(|left| left <= pause),
            };
            if is_over {
                let turn = self.close();
                return turn.or_else(|| self.taken_for().map(|_| Turn::Alone));
            }
            if let Some(turn) = self.overtake() {
                return Some(turn);
            }
        }
    }

    /// A permit for a read that has waited long, beyond [`MAX_READING`].
    ///
    /// The futures of the reads in flight may never be polled again.
    fn overtake(&mut self) -> Option<Turn> {
        let mut state = self.queue.lock();
        let may = self.share == Share::Reads
            && self.taken_for().is_none()
            && self.queue.has_connection(&state, Share::Reads);
        if !may {
            return None;
        }
        self.has_turn = true;
        self.turn.close();
        (state.reads).retain(|waiter| !waiter.wake.is_closed());
        let turn = self.turn.try_recv().ok();
        Some(turn.unwrap_or_else(|| Turn::Permit(self.queue.grant(&mut state, self.share), None)))
    }

    /// How long ago another statement took it along.
    fn taken_for(&self) -> Option<Duration> {
        self.taken.as_ref()?.get().map(Instant::elapsed)
    }

    /// The turn that arrived at the last moment.
    fn close(&mut self) -> Option<Turn> {
        // A call is taken along under the lock, unless it is closed.
        let _state = self.queue.lock();
        self.has_turn = true;
        self.turn.close();
        self.turn.try_recv().ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.has_turn {
            drop(self.close());
        }
        // The statement of another may have claimed for it already.
        if let Some(claim) = self.claim
            && let Some(at) = self.taken.as_ref().and_then(|taken| taken.get())
        {
            claim.sent_after(at.saturating_duration_since(self.since));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.leave(None);
        let mut state = self.queue.lock();
        state.used[self.share as usize] -= 1;
        self.queue.serve(state);
    }
}

#[cfg(test)]
mod tests;
