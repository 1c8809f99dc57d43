//! The queue of the reads that wait to be batched.
//!
//! A limited number of statements is in flight. The end of one passes its turn to a waiting read, together with the
//! other waiting reads.
//!
//! There is no task and no thread for it: each statement is sent by a caller. If that caller's future is dropped,
//! another caller gets the turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::store::sql::primary_key::PrimaryKey;
use crate::store::sql::row::Row;

/// The maximum number of records that one statement reads.
pub(crate) const MAX_READS: usize = 64;
/// The initial limit, while the size of the records is unknown.
const FIRST: usize = 8;
/// The intended size of a reply, estimated from the last replies.
///
/// A reply that exceeds the response time-out is lost.
const BYTES: usize = 1 << 20;

/// The reads of one pool.
pub(crate) struct ReadBatcher {
    /// The number of turns.
    turns: usize,
    state: Mutex<ReadBatcherState>,
}

struct ReadBatcherState {
    /// The maximum number of records of the next statement.
    ///
    /// After each statement it is doubled or halved.
    width: usize,
    /// Empty, unless all turns are in use.
    waiting: Vec<WaitingRead>,
    /// The number of reads that were ever queued.
    numbers: u64,
    taken: usize,
    /// Turns of an earlier age are void.
    age: u64,
}

impl Default for ReadBatcherState {
    fn default() -> Self {
        Self {
            width: FIRST,
            waiting: Vec::new(),
            numbers: 0,
            taken: 0,
            age: 0,
        }
    }
}

/// A read that waits for a row.
struct WaitingRead {
    /// Increases with each queued read.
    number: u64,
    primary_key: PrimaryKey,
    wake: oneshot::Sender<ReadWakeup>,
}

/// What wakes a waiting read. A closed channel means that it reads alone.
pub(crate) enum ReadWakeup {
    /// The row of its record.
    Row(Option<Row>),
    /// The turn to read, for the other waiting reads as well.
    Turn(ReadTurn),
}

/// How a read begins.
pub(crate) enum ReadStart {
    Now(ReadTurn),
    /// With a number in the queue.
    Later(oneshot::Receiver<ReadWakeup>, u64),
}

/// Held while a statement is in flight.
pub(crate) struct ReadTurn {
    batcher: Arc<ReadBatcher>,
    age: u64,
    others: Vec<WaitingRead>,
}

impl ReadBatcher {
    pub(crate) fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self {
            turns,
            state: Mutex::default(),
        })
    }

    pub(crate) fn enter(self: &Arc<Self>, primary_key: &PrimaryKey) -> ReadStart {
        let mut state = self.lock();
        if state.taken < self.turns {
            state.taken += 1;
            return ReadStart::Now(self.turn(state.age, Vec::new()));
        }
        let (wake, woken) = oneshot::channel();
        let (primary_key, number) = (*primary_key, state.numbers);
        state.numbers += 1;
        state.waiting.push(WaitingRead {
            number,
            primary_key,
            wake,
        });
        ReadStart::Later(woken, number)
    }

    /// Whether a statement includes this read already.
    pub(crate) fn has_taken(&self, number: u64) -> bool {
        let state = self.lock();
        (state.waiting.first()).is_none_or(|first| first.number > number)
    }

    /// A turn for a read that has waited too long.
    ///
    /// The future that holds the turns may never be polled again, so that all earlier turns become void.
    pub(crate) fn overtake(self: &Arc<Self>) -> ReadTurn {
        let mut state = self.lock();
        state.age += 1;
        state.taken = 1;
        let width = state.width;
        let others = take_waiting(&mut state.waiting, width - 1);
        self.turn(state.age, others)
    }

    /// Passes a turn on to the waiting reads.
    fn pass_on(self: &Arc<Self>, age: u64) {
        let mut state = self.lock();
        if state.age != age {
            return;
        }
        while !state.waiting.is_empty() {
            let width = state.width;
            let mut others = take_waiting(&mut state.waiting, width);
            if others.is_empty() {
                continue;
            }
            let first = others.swap_remove(0);
            drop(state);
            // If that read is dropped at this moment, dropping the turn passes it on.
            let _ = first.wake.send(ReadWakeup::Turn(self.turn(age, others)));
            return;
        }
        state.taken = state.taken.saturating_sub(1);
    }

    fn turn(self: &Arc<Self>, age: u64, others: Vec<WaitingRead>) -> ReadTurn {
        ReadTurn {
            batcher: Arc::clone(self),
            age,
            others,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadBatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes at most `most` waiting reads, without dropped ones.
fn take_waiting(waiting: &mut Vec<WaitingRead>, most: usize) -> Vec<WaitingRead> {
    let rest = waiting.split_off(waiting.len().min(most));
    let mut some = std::mem::replace(waiting, rest);
    some.retain(|waiting| !waiting.wake.is_closed());
    some
}

impl ReadTurn {
    pub(crate) fn is_for_one(&self) -> bool {
        self.others.is_empty()
    }

    /// The primary keys of all its reads, sorted.
    pub(crate) fn primary_keys(&self, own: &PrimaryKey) -> Vec<PrimaryKey> {
        let others = self.others.iter().map(|other| other.primary_key);
        let mut primary_keys: Vec<_> = others.chain([*own]).collect();
        primary_keys.sort_unstable();
        primary_keys.dedup();
        primary_keys
    }

    /// Adapts the width to the bytes of a reply.
    pub(crate) fn adapt_width(&self, bytes: usize) {
        let mut state = self.batcher.lock();
        state.width = if bytes > BYTES {
            // At least two, because a lone read does not adapt the width, which would never grow again.
            (state.width / 2).max(2)
        } else {
            (state.width * 2).min(MAX_READS)
        };
    }

    /// Sends each of the other reads the row of its record.
    pub(crate) fn deliver(&mut self, find: impl Fn(&PrimaryKey) -> Option<Row>) {
        for other in self.others.drain(..) {
            // That read may have been dropped.
            let _ = other.wake.send(ReadWakeup::Row(find(&other.primary_key)));
        }
    }

    /// Lets each of the other reads proceed alone.
    pub(crate) fn release_others(&mut self) {
        self.others.clear();
    }
}

impl Drop for ReadTurn {
    fn drop(&mut self) {
        self.release_others();
        self.batcher.pass_on(self.age);
    }
}

debug_fields!(ReadBatcher {});

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot::Receiver;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::{BYTES, ReadBatcher, ReadStart, ReadTurn, ReadWakeup};
    use crate::store::sql::primary_key::PRIMARY_KEY_LEN;

    fn now(batcher: &Arc<ReadBatcher>, primary_key: u8) -> ReadTurn {
        match batcher.enter(&[primary_key; PRIMARY_KEY_LEN]) {
            ReadStart::Now(turn) => turn,
            ReadStart::Later(..) => panic!("there was a turn left"),
        }
    }

    fn later(batcher: &Arc<ReadBatcher>, primary_key: u8) -> Receiver<ReadWakeup> {
        match batcher.enter(&[primary_key; PRIMARY_KEY_LEN]) {
            ReadStart::Now(_) => panic!("there was no turn left"),
            ReadStart::Later(wake, _) => wake,
        }
    }

    fn turn(wake: &mut Receiver<ReadWakeup>) -> ReadTurn {
        match wake.try_recv() {
            Ok(ReadWakeup::Turn(turn)) => turn,
            Ok(ReadWakeup::Row(_)) => panic!("it was told of a row"),
            Err(error) => panic!("it has no turn: {error}"),
        }
    }

    #[test]
    fn a_turn_goes_to_the_first_waiting_read_with_all_others() {
        let batcher = ReadBatcher::new(2);
        let (one, two) = (now(&batcher, 1), now(&batcher, 2));
        assert!(one.is_for_one() && two.is_for_one());
        let mut waiting = [5, 3, 4, 3].map(|primary_key| later(&batcher, primary_key));
        drop(one);
        let mut turn = turn(&mut waiting[0]);
        assert_eq!(
            turn.primary_keys(&[5; PRIMARY_KEY_LEN]),
            [
                [3; PRIMARY_KEY_LEN],
                [4; PRIMARY_KEY_LEN],
                [5; PRIMARY_KEY_LEN]
            ]
        );
        assert_eq!(waiting[1].try_recv().err(), Some(TryRecvError::Empty));
        turn.deliver(|_| None);
        for wake in &mut waiting[1..] {
            assert!(matches!(wake.try_recv(), Ok(ReadWakeup::Row(None))));
        }
        drop((turn, two));
        let (_one, _two) = (now(&batcher, 1), now(&batcher, 2));
        later(&batcher, 3);
    }

    #[test]
    fn a_read_in_a_statement_is_queued_no_longer() {
        let batcher = ReadBatcher::new(1);
        let first = now(&batcher, 1);
        let mut numbers = Vec::new();
        let waiting =
            [2, 3].map(
                |primary_key| match batcher.enter(&[primary_key; PRIMARY_KEY_LEN]) {
                    ReadStart::Now(_) => panic!("there was no turn left"),
                    ReadStart::Later(wake, number) => {
                        numbers.push(number);
                        wake
                    }
                },
            );
        assert!(numbers.iter().all(|number| !batcher.has_taken(*number)));
        drop(first);
        let ReadStart::Later(_since, since) = batcher.enter(&[4; PRIMARY_KEY_LEN]) else {
            panic!("there was no turn left");
        };
        assert!(numbers.iter().all(|number| batcher.has_taken(*number)));
        assert!(!batcher.has_taken(since));
        drop(waiting);
    }

    #[test]
    fn large_records_go_in_small_crowds() {
        let batcher = ReadBatcher::new(1);
        let mut has_turn = now(&batcher, 1);
        let mut widths = Vec::new();
        for bytes in [
            200,
            200,
            200,
            200,
            BYTES + 1,
            BYTES + 1,
            BYTES + 1,
            BYTES + 1,
            BYTES + 1,
            200,
        ] {
            let mut waiting: Vec<_> = (0..100)
                .map(|primary_key| later(&batcher, primary_key))
                .collect();
            drop(has_turn);
            has_turn = turn(&mut waiting[0]);
            widths.push(has_turn.primary_keys(&[0; PRIMARY_KEY_LEN]).len());
            has_turn.adapt_width(bytes);
            batcher.lock().waiting.clear();
        }
        assert_eq!(widths, [8, 16, 32, 64, 64, 32, 16, 8, 4, 2]);
        drop(has_turn);
        let mut narrow = now(&batcher, 1);
        narrow.adapt_width(BYTES + 1);
        narrow.adapt_width(BYTES + 1);
        narrow.adapt_width(BYTES + 1);
        let mut waiting = [2, 3, 4].map(|primary_key| later(&batcher, primary_key));
        drop(narrow);
        narrow = turn(&mut waiting[0]);
        assert_eq!(
            narrow.primary_keys(&[2; PRIMARY_KEY_LEN]),
            [[2; PRIMARY_KEY_LEN], [3; PRIMARY_KEY_LEN]],
            "never quite alone"
        );
    }

    #[test]
    fn a_dropped_turn_goes_to_a_read_that_was_queued_since() {
        let batcher = ReadBatcher::new(1);
        let first = now(&batcher, 1);
        let (leaves, mut left) = (later(&batcher, 2), later(&batcher, 3));
        drop(first);
        let mut since = later(&batcher, 4);
        drop(leaves);
        // It reads alone.
        assert_eq!(left.try_recv().err(), Some(TryRecvError::Closed));
        assert!(turn(&mut since).is_for_one());
        assert!(now(&batcher, 5).is_for_one());
    }

    #[test]
    fn an_unused_turn_is_overtaken() {
        let batcher = ReadBatcher::new(1);
        let stuck = now(&batcher, 1);
        let (impatient, mut other) = (later(&batcher, 2), later(&batcher, 3));
        drop(impatient);
        let mut turn = batcher.overtake();
        assert_eq!(
            turn.primary_keys(&[2; PRIMARY_KEY_LEN]),
            [[2; PRIMARY_KEY_LEN], [3; PRIMARY_KEY_LEN]]
        );
        turn.deliver(|_| None);
        assert!(matches!(other.try_recv(), Ok(ReadWakeup::Row(None))));
        // The stuck turn is void.
        let mut next = later(&batcher, 4);
        drop(stuck);
        assert_eq!(next.try_recv().err(), Some(TryRecvError::Empty));
        drop(turn);
        assert!(super::tests::turn(&mut next).is_for_one());
    }
}
