//! The completion of nearly every call: one script, on the connection that is there, together with the completions that
//! are sent at the same time.
//!
//! A future by hand, because it is a part of every first call: small, without a name of its own, and with one state for
//! the wait for the reply. Every other case is a boxed future of [`RedisCore::complete`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{future, mem};

use bytes::Bytes;
use redis::Value;

use super::compare_and_set::{compared, completes, set_if_equal};
use super::large::LARGE;
use crate::record::Header;
use crate::store::redis::arguments::{decimal, millis};
use crate::store::redis::batches::{Form, SourceTurn};
use crate::store::redis::core::RedisCore;
use crate::store::redis::durability::WriteConcern;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::{Exchange, ReadyLink, RoutedCommand};
use crate::store::redis::script::Script;
use crate::store::redis::wire::{BatchCommand, Words};
use crate::store::{Boxed, CompleteReply, RecordKey, StoreError};

/// A completion.
pub(crate) struct Completing<'a> {
    core: &'a RedisCore,
    key: &'a RecordKey,
    claim: Option<&'a Header>,
    record: &'a Bytes,
    stage: CompletionStage<'a>,
}

enum CompletionStage<'a> {
    Unsent,
    Sent(Exchange<'a>, Command<'a>),
    Other(Boxed<'a, CompleteReply>),
}

/// The command in flight.
enum Command<'a> {
    CompareAndSet,
    /// The script for all cases.
    Script,
    /// That, or the script of batches with others.
    InBatch,
    /// The script of batches, by its source.
    Source(SourceTurn<'a>),
}

impl<'a> Completing<'a> {
    pub(crate) fn new(
        core: &'a RedisCore,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> Self {
        Self {
            core,
            key,
            claim,
            record,
            stage: CompletionStage::Unsent,
        }
    }

    /// Sends the command of this completion. `None`: nothing was sent.
    fn begin(&self) -> Option<(Result<Exchange<'a>, Failure>, Command<'a>)> {
        let (core, record) = (self.core, self.record);
        // A record with a journal is in the way of the shorter forms.
        if (self.claim).is_some_and(|claim| !claim.journal.is_none()) {
            return None;
        }
        let done = Header::decode(record).ok()?;
        let claim = self
            .claim
            .filter(|claim| core.compares && completes(claim, &done));
        if claim.is_none() && record.len() >= LARGE {
            return None;
        }
        let ready = core.link.ready(WriteConcern::Replicated)?;
        let retain = done.retain;
        self.key.with_name(|name| {
            if let Some(claim) = claim {
                let set = |words: &mut Words<'_>| set_if_equal(words, name, claim, retain, record);
                let exchange = ready.begin(&RoutedCommand::on_key(name, &set));
                return Some((exchange, Command::CompareAndSet));
            }
            let retain = decimal(millis(retain));
            let (key, arguments) = (name.as_bytes(), [&record[..], retain.as_bytes()]);
            let alone = |ready: ReadyLink<'a>, script: &Script, by_source| {
                let run =
                    |words: &mut Words<'_>| script.write(words, &[key], &arguments, by_source);
                ready.begin(&script.on_key(name, &run))
            };
            Some(match core.batches.form(|| ready.is_busy()) {
                Form::InBatch(script) => {
                    let command = BatchCommand {
                        script,
                        key,
                        arguments,
                    };
                    (ready.begin_in_batch(&command), Command::InBatch)
                }
                Form::BySource(turn) => {
                    let sent = alone(ready, &core.scripts.complete_batch, true);
                    (sent, Command::Source(turn))
                }
                Form::Alone => (alone(ready, &core.scripts.complete, false), Command::Script),
            })
        })
    }

    /// Continues by the script for all cases; with its reply, if that has arrived.
    fn complete(&self, reply: Option<Result<Value, Failure>>) -> CompletionStage<'a> {
        let (core, key, record) = (self.core, self.key, self.record);
        CompletionStage::Other(Box::pin(by_script(core, key, record, reply)))
    }

    /// Continues by the script for all cases, because the script of batches found no claim.
    fn complete_unseen(&self) -> CompletionStage<'a> {
        let (core, key, record) = (self.core, self.key, self.record);
        CompletionStage::Other(Box::pin(async move {
            let reply = by_script(core, key, record, None).await;
            if matches!(reply, Ok(CompleteReply::Stored { late: false })) {
                core.batches.missed();
            }
            reply
        }))
    }

    /// Decides by the reply of a command; `None`: the completion is stored.
    fn replied(
        &self,
        reply: Result<Value, Failure>,
        command: Command<'a>,
    ) -> Option<CompletionStage<'a>> {
        let batches = &self.core.batches;
        match (command, reply) {
            (Command::CompareAndSet, reply) => match compared(reply) {
                Ok(true) => None,
                Ok(false) => {
                    let (core, key, record) = (self.core, self.key, self.record);
                    Some(CompletionStage::Other(Box::pin(
                        core.complete(key, None, record),
                    )))
                }
                Err(error) => Some(CompletionStage::Other(Box::pin(future::ready(Err(error))))),
            },
            (Command::InBatch | Command::Source(_), Err(failure)) if batches.failed(&failure) => {
                Some(self.complete(None))
            }
            (Command::Source(turn), Ok(reply)) => {
                turn.confirm();
                (reply != Value::Int(1)).then(|| self.complete(None))
            }
            (Command::Script | Command::InBatch, Ok(Value::Int(1))) => None,
            // The script of batches leaves it to the other one.
            (Command::InBatch, Ok(Value::Int(0))) => Some(self.complete(None)),
            (Command::InBatch, Ok(Value::Int(-1))) => Some(self.complete_unseen()),
            (_, reply) => Some(self.complete(Some(reply))),
        }
    }
}

async fn by_script(
    core: &RedisCore,
    key: &RecordKey,
    record: &Bytes,
    reply: Option<Result<Value, Failure>>,
) -> Result<CompleteReply, StoreError> {
    match Header::decode(record) {
        Ok(done) => {
            let name = key.name();
            (core.complete_by_script(&name, done.retain, record, reply)).await
        }
        Err(error) => Ok(CompleteReply::Unreadable(error)),
    }
}

impl Future for Completing<'_> {
    type Output = Result<CompleteReply, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let stage = match &mut self.stage {
                CompletionStage::Unsent => match self.begin() {
                    Some((Ok(exchange), command)) => Some(CompletionStage::Sent(exchange, command)),
                    Some((Err(failure), command)) => self.replied(Err(failure), command),
                    None => {
                        let Self {
                            core,
                            key,
                            claim,
                            record,
                            ..
                        } = *self;
                        Some(CompletionStage::Other(Box::pin(
                            core.complete(key, claim, record),
                        )))
                    }
                },
                CompletionStage::Sent(exchange, command) => {
                    let reply = ready!(Pin::new(exchange).poll(cx));
                    let command = mem::replace(command, Command::Script);
                    self.replied(reply, command)
                }
                CompletionStage::Other(other) => return other.as_mut().poll(cx),
            };
            match stage {
                Some(stage) => self.stage = stage,
                None => return Poll::Ready(Ok(CompleteReply::Stored { late: false })),
            }
        }
    }
}
