//! The model: what a record is and what each operation does to it, without the code of the store.

use idem_runtime::store::{OutcomeKind, Remains};

use crate::operation::Print;

/// In milliseconds: how long the release of a short lease is remembered that leaves nothing.
const RELEASED_AT_LEAST: u64 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Claimed {
        lease: u64,
    },
    /// An owner reconciles an earlier attempt.
    Looking {
        lease: u64,
    },
    GivenBack,
    Finished {
        outcome: OutcomeKind,
        schema: u32,
        body: Vec<u8>,
    },
}

/// A record without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) phase: Phase,
    pub(crate) owner: usize,
    pub(crate) fence: u64,
    pub(crate) attempts: u16,
    pub(crate) retain: u64,
    pub(crate) print: Print,
    /// The steps of its attempts.
    pub(crate) journal: Vec<u8>,
}

/// A reply, of the model and of a store alike. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        fence: Fence,
        attempt: u16,
        fresh: bool,
        journal: Vec<u8>,
    },
    FindOut {
        fence: Fence,
        attempts: u16,
        journal: Vec<u8>,
    },
    Running {
        left: u64,
    },
    Answered {
        entry: Entry,
        left: u64,
    },
    OtherRequest,
    NoAttempts {
        attempts: u16,
    },
    Stored {
        late: bool,
    },
    Overtaken {
        left: u64,
    },
    Freed,
    NotYours,
    Nothing,
    Renewed,
    WrittenAgain,
    Appended,
    Resolved,
    NotThat,
    Found {
        entry: Entry,
        left: u64,
    },
    Odd(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// This one.
    Is(u64),
    /// Any that is higher.
    Above(u64),
}

#[derive(Clone, Debug)]
struct Kept {
    entry: Entry,
    /// When the lease or the life was last set.
    since: u64,
    ends: u64,
}

impl Fence {
    pub(crate) fn fits(&self, fence: u64) -> bool {
        match *self {
            Self::Is(expected) => fence == expected,
            Self::Above(last) => fence > last,
        }
    }
}

/// One key of a store, at its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    kept: Option<Kept>,
}

/// The fields of a claim.
pub(crate) struct Asked {
    pub(crate) owner: usize,
    pub(crate) print: Print,
    pub(crate) lease: u64,
    pub(crate) retain: u64,
    pub(crate) max_attempts: Option<u16>,
    pub(crate) reconciles: bool,
    pub(crate) dated: bool,
}

impl Phase {
    fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::Finished {
                outcome: OutcomeKind::Unknown,
                ..
            }
        )
    }

    fn is_success(&self) -> bool {
        matches!(
            self,
            Self::Finished {
                outcome: OutcomeKind::Value | OutcomeKind::Tombstone,
                ..
            }
        )
    }
}

impl Entry {
    /// The entry without its answer and its journal.
    fn head(&self) -> (Self, bool) {
        let mut head = self.without_steps();
        if let Phase::Finished { body, .. } = &mut head.phase {
            body.clear();
        }
        (head, !self.journal.is_empty())
    }

    /// The entry without its journal, as callers get it.
    pub(crate) fn without_steps(&self) -> Self {
        Self {
            journal: Vec::new(),
            ..self.clone()
        }
    }

    /// This entry, with attempts and fence carried on from the entry that it replaces; and with its steps, if it has
    /// no answer and does not drop them.
    fn after(&self, there: &Self) -> Self {
        // A later attempt has all that the store confirmed to an earlier one.
        let later = there.phase == Phase::GivenBack && there.owner != self.owner;
        let keeps = self.phase.is_unknown() || !self.journal.is_empty();
        let longer = later || there.journal.len() >= self.journal.len();
        Self {
            journal: if keeps && longer {
                there.journal.clone()
            } else {
                self.journal.clone()
            },
            attempts: there.attempts,
            fence: there.fence.max(self.fence),
            print: there.print.or(self.print),
            ..self.clone()
        }
    }
}

/// The decision on a claim.
enum Next {
    /// Go on with the claim of this owner.
    GoOn,
    Start,
    FindOut,
}

fn same_request(one: Print, other: Print) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

impl Key {
    fn alive(&self, now: u64) -> Option<&Kept> {
        self.kept.as_ref().filter(|kept| now < kept.ends)
    }

    fn keep(&mut self, entry: Entry, now: u64) {
        let ends = now + entry.retain;
        let since = now;
        self.kept = Some(Kept { entry, since, ends });
    }

    /// The remaining lease of a claim.
    pub(crate) fn lease_left(&self, now: u64) -> Option<u64> {
        let kept = self.alive(now)?;
        match kept.entry.phase {
            Phase::Claimed { lease } | Phase::Looking { lease } => {
                (kept.since + lease).checked_sub(now)
            }
            _ => None,
        }
        .filter(|left| *left > 0)
    }

    pub(crate) fn life_left(&self, now: u64) -> Option<u64> {
        self.alive(now).map(|kept| kept.ends - now)
    }

    /// A claim that is granted is written with the fence that the store gave it: see `learn`.
    pub(crate) fn claim(&mut self, asked: &Asked, now: u64) -> Reply {
        let Some(kept) = self.alive(now) else {
            return self.granted(asked, None, &Next::Start, now);
        };
        let (entry, left) = (kept.entry.clone(), kept.ends - now);
        if !same_request(entry.print, asked.print) {
            return Reply::OtherRequest;
        }
        let lease_left = self.lease_left(now);
        let attempts = entry.attempts;
        let next = match (&entry.phase, entry.owner == asked.owner) {
            (Phase::GivenBack, true) => return Reply::Running { left: 0 },
            (Phase::Claimed { .. }, true) => Next::GoOn,
            (Phase::Looking { .. }, true) if asked.reconciles => Next::GoOn,
            (Phase::Looking { .. }, true) => Next::Start,
            (Phase::Claimed { .. } | Phase::Looking { .. }, false) if lease_left.is_some() => {
                let left = lease_left.unwrap_or(0);
                return Reply::Running { left };
            }
            (Phase::Looking { .. }, false) if asked.reconciles => Next::FindOut,
            (phase, false) if phase.is_unknown() && asked.reconciles => Next::FindOut,
            (Phase::Looking { .. } | Phase::Finished { .. }, _) => {
                let entry = entry.without_steps();
                return Reply::Answered { entry, left };
            }
            _ if asked.reconciles && attempts > 0 => Next::FindOut,
            _ => Next::Start,
        };
        if matches!(next, Next::Start) && asked.max_attempts.is_some_and(|max| max <= attempts) {
            return Reply::NoAttempts { attempts };
        }
        self.granted(asked, Some(entry), &next, now)
    }

    /// Writes a claim over the stored entry.
    fn granted(&mut self, asked: &Asked, there: Option<Entry>, next: &Next, now: u64) -> Reply {
        let lease = asked.lease;
        let last = there.as_ref().map_or(0, |there| there.fence);
        let before = there.as_ref().map_or(0, |there| there.attempts);
        let looking = matches!(&there, Some(there) if matches!(there.phase, Phase::Looking { .. }));
        let (phase, fence, attempts) = match next {
            Next::GoOn if looking => (Phase::Looking { lease }, Fence::Is(last), before),
            Next::GoOn => (Phase::Claimed { lease }, Fence::Is(last), before),
            Next::FindOut => (Phase::Looking { lease }, Fence::Above(last), before),
            Next::Start => (Phase::Claimed { lease }, Fence::Above(last), before + 1),
        };
        let journal = (there.as_ref()).map_or_else(Vec::new, |there| there.journal.clone());
        let reply = match phase {
            Phase::Looking { .. } => Reply::FindOut {
                fence,
                attempts,
                journal: journal.clone(),
            },
            _ => Reply::Granted {
                fence,
                attempt: attempts,
                fresh: there.as_ref().is_none_or(|there| there.print.is_none()),
                journal: journal.clone(),
            },
        };
        let entry = Entry {
            phase,
            owner: asked.owner,
            fence: last,
            attempts,
            retain: asked.retain,
            print: there.and_then(|there| there.print).or(asked.print),
            journal,
        };
        self.keep(entry, now);
        reply
    }

    /// Takes over the fence that the store chose for the claim just granted.
    pub(crate) fn learn(&mut self, fence: u64) {
        let kept = self.kept.as_mut().expect("a claim was just granted");
        kept.entry.fence = fence;
    }

    pub(crate) fn complete(&mut self, done: &Entry, now: u64) -> Reply {
        let Some(kept) = self.alive(now) else {
            self.keep(done.clone(), now);
            return Reply::Stored { late: true };
        };
        let there = kept.entry.clone();
        let mine = there.owner == done.owner;
        if !same_request(there.print, done.print) {
            return Reply::OtherRequest;
        }
        let success = done.phase.is_success();
        match there.phase {
            Phase::Finished { .. } if there.phase.is_unknown() && success => {}
            Phase::Finished { .. } if mine => return Reply::Stored { late: false },
            Phase::Finished { .. } => {
                let left = kept.ends - now;
                let entry = there.without_steps();
                return Reply::Answered { entry, left };
            }
            // A success may be stored over a successor that has lapsed; an error may not.
            Phase::Claimed { .. } | Phase::Looking { .. } if !mine => {
                let left = self.lease_left(now).unwrap_or(0);
                if left > 0 || !success {
                    return Reply::Overtaken { left };
                }
            }
            _ => {}
        }
        self.keep(done.after(&there), now);
        Reply::Stored { late: !mine }
    }

    /// Replaces the entry that the resolution saw with `new`.
    pub(crate) fn resolve(&mut self, seen: &Entry, new: &Entry, now: u64) -> Reply {
        let Some(kept) = self.alive(now) else {
            return Reply::Nothing;
        };
        let there = kept.entry.clone();
        if there.owner == new.owner {
            return Reply::Resolved;
        }
        if there.head() != seen.head() {
            return Reply::NotThat;
        }
        if let Some(left) = self.lease_left(now) {
            return Reply::Running { left };
        }
        let mut entry = new.after(&there);
        if entry.phase == Phase::GivenBack {
            entry.attempts = 0;
        }
        self.keep(entry, now);
        Reply::Resolved
    }

    pub(crate) fn release(&mut self, owner: usize, remains: Remains, now: u64) -> Reply {
        if self.alive(now).is_none() {
            return Reply::Nothing;
        }
        let entry = &mut self.kept.as_mut().expect("it is alive").entry;
        if entry.owner != owner {
            return Reply::NotYours;
        }
        match entry.phase {
            Phase::Finished {
                outcome: OutcomeKind::Unknown,
                schema: 4,
                ..
            }
            | Phase::GivenBack => Reply::Freed,
            Phase::Finished { .. } => Reply::NotYours,
            Phase::Looking { .. } => {
                entry.phase = Phase::Finished {
                    outcome: OutcomeKind::Unknown,
                    schema: 4,
                    body: Vec::new(),
                };
                Reply::Freed
            }
            Phase::Claimed { lease } => {
                entry.phase = Phase::GivenBack;
                if remains != Remains::Attempt {
                    entry.attempts = entry.attempts.saturating_sub(1);
                }
                if remains == Remains::Nothing && entry.attempts == 0 && entry.journal.is_empty() {
                    entry.print = None;
                    entry.retain = lease.max(RELEASED_AT_LEAST);
                    let entry = entry.clone();
                    self.keep(entry, now);
                }
                Reply::Freed
            }
        }
    }

    pub(crate) fn renew(&mut self, claim: &Entry, now: u64) -> Reply {
        let Some(kept) = self.alive(now) else {
            self.keep(claim.clone(), now);
            return Reply::WrittenAgain;
        };
        let entry = kept.entry.clone();
        let claimed = matches!(entry.phase, Phase::Claimed { .. } | Phase::Looking { .. });
        if !claimed || entry.owner != claim.owner {
            return Reply::NotYours;
        }
        self.keep(entry, now);
        Reply::Renewed
    }

    /// `claim` has the whole journal of its owner.
    pub(crate) fn append(&mut self, claim: &Entry, now: u64) -> Reply {
        let Some(kept) = self.alive(now) else {
            self.keep(claim.clone(), now);
            return Reply::WrittenAgain;
        };
        let mut entry = kept.entry.clone();
        let claimed = matches!(entry.phase, Phase::Claimed { .. } | Phase::Looking { .. });
        if !claimed || entry.owner != claim.owner {
            return Reply::NotYours;
        }
        if entry.journal.len() < claim.journal.len() {
            entry.journal.clone_from(&claim.journal);
        }
        self.keep(entry, now);
        Reply::Appended
    }

    pub(crate) fn read(&self, now: u64) -> Reply {
        match self.alive(now) {
            None => Reply::Nothing,
            Some(kept) => Reply::Found {
                entry: kept.entry.clone(),
                left: kept.ends - now,
            },
        }
    }
}
