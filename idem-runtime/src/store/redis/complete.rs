//! Completions: by compare-and-set, by script alone or with others, or staged.
//!
//! - `SET … IFEQ`, where the server has it. Only its owner writes a claim, and the owner knows each byte of it except the
//!   mark of a watcher: the server compares the stored bytes with the claim. Where they differ, the script decides, and
//!   notifies the watchers.
//! - The script, together with the completions that are sent at the same time: see [`Batches`].
//! - A large record by a plain `SET` under a name of its own, and a script in the same round trip that renames it if the
//!   claim is still the owner's: the server copies the arguments of a script twice. In every other case, and where the
//!   server has no room or the user no right, the answer takes the general path, and the staged record expires.
//!
//! [`Batches`]: super::script::Batches

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::failure::{Failure, is_unknown_script};
use super::link::{CommandInFlight, ReadyLink, RoutedCommand};
use super::script::{Script, ScriptForm, ScriptReply, SourceTurn, millis, unexpected};
use super::server::WriteConcern;
use super::store::RedisCore;
use super::wire::{BatchCommand, Words, decimal};
use crate::record::{HEADER, Header};
use crate::store::{Boxed, CompleteReply, RecordKey, StoreError};

/// Size from which records are staged, in bytes.
const LARGE: usize = 2_048;
/// Life of a staged record that is not renamed, in milliseconds.
const STAY: &[u8] = b"60000";

/// The command of a completion that is in flight.
enum CompletionCommand<'a> {
    CompareAndSet,
    /// The script for all cases.
    Script,
    /// That, or the script of batches with others.
    InBatch,
    /// The script of batches, by its source.
    Source(SourceTurn<'a>),
}

impl RedisCore {
    /// Completes a claim.
    ///
    /// The future is a part of every first call: it has room for a command in flight on the shared connection, and boxes
    /// the rest, which is larger and seldom needed.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` holds its arguments twice"
    )]
    pub(super) fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> impl Future<Output = Result<CompleteReply, StoreError>> + Send + use<'a> {
        async move {
            let rest = 'rest: {
                let (sent, command) = match self.begin_completion(key, claim, record) {
                    Ok(sent) => sent,
                    Err(rest) => break 'rest rest,
                };
                let reply = sent.await;
                match self.after(key, record, command, reply)? {
                    Some(rest) => rest,
                    None => return Ok(CompleteReply::Stored { late: false }),
                }
            };
            rest.await
        }
    }

    /// Sends the command of a completion on the present connection; or returns the rest of the completion.
    fn begin_completion<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> Result<(CommandInFlight<'a>, CompletionCommand<'a>), Boxed<'a, CompleteReply>> {
        let begin = || {
            if has_journal(claim) {
                return None;
            }
            let done = Header::decode(record).ok()?;
            let claim = self.comparable(claim, &done);
            if claim.is_none() && record.len() >= LARGE {
                return None;
            }
            let ready = self.link.ready(WriteConcern::Replicated)?;
            Some(key.with_name(|name| self.send(ready, name, claim, done.retain, record)))
        };
        match begin() {
            Some((Ok(sent), command)) => Ok((sent, command)),
            Some((Err(failure), command)) => Err(Box::pin(async move {
                match self.after(key, record, command, Err(failure))? {
                    Some(rest) => rest.await,
                    None => Ok(CompleteReply::Stored { late: false }),
                }
            })),
            None => Err(Box::pin(self.complete_routed(key, claim, record))),
        }
    }

    /// Sends a compare-and-set of the claim, or a script.
    fn send<'a>(
        &'a self,
        ready: ReadyLink<'a>,
        name: &str,
        claim: Option<&Header>,
        retain: Duration,
        record: &[u8],
    ) -> (Result<CommandInFlight<'a>, Failure>, CompletionCommand<'a>) {
        if let Some(claim) = claim {
            let set = |words: &mut Words<'_>| set_if_equal(words, name, claim, retain, record);
            let exchange = ready.begin(&RoutedCommand::on_key(name, &set));
            return (exchange, CompletionCommand::CompareAndSet);
        }
        let retain = decimal(millis(retain));
        let (key, arguments) = (name.as_bytes(), [record, retain.as_bytes()]);
        let alone = |ready: ReadyLink<'a>, script: &Script, by_source| {
            let run = |words: &mut Words<'_>| script.write(words, &[key], &arguments, by_source);
            ready.begin(&script.on_key(name, &run))
        };
        match self.batches.form(|| ready.is_busy()) {
            ScriptForm::InBatch(script) => {
                let command = BatchCommand {
                    script,
                    key,
                    arguments,
                };
                let sent = ready.begin_in_batch(&command);
                (sent, CompletionCommand::InBatch)
            }
            ScriptForm::BySource(turn) => {
                let sent = alone(ready, &self.scripts.complete_batch, true);
                (sent, CompletionCommand::Source(turn))
            }
            ScriptForm::Alone => {
                let sent = alone(ready, &self.scripts.complete, false);
                (sent, CompletionCommand::Script)
            }
        }
    }

    /// The rest of a completion after the reply to its command; `None`: it is stored.
    fn after<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
        command: CompletionCommand<'_>,
        reply: Result<Value, Failure>,
    ) -> Result<Option<Boxed<'a, CompleteReply>>, StoreError> {
        let by_script =
            |reply| -> Boxed<'a, _> { Box::pin(self.complete_late(key, record, reply)) };
        let is_stored = match (command, reply) {
            (CompletionCommand::CompareAndSet, reply) => {
                if compared(reply)? {
                    return Ok(None);
                }
                return Ok(Some(Box::pin(self.complete_routed(key, None, record))));
            }
            (CompletionCommand::InBatch | CompletionCommand::Source(_), Err(failure))
                if self.batches.failed(&failure) =>
            {
                false
            }
            (CompletionCommand::Source(turn), Ok(reply)) => {
                turn.confirm();
                reply == Value::Int(1)
            }
            (CompletionCommand::Script | CompletionCommand::InBatch, Ok(Value::Int(1))) => true,
            // The script of batches leaves it to the other one.
            (CompletionCommand::InBatch, Ok(Value::Int(0))) => false,
            (CompletionCommand::InBatch, Ok(Value::Int(-1))) => {
                return Ok(Some(Box::pin(self.complete_unseen(key, record))));
            }
            (_, reply) => return Ok(Some(by_script(Some(reply)))),
        };
        Ok((!is_stored).then(|| by_script(None)))
    }

    /// Completes by the general script: that of batches found no claim.
    async fn complete_unseen(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let reply = self.complete_late(key, record, None).await;
        if let Ok(CompleteReply::Stored { late: false }) = reply {
            self.batches.missed();
        }
        reply
    }

    /// Completes at the key's node: without a connection, or after a mismatch.
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
        let name = &*key.name();
        if let Some(claim) = self.comparable(claim, &done) {
            let set = |words: &mut Words<'_>| set_if_equal(words, name, claim, done.retain, record);
            let command = RoutedCommand::on_key(name, &set);
            if compared(self.link.send(&command, WriteConcern::Replicated).await)? {
                return Ok(CompleteReply::Stored { late: false });
            }
        }
        if record.len() >= LARGE
            && !has_journal(claim)
            && self.complete_staged(key, name, &done, record).await?
        {
            return Ok(CompleteReply::Stored { late: false });
        }
        self.complete_by_script(name, &done, record, None).await
    }

    /// The claim, if a compare-and-set completes it: by the same owner, with the fence, the attempts, the fingerprint and
    /// the types of the claim, as `complete_own.lua` compares. The script for all cases settles another record, which may
    /// be that of another request, or lack a part of the claim; and one with a journal.
    fn comparable<'c>(&self, claim: Option<&'c Header>, done: &Header) -> Option<&'c Header> {
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
        let claim = claim.filter(|claim| self.compares && claim.journal.is_none())?;
        (of(claim) == of(done)).then_some(claim)
    }

    /// Stores a record by way of a staged one. Returns false if it was not stored; then nothing has changed.
    async fn complete_staged(
        &self,
        key: &RecordKey,
        name: &str,
        done: &Header,
        record: &[u8],
    ) -> Result<bool, StoreError> {
        if !self.stages_large.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let stage = stage(key.prefix(), name, done);
        let script = &self.scripts.complete_staged;
        let life = decimal(millis(done.retain));
        let arguments: [&[u8]; 2] = [&record[..HEADER], life.as_bytes()];
        let set = |words: &mut Words<'_>| {
            words.command(&[&[b"SET", stage.as_bytes(), record, b"PX", STAY]]);
        };
        for by_source in [false, true] {
            let keys = [name.as_bytes(), stage.as_bytes()];
            let moves = |words: &mut Words<'_>| script.write(words, &keys, &arguments, by_source);
            let command = RoutedCommand::pair(name, &set, &moves);
            match self.link.send(&command, WriteConcern::Replicated).await {
                Ok(reply) => {
                    let code = ScriptReply::parse(reply)?.code;
                    if code == b'N' {
                        self.stages_large.store(false, Ordering::Relaxed);
                    }
                    return Ok(code == b'C');
                }
                Err(Failure::Reply(error)) if is_unknown_script(&error) => {}
                Err(Failure::Reply(error)) if error.code().is_some() => return Ok(false),
                Err(failure) => return Err(failure.store_error("a completion")),
            }
        }
        Ok(false)
    }

    /// Completes by the script for all cases, after another command has not.
    async fn complete_late(
        &self,
        key: &RecordKey,
        record: &Bytes,
        reply: Option<Result<Value, Failure>>,
    ) -> Result<CompleteReply, StoreError> {
        match Header::decode(record) {
            Ok(done) => (self.complete_by_script(&key.name(), &done, record, reply)).await,
            Err(error) => Ok(CompleteReply::Unreadable(error)),
        }
    }

    /// Completes by the script for all cases; its `reply` may have arrived.
    async fn complete_by_script(
        &self,
        name: &str,
        done: &Header,
        record: &Bytes,
        mut reply: Option<Result<Value, Failure>>,
    ) -> Result<CompleteReply, StoreError> {
        let (what, script) = ("a completion", &self.scripts.complete);
        let ttl = decimal(millis(done.retain));
        let arguments: [&[u8]; 2] = [record, ttl.as_bytes()];
        loop {
            let answer = match reply.take() {
                Some(reply) => {
                    let answer = self.link.replied(what, script, name, &arguments, reply);
                    answer.await?
                }
                None => self.link.run(what, script, name, &arguments).await?,
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
                b'D' | b'G' => match self.read_answer(name, answer, done.fingerprint).await? {
                    Some((Ok(record), left)) => CompleteReply::Adopted { record, left },
                    Some((Err(error), _)) => CompleteReply::Unreadable(error),
                    None => continue,
                },
                _ => return Err(unexpected()),
            });
        }
    }
}

/// Whether the record has a journal, read by the general script alone.
fn has_journal(claim: Option<&Header>) -> bool {
    claim.is_some_and(|claim| !claim.journal.is_none())
}

/// Writes the compare-and-set.
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

/// Whether the reply to a compare-and-set is that of a write.
fn compared(reply: Result<Value, Failure>) -> Result<bool, StoreError> {
    match reply {
        Ok(reply) => Ok(reply == Value::Okay),
        // A full memory, a missing right, a slot that has moved: the script receives the same error, or succeeds.
        Err(Failure::Reply(error)) if error.code().is_some() => Ok(false),
        Err(failure) => Err(failure.store_error("a completion")),
    }
}

/// Name of the staged record.
///
/// It has the record's prefix, because of the user's rights; its slot, by the hash tag; and the owner, because it is
/// unique to the attempt.
fn stage(prefix: &str, name: &str, done: &Header) -> String {
    let mut stage = String::with_capacity(prefix.len() + name.len() + 40);
    // Writing to a `String` cannot fail.
    let _ = write!(stage, "{prefix}:stage{{{name}}}");
    for byte in done.owner.as_bytes() {
        let _ = write!(stage, "{byte:02x}");
    }
    stage
}
