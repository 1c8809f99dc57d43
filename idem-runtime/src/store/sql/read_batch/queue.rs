//! Batches waiting reads. A limited number of statements is in flight, and the end of one passes its turn to a waiting
//! read, together with the other waiting reads.
//!
//! There is no task and no thread for it: each statement is sent by a caller. If that caller's future is dropped,
//! another gets the turn.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::store::sql::row::{Place, Row};

/// The maximum number of records of a statement.
pub(in crate::store::sql) const WIDEST: usize = 64;
/// The first limit, while the size of the records is unknown.
const FIRST: usize = 8;
/// The intended size of a reply, by the size of the last ones.
///
/// A reply that takes too long is lost.
const BYTES: usize = 1 << 20;

/// The reads of one lane.
pub(crate) struct Crowd {
    /// The number of turns.
    turns: usize,
    state: Mutex<State>,
}

struct State {
    /// The maximum number of records of the next statement.
    ///
    /// It is twice as many as for the last one, or half as many.
    width: usize,
    /// Empty, unless all turns are taken.
    waiting: Vec<Waiting>,
    /// The number of reads that have waited.
    numbers: u64,
    taken: usize,
    /// Turns of an earlier age are void.
    age: u64,
}

impl Default for State {
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
struct Waiting {
    /// Greater than those of all earlier ones.
    number: u64,
    place: Place,
    told: oneshot::Sender<Told>,
}

/// The result of waiting. A closed channel means: read alone.
pub(in crate::store::sql) enum Told {
    /// The row at its place.
    Row(Option<Row>),
    /// The turn to read, for others as well.
    Turn(Turn),
}

/// How a read begins.
pub(in crate::store::sql) enum Way {
    Now(Turn),
    /// With a number in the queue.
    Later(oneshot::Receiver<Told>, u64),
}

/// Held while a statement is in flight.
pub(in crate::store::sql) struct Turn {
    crowd: Arc<Crowd>,
    age: u64,
    others: Vec<Waiting>,
}

impl Crowd {
    pub(in crate::store::sql) fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self {
            turns,
            state: Mutex::default(),
        })
    }

    pub(in crate::store::sql) fn enter(self: &Arc<Self>, place: &Place) -> Way {
        let mut state = self.lock();
        if state.taken < self.turns {
            state.taken += 1;
            return Way::Now(self.turn(state.age, Vec::new()));
        }
        let (told, hears) = oneshot::channel();
        let (place, number) = (*place, state.numbers);
        state.numbers += 1;
        state.waiting.push(Waiting {
            number,
            place,
            told,
        });
        Way::Later(hears, number)
    }

    /// Whether a statement has taken this read along.
    pub(in crate::store::sql) fn has_taken(&self, number: u64) -> bool {
        let state = self.lock();
        (state.waiting.first()).is_none_or(|first| first.number > number)
    }

    /// A turn for a read that has waited too long.
    ///
    /// The future that holds the others may never be polled again.
    pub(in crate::store::sql) fn overtake(self: &Arc<Self>) -> Turn {
        let mut state = self.lock();
        state.age += 1;
        state.taken = 1;
        let width = state.width;
        let others = some(&mut state.waiting, width - 1);
        self.turn(state.age, others)
    }

    /// Passes a turn on to the waiting reads.
    fn hand_over(self: &Arc<Self>, age: u64) {
        let mut state = self.lock();
        if state.age != age {
            return;
        }
        while !state.waiting.is_empty() {
            let width = state.width;
            let mut others = some(&mut state.waiting, width);
            if others.is_empty() {
                continue;
            }
            let first = others.swap_remove(0);
            drop(state);
            // If that read is dropped at this moment, the turn comes back, and is passed on by its drop.
            let _ = first.told.send(Told::Turn(self.turn(age, others)));
            return;
        }
        state.taken = state.taken.saturating_sub(1);
    }

    fn turn(self: &Arc<Self>, age: u64, others: Vec<Waiting>) -> Turn {
        Turn {
            crowd: Arc::clone(self),
            age,
            others,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes at most `most` waiting reads, without dropped ones.
fn some(waiting: &mut Vec<Waiting>, most: usize) -> Vec<Waiting> {
    let rest = waiting.split_off(waiting.len().min(most));
    let mut some = std::mem::replace(waiting, rest);
    some.retain(|waiting| !waiting.told.is_closed());
    some
}

impl Turn {
    pub(in crate::store::sql) fn is_for_one(&self) -> bool {
        self.others.is_empty()
    }

    /// All requested places, sorted.
    pub(in crate::store::sql) fn places(&self, own: &Place) -> Vec<Place> {
        let others = self.others.iter().map(|other| other.place);
        let mut places: Vec<_> = others.chain([*own]).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Adapts the width to the bytes of a reply.
    pub(in crate::store::sql) fn weigh(&self, bytes: usize) {
        let mut state = self.crowd.lock();
        state.width = if bytes > BYTES {
            // At least two, because a lone read does not weigh its reply, and the width would never grow again.
            (state.width / 2).max(2)
        } else {
            (state.width * 2).min(WIDEST)
        };
    }

    /// Sends each of the others the row at its place.
    pub(in crate::store::sql) fn tell(&mut self, find: impl Fn(&Place) -> Option<Row>) {
        for other in self.others.drain(..) {
            // It may have been dropped.
            let _ = other.told.send(Told::Row(find(&other.place)));
        }
    }

    /// Leaves the others to read alone.
    pub(in crate::store::sql) fn leave(&mut self) {
        self.others.clear();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave();
        self.crowd.hand_over(self.age);
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot::Receiver;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::{BYTES, Crowd, Told, Turn, Way};
    use crate::store::sql::row::PLACE;

    fn now(crowd: &Arc<Crowd>, place: u8) -> Turn {
        match crowd.enter(&[place; PLACE]) {
            Way::Now(turn) => turn,
            Way::Later(..) => panic!("there was a turn left"),
        }
    }

    fn later(crowd: &Arc<Crowd>, place: u8) -> Receiver<Told> {
        match crowd.enter(&[place; PLACE]) {
            Way::Now(_) => panic!("there was no turn left"),
            Way::Later(told, _) => told,
        }
    }

    fn turn(told: &mut Receiver<Told>) -> Turn {
        match told.try_recv() {
            Ok(Told::Turn(turn)) => turn,
            Ok(Told::Row(_)) => panic!("it was told of a row"),
            Err(error) => panic!("it has no turn: {error}"),
        }
    }

    #[test]
    fn a_turn_goes_to_the_first_with_all_others() {
        let crowd = Crowd::new(2);
        let (one, two) = (now(&crowd, 1), now(&crowd, 2));
        assert!(one.is_for_one() && two.is_for_one());
        let mut waiting = [5, 3, 4, 3].map(|place| later(&crowd, place));
        drop(one);
        let mut turn = turn(&mut waiting[0]);
        assert_eq!(
            turn.places(&[5; PLACE]),
            [[3; PLACE], [4; PLACE], [5; PLACE]]
        );
        assert_eq!(waiting[1].try_recv().err(), Some(TryRecvError::Empty));
        turn.tell(|_| None);
        for told in &mut waiting[1..] {
            assert!(matches!(told.try_recv(), Ok(Told::Row(None))));
        }
        drop((turn, two));
        let (_one, _two) = (now(&crowd, 1), now(&crowd, 2));
        later(&crowd, 3);
    }

    #[test]
    fn who_is_taken_along_is_in_line_no_more() {
        let crowd = Crowd::new(1);
        let first = now(&crowd, 1);
        let mut numbers = Vec::new();
        let waiting = [2, 3].map(|place| match crowd.enter(&[place; PLACE]) {
            Way::Now(_) => panic!("there was no turn left"),
            Way::Later(told, number) => {
                numbers.push(number);
                told
            }
        });
        assert!(numbers.iter().all(|number| !crowd.has_taken(*number)));
        drop(first);
        let Way::Later(_since, since) = crowd.enter(&[4; PLACE]) else {
            panic!("there was no turn left");
        };
        assert!(numbers.iter().all(|number| crowd.has_taken(*number)));
        assert!(!crowd.has_taken(since));
        drop(waiting);
    }

    #[test]
    fn large_records_go_in_small_crowds() {
        let crowd = Crowd::new(1);
        let mut has_turn = now(&crowd, 1);
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
            let mut waiting: Vec<_> = (0..100).map(|place| later(&crowd, place)).collect();
            drop(has_turn);
            has_turn = turn(&mut waiting[0]);
            widths.push(has_turn.places(&[0; PLACE]).len());
            has_turn.weigh(bytes);
            crowd.lock().waiting.clear();
        }
        assert_eq!(widths, [8, 16, 32, 64, 64, 32, 16, 8, 4, 2]);
        drop(has_turn);
        let mut narrow = now(&crowd, 1);
        narrow.weigh(BYTES + 1);
        narrow.weigh(BYTES + 1);
        narrow.weigh(BYTES + 1);
        let mut waiting = [2, 3, 4].map(|place| later(&crowd, place));
        drop(narrow);
        narrow = turn(&mut waiting[0]);
        assert_eq!(
            narrow.places(&[2; PLACE]),
            [[2; PLACE], [3; PLACE]],
            "never quite alone"
        );
    }

    #[test]
    fn whoever_leaves_with_a_turn_gives_it_to_those_who_came_since() {
        let crowd = Crowd::new(1);
        let first = now(&crowd, 1);
        let (leaves, mut left) = (later(&crowd, 2), later(&crowd, 3));
        drop(first);
        let mut since = later(&crowd, 4);
        drop(leaves);
        // It reads alone.
        assert_eq!(left.try_recv().err(), Some(TryRecvError::Closed));
        assert!(turn(&mut since).is_for_one());
        assert!(now(&crowd, 5).is_for_one());
    }

    #[test]
    fn nobody_waits_for_ever_for_a_turn_that_is_not_used() {
        let crowd = Crowd::new(1);
        let stuck = now(&crowd, 1);
        let (impatient, mut other) = (later(&crowd, 2), later(&crowd, 3));
        drop(impatient);
        let mut turn = crowd.overtake();
        assert_eq!(turn.places(&[2; PLACE]), [[2; PLACE], [3; PLACE]]);
        turn.tell(|_| None);
        assert!(matches!(other.try_recv(), Ok(Told::Row(None))));
        // The stuck turn is void.
        let mut next = later(&crowd, 4);
        drop(stuck);
        assert_eq!(next.try_recv().err(), Some(TryRecvError::Empty));
        drop(turn);
        assert!(super::tests::turn(&mut next).is_for_one());
    }
}
