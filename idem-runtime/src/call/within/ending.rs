//! The end of a call in a transaction.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;

use super::{TxEnd, TxRun, TxScope, failure, transactional_store};
use crate::call::call_watch::{CallTimes, result_of, unprotected};
use crate::call::context::Context;
use crate::call::engine::Engine;
use crate::call::settlement::{REPLY, report_losses};
use crate::env::call_end::CallOutcome;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::RecordKey;
use crate::outcome::codec::{Encoded, EncodedAnswer};
use crate::outcome::provenance::AnswerSource;
use crate::record::unknown_cause::Cause;
use crate::record::{HEADER, Header, OutcomeKind, State};
use crate::store::sql::{SqlTransaction, TxError};

impl<O, P, T: SqlTransaction + ?Sized> TxRun<'_, O, P, T> {
    /// The scope of the body, and the transaction that it writes through.
    pub fn split(&mut self) -> (TxScope, &mut T) {
        let scope = TxScope(self.context.clone(), self.watch.span());
        (scope, self.part.tx)
    }

    fn body_ended(&mut self, outcome: CallOutcome) {
        self.watch.note(|times| times.body_ended(outcome));
    }

    /// The end of the call: the store has replied to the result of the body.
    fn settled(&mut self) {
        self.watch.note(CallTimes::settled);
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Stores the body's answer in the transaction, or undoes the body's writes.
    pub async fn finish(mut self, end: TxEnd<O>) -> O {
        match end {
            TxEnd(Ok(output)) => {
                self.output.value = Some(output);
                let span = self.watch.span();
                span.instrument(Box::pin(self.store_or_undo())).await;
                self.settled();
                self.output.take()
            }
            TxEnd(Err(panic)) => {
                self.body_ended(CallOutcome::Panicked);
                let span = self.watch.span();
                span.in_scope(|| self.emit(EventKind::Panicked));
                // If the undo fails, the owner of the transaction rolls it back.
                let _ = span.instrument(Box::pin(self.undo())).await;
                self.settled();
                drop(self);
                resume_unwind(panic)
            }
        }
    }

    /// Undoes the writes of the body. The call ends with this error, and nothing of it is stored.
    pub(crate) async fn give_up(mut self, error: Error) -> O {
        self.body_ended(CallOutcome::refused(&error));
        let span = self.watch.span();
        let undone = span.clone().instrument(Box::pin(self.undo())).await;
        self.settled();
        span.in_scope(|| self.refuse(undone.err().unwrap_or(error)));
        self.output.take()
    }

    fn emit(&self, kind: EventKind<'_>) {
        let label = self.policy.label.as_ref();
        (self.engine.core).emit_labelled(&self.running.name.key, label, kind);
    }

    /// Undoes the call's part of the transaction, claim included.
    async fn undo(&mut self) -> Result<(), Error> {
        let key = &self.running.name.key;
        if self.part.own {
            self.part.roll_back(&self.engine.core).await;
            return Ok(());
        }
        if self.claim.is_none() {
            return Ok(());
        }
        let store = transactional_store(&self.engine, key)?;
        let undone = Box::pin(store.undo_within(self.part.tx.session(), key));
        let undone = before_deadline(&self.engine, key, undone).await;
        match (&undone, &mut self.claimed) {
            (Ok(()), Some(claimed)) => claimed.undone(),
            (Ok(()), None) => {}
            (Err(_), _) => self.part.leave(&self.engine.core).await,
        }
        undone
    }

    /// Stores the output, or undoes the call's part, by its class.
    async fn store_or_undo(&mut self) {
        let attempt = self
            .claim
            .map_or(self.context.attempt(), |claim| claim.attempts);
        let output = self.output.any();
        output.set_provenance(AnswerSource::Executed, attempt, Duration::ZERO);
        let succeeded = output.succeeded();
        let Some(claim) = self.claim else {
            let outcome = unprotected(output);
            self.body_ended(outcome);
            if let Err(error) = self.commit_or_roll_back(succeeded).await {
                self.refuse(error);
            }
            return;
        };
        let format = &self.engine.core.format;
        let encoded = output.write(format);
        self.watch
            .note(|times| times.body_ended(CallOutcome::Executed(result_of(&encoded))));
        match format.seal(self.running.name.key.digest(), claim.fingerprint, encoded) {
            Encoded::Release(_) => match self.undo().await {
                Ok(()) => self.emit(EventKind::Released { counted: false }),
                // The body's error is more specific, but its caller would commit: and the commit of a transaction that
                // the server has rolled back for a deadlock succeeds.
                Err(error) => self.refuse(error),
            },
            Encoded::Store(answer) => {
                report_losses(&answer, |kind| self.emit(kind));
                let (outcome, schema) = (answer.outcome, answer.schema);
                let stored = self.store(claim, answer, !succeeded).await;
                match stored {
                    Ok(()) => {
                        let cause = match outcome {
                            OutcomeKind::Unknown => Cause::of(schema).map(Cause::as_str),
                            _ => None,
                        };
                        self.emit(EventKind::Completed {
                            outcome,
                            late: false,
                            cause,
                        });
                    }
                    // The effect is in the transaction, and is rolled back with it.
                    Err(error) => self.refuse(error),
                }
            }
        }
    }

    fn refuse(&mut self, error: Error) {
        self.emit(EventKind::Refused { error: &error });
        self.watch
            .note(|times| times.set(CallOutcome::refused(&error)));
        self.output.any().refuse(error);
    }

    async fn store(
        &mut self,
        claim: Header,
        answer: EncodedAnswer,
        undo: bool,
    ) -> Result<(), Error> {
        let EncodedAnswer {
            outcome,
            schema,
            mut record,
            life,
            ..
        } = answer;
        let header = Header {
            state: State::Done { outcome, schema },
            retain: self.policy.life_of(outcome, life),
            ..claim
        };
        record[..HEADER].copy_from_slice(&header.encode());
        let record = Bytes::from(record);
        let store = transactional_store(&self.engine, &self.running.name.key)?;
        let session = self.part.tx.session();
        let key = &self.running.name.key;
        let stored = Box::pin(store.complete_within(session, key, &record, undo));
        let stored = before_deadline(&self.engine, &self.running.name.key, stored).await;
        if stored.is_err() {
            self.part.leave(&self.engine.core).await;
        }
        stored?;
        self.commit_or_roll_back(true).await
    }

    /// Ends a transaction that was begun for this call; the caller ends any other.
    async fn commit_or_roll_back(&mut self, commits: bool) -> Result<(), Error> {
        let core = &self.engine.core;
        if self.part.own && !commits {
            self.part.roll_back(core).await;
            return Ok(());
        }
        let is_even = self.part.is_even(&self.running.name.key);
        if is_even.is_err() {
            self.part.leave(core).await;
            return is_even;
        }
        if !self.part.own {
            return Ok(());
        }
        let moment = core.clock.now() + core.limits.complete_deadline.max(REPLY);
        let committing = self.part.tx.session().commit();
        let committed = deadline(&*core.clock, moment, pin!(committing)).await;
        let operation = self.running.name.key.operation();
        match committed {
            Ok(Ok(())) => {
                self.part.own = false;
                Ok(())
            }
            // The server has refused the commit.
            Ok(Err(error)) if !error.is_silence() => {
                self.part.roll_back(core).await;
                let error = operation.error(ErrorKind::TransactionAborted);
                Err(error.detail("the server refused to commit it"))
            }
            Ok(Err(_)) | Err(_) => Err(operation.error(ErrorKind::CommitUnknown)),
        }
    }
}

pub(super) async fn before_deadline(
    engine: &Engine,
    key: &RecordKey,
    work: impl Future<Output = Result<(), TxError>>,
) -> Result<(), Error> {
    let core = &engine.core;
    let moment = core.clock.now() + core.limits.complete_deadline.max(REPLY);
    let Ok(done) = deadline(&*core.clock, moment, pin!(work)).await else {
        let error = key.error(ErrorKind::TransactionAborted);
        return Err(error.detail("no reply within its deadline"));
    };
    done.map_err(|failed| failure(key, failed))
}
