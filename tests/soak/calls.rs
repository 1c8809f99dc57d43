//! One call of a process: in the journal before and after what counts.

use std::future::ready;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::{fs, panic, thread};

use idem_runtime::admin::EntryState;
use idem_runtime::{Context, ErrorKind, OnCancel, Reconciled};
use idem_tests::checker::Family;
use idem_tests::checker::journal::Journal;

use crate::mix::{Ending, Plan};
use crate::outcome::{Failure, Receipt, told};
use crate::worker::Worker;

pub(crate) const PANIC: &str = "a body of the soak panics";

/// Reports how a body ended that did not get to its end.
struct Body<'a> {
    journal: &'a Journal,
    id: u32,
    key: &'a str,
    ended: bool,
}

impl Body<'_> {
    fn write(&self, how: &str) {
        let (id, key) = (self.id, self.key);
        self.journal.write(format_args!("end {id} {key} {how}"));
    }

    /// Reports how it ended.
    fn ends(mut self, answer: Result<Receipt, Failure>) -> Result<Receipt, Failure> {
        self.ended = true;
        self.write(&told(&answer));
        answer
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.write(if thread::panicking() { "panic" } else { "gone" });
        }
    }
}

impl Worker {
    /// A call, from its beginning to its end. Returns its outcome.
    pub(crate) async fn call(self: &Arc<Self>, plan: Plan) -> String {
        let id = self.next();
        let (key, payload) = (plan.key.clone(), plan.payload);
        self.journal
            .write(format_args!("call {id} {key} {payload}"));
        let this = Arc::clone(self);
        // In a task of its own, where it may panic.
        let told = tokio::spawn(async move {
            let leaves = plan.leaves;
            let made = Box::pin(this.made(id, plan));
            match leaves {
                None => told(&made.await),
                Some(after) => (tokio::time::timeout(after, made).await)
                    .map_or_else(|_| "gone".to_owned(), |answer| told(&answer)),
            }
        });
        let told = told.await.unwrap_or_else(|_| "panic".to_owned());
        self.journal.write(format_args!("told {id} {key} {told}"));
        told
    }

    async fn made(self: Arc<Self>, id: u32, plan: Plan) -> Result<Receipt, Failure> {
        let family = Family::of_key(&plan.key);
        let call = self.engine.operation(family.names().1);
        let call = call.key(&plan.key).fingerprint(&plan.payload);
        let call = call.on_running(plan.on_running);
        let body = async |context| self.body(&context, id, &plan, ready(Ok(()))).await;
        match family {
            Family::Once => call.max_attempts(Some(NonZeroU16::MIN)).run(body).await,
            Family::Unknown => call.on_cancel(OnCancel::Unknown).run(body).await,
            Family::Finished => {
                let this = Arc::clone(&self);
                let body = move |context| async move {
                    this.body(&context, id, &plan, ready(Ok(()))).await
                };
                call.finish(body).await
            }
            Family::Reconciled => {
                let hook = async |_| self.reconcile(id, &plan.key);
                call.run_reconciled(hook, body).await
            }
            Family::Booked => self.books.book(&self, call, id, &plan).await,
            Family::Plain | Family::Reset | Family::Corrected => call.run(body).await,
        }
    }

    /// The answer of a body: no other body gives it, and it names the payload.
    pub(crate) fn receipt(&self, id: u32, plan: &Plan) -> Receipt {
        Receipt(format!("{}.{id}/{}", self.number, plan.payload))
    }

    /// A body around these statements of its transaction, if it has one.
    pub(crate) async fn body(
        &self,
        context: &Context,
        id: u32,
        plan: &Plan,
        statements: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Receipt, Failure> {
        let (key, attempt, digest) = (&*plan.key, context.attempt(), context.key());
        self.journal
            .write(format_args!("start {id} {key} {attempt} {digest}"));
        let body = Body {
            journal: &self.journal,
            id,
            key,
            ended: false,
        };
        if plan.fence {
            // Nothing has happened yet if it cannot be had.
            let Ok(fence) = context.fence().await else {
                return body.ends(Err(Failure::Down));
            };
            let fence = fence.get();
            self.journal.write(format_args!("fence {id} {key} {fence}"));
        }
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause).await;
        }
        if let Err(error) = statements.await {
            return body.ends(Err(error));
        }
        let mut answer = self.receipt(id, plan);
        let lands = match plan.ending {
            Ending::Answer => true,
            Ending::Unknown => id.is_multiple_of(2),
            _ => false,
        };
        if lands && Family::of_key(key) == Family::Reconciled {
            answer = self.land(key, &answer);
        }
        body.ends(match plan.ending {
            Ending::Answer => Ok(answer),
            Ending::Declined => Err(Failure::Declined(answer)),
            Ending::Down => Err(Failure::Down),
            Ending::Unknown => Err(Failure::Unknown),
            #[allow(clippy::panic, reason = "that is what it is for")]
            Ending::Panic => panic::panic_any(PANIC),
        })
    }

    /// The effect of a body in a place that knows its key: the first one counts.
    fn land(&self, key: &str, Receipt(answer): &Receipt) -> Receipt {
        let place = self.effects.join(key);
        let draft = self.effects.join(answer.replace('/', "-"));
        fs::write(&draft, answer).expect("the disk has room for effects");
        // A link appears whole or not at all.
        drop(fs::hard_link(&draft, &place));
        drop(fs::remove_file(&draft));
        Receipt(fs::read_to_string(&place).expect("an effect has landed"))
    }

    fn reconcile(&self, id: u32, key: &str) -> Reconciled<Receipt> {
        let (verdict, found) = match fs::read_to_string(self.effects.join(key)) {
            _ if id.is_multiple_of(10) => ("unknown", Reconciled::Unknown),
            Ok(answer) => ("landed", Reconciled::Landed(Receipt(answer))),
            Err(_) => ("not", Reconciled::NotLanded),
        };
        self.journal
            .write(format_args!("hook {id} {key} {verdict}"));
        found
    }

    /// An operator reads a record, then resets or resolves it.
    pub(crate) async fn operate(&self, key: &str, resolves: bool) {
        let family = Family::of_key(key);
        let call = self.engine.operation(family.names().1).key(key);
        let Ok(Some(entry)) = call.entry().await else {
            return;
        };
        let resolves = resolves || family == Family::Unknown;
        if matches!(entry.state(), EntryState::Running { .. })
            || (resolves && entry.state() != EntryState::Unknown)
        {
            return;
        }
        let id = self.next();
        let receipt = Receipt(format!("{}.{id}/0", self.number));
        let (word, answer) = if resolves {
            ("resolve", format!(" {}", receipt.0))
        } else {
            ("reset", String::new())
        };
        let write = |how| {
            self.journal
                .write(format_args!("{word} {id} {key} {how}{answer}"));
        };
        write("begin");
        let done = if resolves {
            entry.resolve(&receipt).await
        } else {
            entry.reset().await
        };
        write(match done {
            Ok(()) => "done",
            // It may yet happen.
            Err(error) if *error.kind() == ErrorKind::StoreUnavailable => "perhaps",
            Err(_) => "failed",
        });
    }
}
