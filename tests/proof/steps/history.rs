//! The events of one key, in order.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::Owner;
use idem_tests::payment::{PayError, Receipt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Value,
    Business,
    System,
    Unknown,
    Panic,
    Dropped,
    /// With the error of a step: idem's own.
    Step,
}

/// The outcome of a caller. Answers name the call whose body made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Value(u32),
    Business(u32),
    /// The body's own error, which is no answer.
    Failed,
    /// idem's error, by its kind.
    Refused(String),
    /// Nothing: the caller was dropped, or unwound by a panic.
    Nothing,
}

impl Said {
    pub(crate) fn of(result: Result<Receipt, PayError>) -> Self {
        match result {
            Ok(Receipt { run }) => Self::Value(run),
            Err(PayError::Declined { run }) => Self::Business(run),
            Err(PayError::Down | PayError::TimedOut) => Self::Failed,
            Err(PayError::Idem(error)) => {
                let kind = format!("{:?}", error.kind());
                let name = kind.split([' ', '{']).next().unwrap_or_default();
                Self::Refused(name.to_owned())
            }
        }
    }

    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Value(_) | Self::Business(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Called {
        call: u32,
        far: bool,
    },
    Start {
        call: u32,
        fence: u64,
        attempt: u16,
    },
    End {
        call: u32,
        how: Ending,
    },
    Returned {
        call: u32,
        said: Said,
    },
    /// A reconcile hook returned; `fence` is that of the claim under which it ran.
    Verdict {
        fence: u64,
        not_landed: bool,
    },
    /// An engine reported that an answer is not stored.
    Unsaved {
        far: bool,
    },
    /// The store granted or renewed a claim. Its lease ends then by the store's clock.
    Granted {
        owner: u32,
        fence: u64,
        until: Duration,
        reconciling: bool,
    },
    /// The store has this outcome from now on.
    Stored(OutcomeKind),
    /// The owner of a claim sends its end to the store: an outcome, or with `true` the release of the key.
    Ends(u32, bool),
    /// An operator reset the record.
    Reset,
    StepsDropped,
    /// The part of a step starts; `step` is its place in the body.
    StepStart {
        call: u32,
        step: u8,
        fence: u64,
    },
    StepEffect {
        call: u32,
        step: u8,
    },
    /// The body got the result of a step, from this call's run.
    StepGot {
        call: u32,
        step: u8,
        run: u32,
    },
    /// The store has the result of a step, from now on.
    StepStored {
        step: u8,
    },
    /// An engine reported that a lease is lost.
    LeaseLost {
        far: bool,
    },
    /// The stored outcome at the end; `None` where nothing is done.
    Left(Option<OutcomeKind>),
    /// No task makes progress, and not everything has ended.
    Stuck,
    /// Both engines were let go, and their threads have ended.
    Gone,
    /// An engine was shut down, and nothing was left to do.
    Idle {
        far: bool,
        idle: bool,
    },
}

/// An event with its time by the engines' clock and the store's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) store: Duration,
    pub(crate) what: What,
}

/// The events of a case so far. Clones share them.
#[derive(Clone)]
pub(crate) struct History(Arc<Inner>);

struct Inner {
    events: Mutex<Vec<Event>>,
    owners: Mutex<HashMap<Owner, u32>>,
    times: Box<dyn Fn() -> (Duration, Duration) + Send + Sync>,
}

impl History {
    /// `times` returns the engines' time and the store's.
    pub(crate) fn new(times: impl Fn() -> (Duration, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            events: Mutex::default(),
            owners: Mutex::default(),
            times: Box::new(times),
        }))
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        // Nothing panics while it is held.
        let events = self.0.events.lock();
        events.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, what: What) {
        let mut events = self.events();
        let (at, store) = (self.0.times)();
        events.push(Event { at, store, what });
    }

    pub(crate) fn store_time(&self) -> Duration {
        (self.0.times)().1
    }

    pub(crate) fn owner(&self, owner: Owner) -> u32 {
        let owners = self.0.owners.lock();
        let mut owners = owners.unwrap_or_else(PoisonError::into_inner);
        let next = u32::try_from(owners.len()).expect("few owners");
        *owners.entry(owner).or_insert(next)
    }

    pub(crate) fn len(&self) -> usize {
        self.events().len()
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.events().clone()
    }

    /// The last call whose body had its effect: it ended, or its outcome is unknown.
    pub(crate) fn effect(&self) -> Option<u32> {
        let events = self.events();
        events.iter().rev().find_map(|event| match event.what {
            What::End {
                how: Ending::System | Ending::Step,
                ..
            } => None,
            What::End { call, .. } => Some(call),
            _ => None,
        })
    }

    /// The last call whose run of this step had its effect.
    pub(crate) fn step_effect(&self, of: u8) -> Option<u32> {
        let events = self.events();
        events.iter().rev().find_map(|event| match event.what {
            What::StepEffect { call, step } if step == of => Some(call),
            _ => None,
        })
    }

    /// Records that the store has this step's result, once.
    pub(crate) fn step_stored(&self, of: u8) {
        let events = self.all();
        let since = |event: &&Event| event.what != What::StepsDropped;
        let known = (events.iter().rev().take_while(since))
            .any(|event| event.what == What::StepStored { step: of });
        if !known {
            self.add(What::StepStored { step: of });
        }
    }

    /// Whether something of this kind has happened.
    pub(crate) fn has(&self, is: impl Fn(&What) -> bool) -> bool {
        self.events().iter().any(|event| is(&event.what))
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Event { at, store, what } in &*self.events() {
            let (at, store) = (at.as_secs_f64(), store.as_secs_f64());
            writeln!(f, "  {at:9.3} {store:9.3}  {what:?}")?;
        }
        Ok(())
    }
}
