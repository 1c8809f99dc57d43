//! The steps of a body.

use std::sync::Arc;

use idem_runtime::{Error, Reconciled, Step, step};
use idem_tests::payment::{PayError, Receipt};
use tokio::sync::Semaphore;

use crate::history::{History, What};

pub(crate) const NAMES: [&str; 2] = ["charge", "mail"];

/// A step of every body of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Interrupted, it is run again.
    Plain,
    /// Interrupted, its outcome is unknown.
    Once,
    /// Its hook is asked, which knows the truth.
    Asked,
}

/// What happens in the step of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Value,
    /// It fails, and had no effect.
    System,
    /// It fails, and may have had its effect.
    Unknown,
    /// It waits for the gate, and has its effect then.
    Waits,
    /// It waits for the gate behind its effect.
    WaitsBehindItsEffect,
    /// Its hook waits for the gate, and has found out before.
    HookWaits,
}

/// The steps of one call.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) history: History,
    pub(crate) call: u32,
    pub(crate) all: &'static [Part],
    pub(crate) turns: [Turn; NAMES.len()],
    pub(crate) gate: Arc<Semaphore>,
}

impl Parts {
    pub(crate) async fn run(&self) -> Result<(), PayError> {
        for ((number, name), part) in (0..).zip(NAMES).zip(self.all) {
            let work = async |cx: Step| self.part(number, cx).await;
            let got = match part {
                Part::Plain => step(name, work).await,
                Part::Once => step(name, work).once().await,
                Part::Asked => {
                    let hook = async |_: Step| self.find_out(number).await;
                    step(name, work).reconcile(hook).await
                }
            };
            self.history.add(What::StepGot {
                call: self.call,
                step: number,
                run: got?.run,
            });
        }
        Ok(())
    }

    fn turn(&self, step: u8) -> Turn {
        self.turns[usize::from(step)]
    }

    async fn wait(&self, step: u8, for_turn: Turn) {
        if self.turn(step) == for_turn {
            // Never closed.
            self.gate.acquire().await.expect("open").forget();
        }
    }

    async fn part(&self, step: u8, cx: Step) -> Result<Receipt, PayError> {
        let call = self.call;
        let fence = cx.context().fence().await?.get();
        self.history.add(What::StepStart { call, step, fence });
        self.wait(step, Turn::Waits).await;
        if self.turn(step) == Turn::System {
            return Err(PayError::Down);
        }
        self.history.add(What::StepEffect { call, step });
        self.wait(step, Turn::WaitsBehindItsEffect).await;
        match self.turn(step) {
            Turn::Unknown => Err(PayError::TimedOut),
            _ => Ok(Receipt { run: call }),
        }
    }

    async fn find_out(&self, step: u8) -> Result<Reconciled<Receipt>, Error> {
        let effect = self.history.step_effect(step);
        self.wait(step, Turn::HookWaits).await;
        Ok(effect.map_or(Reconciled::NotLanded, |run| {
            Reconciled::Landed(Receipt { run })
        }))
    }
}
