//! The model: what a record is and what each operation does to it, in words of its own.

use idem_runtime::store::OutcomeKind;

use crate::operation::Print;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Claimed {
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
}

/// A reply, of the model and of a store alike. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted { fence: Fence, attempt: u16 },
    Running { left: u64 },
    Answered { entry: Entry, left: u64 },
    OtherRequest,
    NoAttempts { attempts: u16 },
    Stored { late: bool },
    Overtaken { left: u64 },
    Freed,
    NotYours,
    Nothing,
    Renewed,
    WrittenAgain,
    Found { entry: Entry, left: u64 },
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

/// One key of a store, at its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    kept: Option<Kept>,
}

/// What a claim says.
pub(crate) struct Asked {
    pub(crate) owner: usize,
    pub(crate) print: Print,
    pub(crate) lease: u64,
    pub(crate) retain: u64,
    pub(crate) max_attempts: Option<u16>,
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

    /// What is left of the lease of whoever holds a claim.
    pub(crate) fn lease_left(&self, now: u64) -> Option<u64> {
        let kept = self.alive(now)?;
        match kept.entry.phase {
            Phase::Claimed { lease } => (kept.since + lease).checked_sub(now),
            _ => None,
        }
        .filter(|left| *left > 0)
    }

    pub(crate) fn life_left(&self, now: u64) -> Option<u64> {
        self.alive(now).map(|kept| kept.ends - now)
    }

    /// A claim that is granted is written with the fence that the store gave it: see `learn`.
    pub(crate) fn claim(&mut self, asked: &Asked, now: u64) -> Reply {
        let claimed = |fence, attempts, print| Entry {
            phase: Phase::Claimed { lease: asked.lease },
            owner: asked.owner,
            fence,
            attempts,
            retain: asked.retain,
            print,
        };
        let Some(kept) = self.alive(now) else {
            self.keep(claimed(0, 1, asked.print), now);
            let fence = Fence::Above(0);
            return Reply::Granted { fence, attempt: 1 };
        };
        let entry = kept.entry.clone();
        if !same_request(entry.print, asked.print) {
            return Reply::OtherRequest;
        }
        let print = entry.print.or(asked.print);
        match entry.phase {
            Phase::Finished { .. } => {
                let left = kept.ends - now;
                return Reply::Answered { entry, left };
            }
            Phase::Claimed { .. } if entry.owner == asked.owner => {
                self.keep(claimed(entry.fence, entry.attempts, print), now);
                let fence = Fence::Is(entry.fence);
                let attempt = entry.attempts;
                return Reply::Granted { fence, attempt };
            }
            _ => {}
        }
        if let Some(left) = self.lease_left(now) {
            return Reply::Running { left };
        }
        let attempts = entry.attempts;
        if asked.max_attempts.is_some_and(|max| max <= attempts) {
            return Reply::NoAttempts { attempts };
        }
        let attempt = attempts + 1;
        self.keep(claimed(entry.fence, attempt, print), now);
        let fence = Fence::Above(entry.fence);
        Reply::Granted { fence, attempt }
    }

    /// The fence that the store chose for the claim that was just granted.
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
        if let Phase::Finished { .. } = there.phase {
            if mine {
                return Reply::Stored { late: false };
            }
            let left = kept.ends - now;
            return Reply::Answered { entry: there, left };
        }
        if let (Phase::Claimed { .. }, false) = (&there.phase, mine) {
            // A success may be stored over a successor that has lapsed; an error may not.
            let success = matches!(
                done.phase,
                Phase::Finished {
                    outcome: OutcomeKind::Value | OutcomeKind::Tombstone,
                    ..
                }
            );
            let left = self.lease_left(now).unwrap_or(0);
            if left > 0 || !success {
                return Reply::Overtaken { left };
            }
        }
        let entry = Entry {
            attempts: there.attempts,
            fence: if there.fence > done.fence {
                there.fence
            } else {
                done.fence
            },
            print: there.print.or(done.print),
            ..done.clone()
        };
        self.keep(entry, now);
        Reply::Stored { late: !mine }
    }

    pub(crate) fn release(&mut self, owner: usize, count: bool, now: u64) -> Reply {
        if self.alive(now).is_none() {
            return Reply::Nothing;
        }
        let entry = &mut self.kept.as_mut().expect("it is alive").entry;
        if entry.owner != owner {
            return Reply::NotYours;
        }
        match entry.phase {
            Phase::Finished { .. } => Reply::NotYours,
            Phase::GivenBack => Reply::Freed,
            Phase::Claimed { .. } => {
                entry.phase = Phase::GivenBack;
                if !count && entry.attempts > 0 {
                    entry.attempts -= 1;
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
        let held = matches!(entry.phase, Phase::Claimed { .. }) && entry.owner == claim.owner;
        if !held {
            return Reply::NotYours;
        }
        self.keep(entry, now);
        Reply::Renewed
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
