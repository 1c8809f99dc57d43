//! A fixture in which time stands still until nothing else can happen.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use idem_harness::HANG_LIMIT;
use idem_runtime::clock::Clock;
use idem_runtime::store::Store;
use idem_runtime::store::author::{ReadReply, State};
use idem_runtime::testing::{Fault, Faulty};
use idem_runtime::{Engine, Observer, key::KeyDigest, observe::EventKind};
use idem_tests::fixture::Fixture;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::history::{History, What};
use crate::parts::Part;
use crate::sweep::Set;
use crate::tap::{ECHO, Echo, Tap, Traffic};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// When something that is held arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before any time passes.
    Soon,
    /// When everything else has settled.
    Late,
    /// When later calls have been made as well.
    Last,
}

/// A fault, and which operation it strikes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    pub(crate) step: usize,
    pub(crate) fault: Fault,
    pub(crate) when: When,
}

impl Strike {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.fault, Fault::Held | Fault::ReplyHeld)
    }
}

/// Two engines, as in two processes, on one store with faults; everything that happens is written
/// down.
pub(crate) struct Simulation {
    fixture: Fixture,
    pub(crate) near: Engine,
    pub(crate) far: Engine,
    pub(crate) history: History,
    pub(crate) parts: &'static [Part],
    faulty: Faulty,
    traffic: Traffic,
    passed: Arc<Mutex<Duration>>,
    /// Gets a permit from each engine that is idle and released.
    gone: Arc<Semaphore>,
    echo: String,
    held: RefCell<Vec<Strike>>,
    last: usize,
    calls: RefCell<Vec<JoinHandle<()>>>,
    next_call: Cell<u32>,
    /// Something was done since everything was quiet.
    stirred: Cell<bool>,
}

/// The result of a finished simulation.
pub(crate) struct End {
    pub(crate) history: History,
    /// The operations that were sent, in short.
    pub(crate) operations: Vec<String>,
}

/// Records an engine's reports of answers that are not stored.
#[derive(Debug)]
struct Ear {
    far: bool,
    history: History,
}

impl Observer for Ear {
    fn observe(&self, event: &idem_runtime::observe::Event<'_>) {
        match event.kind {
            EventKind::Unsaved { .. } => self.history.add(What::Unsaved { far: self.far }),
            EventKind::LeaseLost { .. } => self.history.add(What::LeaseLost { far: self.far }),
            _ => {}
        }
    }
}

impl Simulation {
    /// `set` is how the path sets both engines; `ticks` says that the store's time passes by itself
    /// as well.
    pub(crate) fn new(
        fixture: Fixture,
        ticks: bool,
        (set, parts): (&Set, &'static [Part]),
        strikes: &[Strike],
    ) -> Self {
        let passed: Arc<Mutex<Duration>> = Arc::default();
        let (clock, store_passed, begun) =
            (fixture.clock.clone(), Arc::clone(&passed), Instant::now());
        let history = History::new(move || {
            let passed = *store_passed.lock().unwrap_or_else(PoisonError::into_inner);
            let itself = if ticks {
                begun.elapsed()
            } else {
                Duration::ZERO
            };
            (clock.now(), passed + itself)
        });
        let traffic = Traffic::default();
        let faulty = Faulty::new(Tap {
            store: Arc::new(fixture.store.clone()),
            history: history.clone(),
            traffic: traffic.clone(),
        });
        for strike in strikes {
            faulty.fail_at(strike.step, strike.fault);
        }
        let gone = Arc::new(Semaphore::new(0));
        let prefix = fixture.key().prefix().to_owned();
        let [near, far] = [false, true].map(|far| {
            let history = history.clone();
            let builder = Engine::builder(Echo {
                store: faulty.clone(),
                gone: Arc::clone(&gone),
            })
            .prefix(prefix.clone())
            .clock(fixture.clock.clone())
            .observer(Ear { far, history });
            set(builder)
                .build()
                .expect("the settings are within bounds")
        });
        // Read all the time, and answered at once: the first letter of its alphabet, all along.
        let echo = KeyDigest::from_bytes([0; 32]);
        Self {
            near,
            far,
            history,
            parts,
            faulty,
            traffic,
            passed,
            gone,
            echo: echo.to_string(),
            held: strikes
                .iter()
                .copied()
                .filter(Strike::is_held)
                .collect::<Vec<_>>()
                .into(),
            last: strikes.iter().map(|strike| strike.step).max().unwrap_or(0),
            calls: RefCell::default(),
            next_call: Cell::new(1),
            stirred: Cell::new(true),
            fixture,
        }
    }

    /// How many operations were sent.
    pub(crate) fn sent(&self) -> usize {
        self.faulty.log().len()
    }

    /// Whether some step is still to be struck.
    pub(crate) fn strikes_on(&self) -> bool {
        self.sent() <= self.last
    }

    /// The operations that were sent, in short.
    fn operations(&self) -> Vec<String> {
        let log = self.faulty.log();
        log.iter()
            .map(|sent| format!("{:?}", sent.operation))
            .collect()
    }

    pub(crate) fn number(&self) -> u32 {
        self.next_call.replace(self.next_call.get() + 1)
    }

    pub(crate) fn keep(&self, call: JoinHandle<()>) -> usize {
        self.stir();
        let mut calls = self.calls.borrow_mut();
        calls.push(call);
        calls.len() - 1
    }

    pub(crate) fn drop_call(&self, place: usize) {
        self.stir();
        self.calls.borrow()[place].abort();
    }

    pub(crate) fn has_ended(&self, place: usize) -> bool {
        self.calls.borrow()[place].is_finished()
    }

    /// Something is done to the tasks, the store, or the time.
    pub(crate) fn stir(&self) {
        self.stirred.set(true);
    }

    /// Everything happens that can happen while time stands still: nothing is on its way, both
    /// engines' threads have done what they had to do, and so have the tasks of this one. Twice,
    /// because the last may have given something to the first. At once, if nothing was done since the last time.
    pub(crate) async fn quiet(&self) {
        if !self.stirred.take() {
            return;
        }
        let mut last = None;
        let mut same = 0;
        while same < 2 {
            self.traffic.over().await;
            let [near, far] = [&self.near, &self.far].map(|engine| engine.entry(ECHO, &self.echo));
            let echoes = tokio::try_join!(near, far);
            echoes.expect("no fault strikes an echo");
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            let now = (
                self.sent(),
                self.history.len(),
                self.fixture.clock.next_wake(),
            );
            same = if last == Some(now) { same + 1 } else { 0 };
            last = Some(now);
        }
    }

    fn deliver(&self, when: When) -> bool {
        let sent = self.sent();
        let mut any = false;
        self.held.borrow_mut().retain(|strike| {
            let due = strike.when == when && strike.step < sent;
            if due {
                self.faulty.deliver();
                self.stir();
                any = true;
            }
            !due
        });
        any
    }

    /// Lets events happen until the condition holds. Time passes when nothing else can happen.
    pub(crate) async fn drive(&self, until: impl Fn(&Self) -> bool) {
        for _ in 0..5_000 {
            self.quiet().await;
            if self.deliver(When::Soon) {
                continue;
            }
            if until(self) {
                return;
            }
            match self.fixture.clock.next_wake() {
                Some(time) => self.pass(time),
                None if self.deliver(When::Late) => {}
                None => break,
            }
        }
        self.history.add(What::Stuck);
    }

    /// Until every call has ended and nothing goes on in the background.
    pub(crate) async fn settle(&self) {
        let ended = |simulation: &Self| {
            simulation
                .calls
                .borrow()
                .iter()
                .all(JoinHandle::is_finished)
        };
        let settled =
            |simulation: &Self| ended(simulation) && simulation.fixture.clock.next_wake().is_none();
        self.drive(settled).await;
        if self.deliver(When::Late) {
            self.drive(settled).await;
        }
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.pause(time);
        self.fixture.clock.advance(time);
    }

    /// Time passes in the store: both processes are paused.
    pub(crate) fn pause(&self, time: Duration) {
        self.stir();
        self.fixture.pass_in_store(time);
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    /// Delivers the operations held until now.
    pub(crate) async fn deliver_last(&self) -> bool {
        let any = self.deliver(When::Last);
        self.settle().await;
        any
    }

    /// Reads the stored record, shuts both engines down, and lets them go.
    pub(crate) async fn close(self) -> End {
        let left = self.fixture.store.read(&self.fixture.key()).await;
        // Old records would be scanned by every later step of time.
        self.fixture.pass_in_store(Duration::from_hours(24 * 365));
        let left = match left.expect("no fault strikes a look behind the faults") {
            ReadReply::Found { record, .. } => match record.header.state {
                State::Done { outcome, .. } => Some(outcome),
                _ => None,
            },
            _ => None,
        };
        self.history.add(What::Left(left));
        for far in [false, true] {
            let engine = if far {
                self.far.clone()
            } else {
                self.near.clone()
            };
            let history = self.history.clone();
            self.keep(tokio::spawn(async move {
                let idle = engine.shutdown(Duration::from_mins(1)).await.is_ok();
                history.add(What::Idle { far, idle });
            }));
        }
        self.settle().await;
        let (operations, history) = (self.operations(), self.history.clone());
        let gone = Arc::clone(&self.gone);
        drop(self);
        // Only something that holds the two engines reaches the limit.
        let gone = tokio::time::timeout(HANG_LIMIT, gone.acquire_many(2)).await;
        if gone.is_ok() {
            history.add(What::Gone);
        }
        End {
            history,
            operations,
        }
    }
}
