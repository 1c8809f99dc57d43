//! Completions: by compare-and-set, staged, or by script.
//!
//! On the connection that is there, a completion is one command: `SET … IFEQ` on servers with compare-and-set, or else a
//! script, together with the completions that are sent at the same time. Every other case is a boxed future.

mod large;

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use self::large::LARGE;
use super::arguments::{decimal, millis};
use super::batches::{Form, SourceTurn};
use super::core::{RedisCore, Stage};
use super::durability::WriteConcern;
use super::failure::Failure;
use super::link::{BatchCommand, Exchange, ReadyLink, RoutedCommand, Words};
use super::reply::unexpected;
use super::script::Script;
use crate::store::{CompleteReply, Header, RecordKey, StoreError};

/// The command of a completion in flight.
enum Command<'a> {
    CompareAndSet,
    /// The script for all cases.
    Script,
    /// That, or the script of batches with others.
    InBatch,
    /// The script of batches, by its source.
    Source(SourceTurn<'a>),
}

/// How a completion goes on that its first command did not store.
enum Next {
    /// As one that has no claim to compare with.
    Uncompared,
    /// By the script for all cases; with its reply, if that has arrived.
    Script(Option<Result<Value, Failure>>),
    /// By the script for all cases, because the script of batches found no claim.
    Unseen,
}

const STORED: CompleteReply = CompleteReply::Stored { late: false };

impl RedisCore {
    /// Completes. An `async` block would be several times as large, and this future is a part of every first call.
    pub(super) fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> impl Future<Output = Result<CompleteReply, StoreError>> + use<'a> {
        let mut stage = Stage::Unsent;
        poll_fn(move |cx| {
            loop {
                let (reply, command) = match &mut stage {
                    Stage::Unsent => match self.begin_completion(key, claim, record) {
                        Some((Ok(exchange), command)) => {
                            stage = Stage::Sent(exchange, command);
                            continue;
                        }
                        Some((Err(failure), command)) => (Err(failure), command),
                        None => {
                            let routed = self.complete_routed(key, claim, record);
                            stage = Stage::Other(Box::pin(routed));
                            continue;
                        }
                    },
                    Stage::Sent(exchange, command) => {
                        let reply = ready!(Pin::new(exchange).poll(cx));
                        (reply, mem::replace(command, Command::Script))
                    }
                    Stage::Other(other) => return other.as_mut().poll(cx),
                };
                match self.completed(reply, command)? {
                    None => return Poll::Ready(Ok(STORED)),
                    Some(next) => {
                        let other = self.complete_next(key, record, next);
                        stage = Stage::Other(Box::pin(other));
                    }
                }
            }
        })
    }

    /// Sends the command of a completion. `None`: nothing was sent.
    fn begin_completion<'a>(
        &'a self,
        key: &RecordKey,
        claim: Option<&Header>,
        record: &Bytes,
    ) -> Option<(Result<Exchange<'a>, Failure>, Command<'a>)> {
        if has_journal(claim) {
            return None;
        }
        let done = Header::decode(record).ok()?;
        let claim = claim.filter(|claim| self.compares && completes(claim, &done));
        if claim.is_none() && record.len() >= LARGE {
            return None;
        }
        let ready = self.link.ready(WriteConcern::Replicated)?;
        let retain = done.retain;
        Some(key.with_name(|name| {
            if let Some(claim) = claim {
                let set = |words: &mut Words<'_>| set_if_equal(words, name, claim, retain, record);
                let exchange = ready.begin(&RoutedCommand::on_key(name, &set));
                return (exchange, Command::CompareAndSet);
            }
            let retain = decimal(millis(retain));
            let (key, arguments) = (name.as_bytes(), [&record[..], retain.as_bytes()]);
            let alone = |ready: ReadyLink<'a>, script: &Script, by_source| {
                let run =
                    |words: &mut Words<'_>| script.write(words, &[key], &arguments, by_source);
                ready.begin(&script.on_key(name, &run))
            };
            match self.batches.form(|| ready.is_busy()) {
                Form::InBatch(script) => {
                    let command = BatchCommand {
                        script,
                        key,
                        arguments,
                    };
                    (ready.begin_in_batch(&command), Command::InBatch)
                }
                Form::BySource(turn) => {
                    let sent = alone(ready, &self.scripts.complete_batch, true);
                    (sent, Command::Source(turn))
                }
                Form::Alone => (alone(ready, &self.scripts.complete, false), Command::Script),
            }
        }))
    }

    /// Decides by the reply of a command; `None`: the completion is stored.
    fn completed(
        &self,
        reply: Result<Value, Failure>,
        command: Command<'_>,
    ) -> Result<Option<Next>, StoreError> {
        let next = match (command, reply) {
            (Command::CompareAndSet, reply) => {
                return Ok((!compared(reply)?).then_some(Next::Uncompared));
            }
            (Command::InBatch | Command::Source(_), Err(failure))
                if self.batches.failed(&failure) =>
            {
                Next::Script(None)
            }
            (Command::Source(turn), Ok(reply)) => {
                turn.confirm();
                if reply == Value::Int(1) {
                    return Ok(None);
                }
                Next::Script(None)
            }
            (Command::Script | Command::InBatch, Ok(Value::Int(1))) => return Ok(None),
            // The script of batches leaves it to the other one.
            (Command::InBatch, Ok(Value::Int(0))) => Next::Script(None),
            (Command::InBatch, Ok(Value::Int(-1))) => Next::Unseen,
            (_, reply) => Next::Script(Some(reply)),
        };
        Ok(Some(next))
    }

    async fn complete_next(
        &self,
        key: &RecordKey,
        record: &Bytes,
        next: Next,
    ) -> Result<CompleteReply, StoreError> {
        let (reply, is_unseen) = match next {
            Next::Uncompared => return self.complete_routed(key, None, record).await,
            Next::Script(reply) => (reply, false),
            Next::Unseen => (None, true),
        };
        let retain = match Header::decode(record) {
            Ok(done) => done.retain,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let stored = (self.complete_by_script(&key.name(), retain, record, reply)).await?;
        if is_unseen && matches!(stored, STORED) {
            self.batches.missed();
        }
        Ok(stored)
    }

    /// Completes where commands are routed or wait for replicas, where there is no connection, and a record that is
    /// large or has a journal.
    async fn complete_routed(
        &self,
        key: &RecordKey,
        claim: Option<&Header>,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let (name, retain) = (key.name(), done.retain);
        // A record with a journal is in the way of both shorter forms.
        if !has_journal(claim) {
            if let Some(claim) = claim.filter(|claim| self.compares && completes(claim, &done)) {
                let set = |words: &mut Words<'_>| set_if_equal(words, &name, claim, retain, record);
                let command = RoutedCommand::on_key(&name, &set);
                if compared(self.link.send(&command, WriteConcern::Replicated).await)? {
                    return Ok(STORED);
                }
            }
            if record.len() >= LARGE && self.complete_large(key, &name, &done, record).await? {
                return Ok(STORED);
            }
        }
        self.complete_by_script(&name, retain, record, None).await
    }

    /// Completes by the script, whose reply may have arrived already.
    async fn complete_by_script(
        &self,
        name: &str,
        retain: Duration,
        record: &Bytes,
        mut reply: Option<Result<Value, Failure>>,
    ) -> Result<CompleteReply, StoreError> {
        let (what, script) = ("a completion", &self.scripts.complete);
        let ttl = decimal(millis(retain));
        let arguments: [&[u8]; 2] = [record, ttl.as_bytes()];
        loop {
            let answer = match reply.take() {
                Some(reply) => {
                    let answer = self.link.replied(what, script, name, &arguments, reply);
                    answer.await?
                }
                None => self.run(what, script, name, &arguments).await?,
            };
            if let Some(error) = answer.unreadable() {
                return Ok(CompleteReply::Unreadable(error));
            }
            return Ok(match answer.code {
                b'C' => CompleteReply::Stored {
                    late: answer.number()? == 1,
                },
                b'S' => CompleteReply::Superseded {
                    lease_left: answer.millis()?,
                },
                b'M' => CompleteReply::Mismatch,
                b'D' | b'G' => {
                    let asked = Header::decode(record)
                        .map_err(|_| unexpected())?
                        .fingerprint;
                    match self.read_answer(name, answer, asked).await? {
                        Some((Ok(record), left)) => CompleteReply::Adopted { record, left },
                        Some((Err(error), _)) => CompleteReply::Unreadable(error),
                        None => continue,
                    }
                }
                _ => return Err(unexpected()),
            });
        }
    }
}

fn has_journal(claim: Option<&Header>) -> bool {
    claim.is_some_and(|claim| !claim.journal.is_none())
}

/// Whether a record completes a claim as most do: by the same owner, with the fence, the attempts, the fingerprint and
/// the types of the claim. The script of `complete_own.lua` compares the same; another record is settled by the script
/// for all cases, because it may be another request's, or lack what the claim has.
fn completes(claim: &Header, done: &Header) -> bool {
    let of = |header: &Header| {
        let Header {
            owner,
            fence,
            attempts,
            fingerprint,
            types,
            ..
        } = *header;
        (owner, fence, attempts, fingerprint, types)
    };
    of(claim) == of(done)
}

/// Writes a completion by compare-and-set.
///
/// Only its owner writes a claim, and the owner knows each byte of it except the mark of a watcher. So the owner can
/// complete an unwatched claim by comparing the stored bytes with the claim. Where they differ, the script decides,
/// and notifies the watchers.
fn set_if_equal(
    words: &mut Words<'_>,
    name: &str,
    claim: &Header,
    retain: Duration,
    record: &[u8],
) {
    let retain = decimal(millis(retain));
    words.command(&[
        &[b"SET", name.as_bytes(), record],
        &[b"IFEQ", &claim.encode(), b"PX", retain.as_bytes()],
    ]);
}

/// Whether a compare-and-set has replaced the claim. If not, nothing has changed.
fn compared(reply: Result<Value, Failure>) -> Result<bool, StoreError> {
    match reply {
        Ok(reply) => Ok(reply == Value::Okay),
        // A full memory, a missing right, a slot that has moved: the script receives the same error, or succeeds.
        Err(Failure::Reply(error)) if error.code().is_some() => Ok(false),
        Err(failure) => Err(failure.store_error("a completion")),
    }
}
