//! Reads that wait for their turn go together: so many statements are on their way at most, and whoever
//! ends one hands its turn to one of those who wait, with all the others.
//!
//! There is no task and no thread for it: each statement is sent by a caller, which may be dropped, and
//! then another has the turn.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::row::{Place, Row};

/// For how many records a statement asks at most.
pub(super) const WIDEST: usize = 64;

/// Those who read on one lane.
pub(crate) struct Crowd {
    /// How many turns there are.
    turns: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Nobody, unless all turns are taken.
    waiting: Vec<Waiting>,
    taken: usize,
    /// Turns of before are over, whatever becomes of them.
    age: u64,
}

/// Somebody who waits for a row.
struct Waiting {
    place: Place,
    told: oneshot::Sender<Told>,
}

/// What comes of waiting. The end of the line without a word: go alone.
pub(super) enum Told {
    /// What stands there.
    Row(Option<Row>),
    /// It is for this one to ask, for others as well.
    Turn(Turn),
}

/// How a read begins.
pub(super) enum Way {
    Now(Turn),
    Later(oneshot::Receiver<Told>),
}

/// Held while a statement is on its way.
pub(super) struct Turn {
    crowd: Arc<Crowd>,
    age: u64,
    others: Vec<Waiting>,
}

impl Crowd {
    pub(super) fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self {
            turns,
            state: Mutex::default(),
        })
    }

    pub(super) fn enter(self: &Arc<Self>, place: &Place) -> Way {
        let mut state = self.lock();
        if state.taken < self.turns {
            state.taken += 1;
            return Way::Now(self.turn(state.age, Vec::new()));
        }
        let (told, hears) = oneshot::channel();
        let place = *place;
        state.waiting.push(Waiting { place, told });
        Way::Later(hears)
    }

    /// A turn for somebody who has waited too long: whoever has the others may never go on, since a
    /// future need not be polled.
    pub(super) fn overtake(self: &Arc<Self>) -> Turn {
        let mut state = self.lock();
        state.age += 1;
        state.taken = 1;
        let others = some(&mut state.waiting, WIDEST - 1);
        self.turn(state.age, others)
    }

    /// Gives a turn to those who wait.
    fn hand_over(self: &Arc<Self>, age: u64) {
        let mut state = self.lock();
        if state.age != age {
            return;
        }
        while !state.waiting.is_empty() {
            let mut others = some(&mut state.waiting, WIDEST);
            if others.is_empty() {
                continue;
            }
            let first = others.swap_remove(0);
            drop(state);
            // Left in this moment, it comes back, and is handed on as it is dropped.
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

/// So many at most, without those who have given up.
fn some(waiting: &mut Vec<Waiting>, most: usize) -> Vec<Waiting> {
    let rest = waiting.split_off(waiting.len().min(most));
    let mut some = std::mem::replace(waiting, rest);
    some.retain(|waiting| !waiting.told.is_closed());
    some
}

impl Turn {
    pub(super) fn is_for_one(&self) -> bool {
        self.others.is_empty()
    }

    /// All places that are asked for, in their order.
    pub(super) fn places(&self, own: &Place) -> Vec<Place> {
        let others = self.others.iter().map(|other| other.place);
        let mut places: Vec<_> = others.chain([*own]).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Tells each of the others what stands at its place.
    pub(super) fn tell(&mut self, find: impl Fn(&Place) -> Option<Row>) {
        for other in self.others.drain(..) {
            // It may have given up.
            let _ = other.told.send(Told::Row(find(&other.place)));
        }
    }

    /// Leaves the others to themselves.
    pub(super) fn leave(&mut self) {
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
