//! The calls of a path.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::{
    Context, Error, Reconciled,
    admin::{Entry, EntryState},
};
use idem_tests::payment::{PayError, Receipt};
use tokio::sync::Semaphore;

use crate::history::{Ending, History, Said, What};
use crate::parts::{NAMES, Parts, Turn};
use crate::simulation::{LEASE, Simulation};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// The knowledge of the other side: the effect of the last body that came that far, or of none.
    Truth,
    NotLanded,
    Undecided,
    /// Nothing, however often it is called.
    Silent,
}

/// A call before it is made.
pub(crate) struct Plan<'a> {
    simulation: &'a Simulation,
    far: bool,
    ends: Ending,
    opens: usize,
    hook: Option<Hook>,
    finishes: bool,
    turns: [Turn; NAMES.len()],
}

pub(crate) struct Call<'a> {
    simulation: &'a Simulation,
    number: u32,
    place: usize,
    gate: Arc<Semaphore>,
    step_gate: Arc<Semaphore>,
}

impl Simulation {
    /// A call in this process, whose body ends well and at once.
    pub(crate) fn call(&self) -> Plan<'_> {
        Plan {
            simulation: self,
            far: false,
            ends: Ending::Value,
            opens: 1,
            hook: None,
            finishes: false,
            turns: [Turn::Value; NAMES.len()],
        }
    }

    /// The same in another process.
    pub(crate) fn far(&self) -> Plan<'_> {
        Plan {
            far: true,
            ..self.call()
        }
    }

    /// An operator reads the stored record, and resolves an unknown outcome.
    pub(crate) async fn by_hand<F>(&self, act: impl FnOnce(Entry) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Error>> + Send,
    {
        let look = self.near.operation("pay").key(&7).entry();
        self.keep(tokio::spawn(async move {
            if let Ok(Some(entry)) = look.await
                && entry.state() == EntryState::Unknown
            {
                // If it is unknown whether the action happened, the operator reads the record again.
                let _ = act(entry).await;
            }
        }));
        self.settle().await;
    }

    /// Later calls of the key: in this process, in the other, and both again when no claim can last any more.
    pub(crate) async fn later(&self, hook: Option<Hook>) {
        self.settle().await;
        for passes in [Duration::ZERO, LEASE] {
            self.pass(passes);
            for far in [false, true] {
                let plan = if far { self.far() } else { self.call() };
                Plan { hook, ..plan }.make();
                self.settle().await;
            }
        }
        if self.deliver_last().await {
            // Boxed: it is itself.
            return Box::pin(self.later(hook)).await;
        }
        // A later call that no fault strikes any more.
        while self.strikes_on() {
            self.call().make().ended().await;
        }
        Plan { hook, ..self.far() }.make();
        self.settle().await;
    }
}

impl<'a> Plan<'a> {
    pub(crate) fn ends(self, ends: Ending) -> Self {
        Self { ends, ..self }
    }

    /// Its body goes on when it is let.
    pub(crate) fn paused(self) -> Self {
        Self { opens: 0, ..self }
    }

    /// What happens in a step of its body.
    pub(crate) fn turn(mut self, step: u8, turn: Turn) -> Self {
        self.turns[usize::from(step)] = turn;
        self
    }

    pub(crate) fn hook(self, hook: Option<Hook>) -> Self {
        Self { hook, ..self }
    }

    /// Its body runs to its end without its caller.
    pub(crate) fn finishes(self) -> Self {
        Self {
            finishes: true,
            ..self
        }
    }

    pub(crate) fn make(self) -> Call<'a> {
        let simulation = self.simulation;
        let (number, gate) = (simulation.number(), Arc::new(Semaphore::new(self.opens)));
        let step_gate = Arc::new(Semaphore::new(0));
        let engine = if self.far {
            &simulation.far
        } else {
            &simulation.near
        };
        let builder = engine.operation("pay").key(&7);
        let body = Body {
            history: simulation.history.clone(),
            call: number,
            ends: self.ends,
            gate: Arc::clone(&gate),
            parts: Parts {
                history: simulation.history.clone(),
                call: number,
                all: simulation.parts,
                turns: self.turns,
                gate: Arc::clone(&step_gate),
            },
        };
        let back = Back {
            history: simulation.history.clone(),
            call: number,
            said: Said::Nothing,
        };
        simulation.history.add(What::Called {
            call: number,
            far: self.far,
        });
        let place = simulation.keep(tokio::spawn(async move {
            let mut back = back;
            let answer = match self.hook {
                None if self.finishes => builder.finish(move |cx| body.run(cx)).await,
                None => builder.run(move |cx| body.run(cx)).await,
                Some(hook) => {
                    let history = back.history.clone();
                    let hook = |cx| hook.speak(history, cx);
                    builder.run_reconciled(hook, |cx| body.run(cx)).await
                }
            };
            back.said = Said::of(answer);
        }));
        Call {
            simulation,
            number,
            place,
            gate,
            step_gate,
        }
    }
}

impl Call<'_> {
    /// Lets its body go on.
    pub(crate) fn open(&self) {
        self.simulation.stir();
        self.gate.add_permits(1);
        self.step_gate.add_permits(1);
    }

    /// Until its body is in this step, or it has ended without.
    pub(crate) async fn reached(&self, of: u8) {
        let reached = |simulation: &Simulation| {
            let is_it = |what: &What| matches!(what, What::StepStart { call, step, .. } if (*call, *step) == (self.number, of));
            simulation.has_ended(self.place) || simulation.history.has(is_it)
        };
        self.simulation.drive(reached).await;
    }

    /// Until its body runs, or it has ended without.
    pub(crate) async fn started(&self) {
        let started = |simulation: &Simulation| {
            simulation.has_ended(self.place)
                || simulation
                    .history
                    .has(|what| matches!(what, What::Start { call, .. } if *call == self.number))
        };
        self.simulation.drive(started).await;
    }

    pub(crate) async fn ended(&self) {
        self.simulation
            .drive(|simulation| simulation.has_ended(self.place))
            .await;
    }

    pub(crate) fn go_away(&self) {
        self.simulation.drop_call(self.place);
    }
}

impl Hook {
    async fn speak(self, history: History, cx: Context) -> Result<Reconciled<Receipt>, Error> {
        let verdict = match self {
            Self::Truth => (history.effect()).map_or(Reconciled::NotLanded, |run| {
                Reconciled::Landed(Receipt { run })
            }),
            Self::NotLanded => Reconciled::NotLanded,
            Self::Undecided => Reconciled::Unknown,
            Self::Silent => pending().await,
        };
        history.add(What::Verdict {
            fence: cx.fence().await?.get(),
            not_landed: verdict == Reconciled::NotLanded,
        });
        Ok(verdict)
    }
}

struct Body {
    history: History,
    call: u32,
    ends: Ending,
    gate: Arc<Semaphore>,
    parts: Parts,
}

impl Body {
    async fn run(self, cx: Context) -> Result<Receipt, PayError> {
        let run = self.call;
        self.history.add(What::Start {
            call: run,
            fence: cx.fence().await?.get(),
            attempt: cx.attempt(),
        });
        let mut end = End {
            history: self.history,
            call: run,
            how: Ending::Dropped,
        };
        if let Err(error) = self.parts.run().await {
            end.how = match error {
                PayError::Idem(_) => Ending::Step,
                PayError::TimedOut => Ending::Unknown,
                _ => Ending::System,
            };
            return Err(error);
        }
        // Never closed.
        self.gate.acquire().await.expect("open").forget();
        end.how = self.ends;
        match self.ends {
            Ending::Value => Ok(Receipt { run }),
            Ending::Business => Err(PayError::Declined { run }),
            Ending::System => Err(PayError::Down),
            Ending::Unknown => Err(PayError::TimedOut),
            // As a panic, without its message.
            Ending::Panic => resume_unwind(Box::new("a bug")),
            Ending::Dropped | Ending::Step => pending().await,
        }
    }
}

/// Records how a body ended, when it is dropped.
struct End {
    history: History,
    call: u32,
    how: Ending,
}

impl Drop for End {
    fn drop(&mut self) {
        let (call, how) = (self.call, self.how);
        self.history.add(What::End { call, how });
    }
}

/// Records the outcome of a caller, when it is dropped.
struct Back {
    history: History,
    call: u32,
    said: Said,
}

impl Drop for Back {
    fn drop(&mut self) {
        let (call, said) = (self.call, self.said.clone());
        self.history.add(What::Returned { call, said });
    }
}
