//! The Lua scripts, their replies, and whether the server takes completions together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::failure::{Failure, has_no_room, is_unknown_script};
use super::link::RoutedCommand;
use super::probe::Report;
use super::server::WriteConcern;
use super::wire::{BatchScript, Words, WriteCommand, decimal};
use crate::record::{Header, Journal};
use crate::store::{StoreError, StoreErrorKind, Unreadable};

/// The server may not know the script.
const UNKNOWN: u8 = 0;
/// A completion sends the script by its source.
const LOADING: u8 = 1;
const KNOWN: u8 = 2;
/// The script is refused, or a proxy routes it by one key.
const REFUSED: u8 = 3;
/// Completions after which a server that refused the script gets it again: a right may have been granted meanwhile.
const REFUSED_FOR: u32 = 10_000;

/// A script that is run by its digest.
pub(super) struct Script {
    source: String,
    pub(super) sha: String,
    /// Whether its write must survive a failover. A release may be lost: its lease ends anyway.
    pub(super) concern: WriteConcern,
    /// Its reply ends with the server's time.
    pub(super) tells_time: bool,
    /// Completions, releases and renewals are sent before it.
    pub(super) claims: bool,
}

impl Script {
    /// `flags`: the declaration for servers that read it (Redis 7).
    fn new(report: &Report, flags: Option<&str>, concern: WriteConcern, source: &str) -> Self {
        let source = match flags.filter(|_| report.reads_declarations()) {
            Some(flags) => format!("#!lua flags={flags}\n{source}"),
            None => source.to_owned(),
        };
        Self {
            sha: redis::Script::new(&source).get_hash().to_owned(),
            source,
            concern,
            tells_time: false,
            claims: false,
        }
    }

    /// Writes the command that runs the script, by digest or by source.
    ///
    /// The source is not sent by `SCRIPT LOAD`, which restricted users may not call.
    pub(super) fn write(
        &self,
        words: &mut Words<'_>,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        by_source: bool,
    ) {
        let (name, script): (&[u8], _) = if by_source {
            (b"EVAL", &self.source)
        } else {
            (b"EVALSHA", &self.sha)
        };
        let count = decimal(keys.len() as u64);
        words.command(&[
            &[name, script.as_bytes(), count.as_bytes()],
            keys,
            arguments,
        ]);
    }

    /// Its command with its routing.
    pub(super) fn on_key<'a>(
        &self,
        key: &'a str,
        command: &'a WriteCommand<'a>,
    ) -> RoutedCommand<'a> {
        RoutedCommand {
            tells_time: self.tells_time,
            claims: self.claims,
            ..RoutedCommand::on_key(key, command)
        }
    }
}

debug_fields!(Script { sha });

/// All scripts, in the form for the servers of the store.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) complete: Script,
    /// Completes several claims of the usual state.
    pub(super) complete_batch: Script,
    pub(super) complete_staged: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) append: Script,
    pub(super) resolve: Script,
    pub(super) read: Script,
    /// Reads the header alone.
    pub(super) header: Script,
    /// Reads for a watcher, and marks the claim.
    pub(super) wait: Script,
    /// Only marks the claim as watched.
    pub(super) mark: Script,
    /// Reads, stores and removes a copy of another store's record.
    pub(super) look: Script,
    pub(super) keep: Script,
    pub(super) forget: Script,
}

impl Scripts {
    /// Builds the scripts for the server of the report.
    ///
    /// On a server that reads declarations, completions and releases run even when its
    /// memory is full (`allow-oom`), while a claim is refused and a replay still works.
    pub(super) fn new(report: &Report) -> Self {
        macro_rules! lua {
            ($name:literal) => {
                include_str!(concat!("script/", $name, ".lua"))
            };
        }
        // Constants of the scripts that publish.
        let publish = &*format!(
            "local PUBLISH, DECLARED = '{}', {}\n",
            report.publish(),
            report.reads_declarations(),
        );
        let (prelude, ending) = (lua!("prelude"), lua!("ending"));
        let local = |flags, parts: &[&str]| {
            Script::new(report, flags, WriteConcern::Local, &parts.concat())
        };
        let replicated = |flags, parts: &[&str]| {
            Script::new(report, flags, WriteConcern::Replicated, &parts.concat())
        };
        let (allow_oom, no_writes) = (Some("allow-oom"), Some("no-writes"));
        let (own, complete) = (lua!("complete_own"), lua!("complete"));
        let (release_own, release) = (lua!("release_own"), lua!("release"));
        Self {
            claim: Script {
                tells_time: true,
                claims: true,
                ..replicated(None, &[prelude, lua!("claim")])
            },
            complete: replicated(allow_oom, &[publish, own, prelude, ending, complete]),
            complete_batch: replicated(allow_oom, &[publish, lua!("complete_batch")]),
            complete_staged: replicated(allow_oom, &[publish, lua!("complete_staged")]),
            release: local(allow_oom, &[publish, release_own, prelude, ending, release]),
            renew: Script {
                tells_time: true,
                ..replicated(None, &[prelude, lua!("renew")])
            },
            append: Script {
                tells_time: true,
                ..replicated(allow_oom, &[publish, prelude, ending, lua!("append")])
            },
            resolve: replicated(allow_oom, &[publish, prelude, ending, lua!("resolve")]),
            read: local(no_writes, &[lua!("read")]),
            header: local(no_writes, &[lua!("header")]),
            wait: local(None, &[lua!("wait"), lua!("read")]),
            mark: local(None, &[lua!("wait"), "return 1\n"]),
            look: local(no_writes, &[prelude, lua!("look")]),
            // A copy may be lost, and is not written into a full memory.
            keep: local(None, &[publish, prelude, ending, lua!("keep")]),
            forget: local(allow_oom, &[publish, prelude, ending, lua!("forget")]),
        }
    }
}

/// The script that completes several claims.
///
/// The server does not know it at first: one completion of a busy connection sends its source, and the others go alone
/// meanwhile.
#[derive(Debug)]
pub(super) struct Batches {
    script: Arc<BatchScript>,
    state: AtomicU8,
    /// Completions since the server refused the script.
    since_refusal: AtomicU32,
    /// The server executes scripts with declarations, and has all keys.
    usable: bool,
}

/// How a completion is sent.
pub(super) enum ScriptForm<'a> {
    InBatch(&'a Arc<BatchScript>),
    /// Alone, by the source of the script of batches.
    BySource(SourceTurn<'a>),
    Alone,
}

/// The right to send the source. If dropped, another completion sends it.
pub(super) struct SourceTurn<'a>(&'a Batches);

impl Batches {
    pub(super) fn new(scripts: &Scripts, usable: bool) -> Self {
        Self {
            script: Arc::new(BatchScript {
                one: scripts.complete.sha.clone(),
                many: scripts.complete_batch.sha.clone(),
            }),
            state: AtomicU8::new(UNKNOWN),
            since_refusal: AtomicU32::new(0),
            usable,
        }
    }

    /// `is_busy`: whether other commands are under way on the connection.
    pub(super) fn form(&self, is_busy: impl FnOnce() -> bool) -> ScriptForm<'_> {
        if !self.usable {
            return ScriptForm::Alone;
        }
        match self.state.load(Ordering::Relaxed) {
            KNOWN => ScriptForm::InBatch(&self.script),
            UNKNOWN if is_busy() && self.moves(UNKNOWN, LOADING) => {
                ScriptForm::BySource(SourceTurn(self))
            }
            REFUSED => {
                if self.since_refusal.fetch_add(1, Ordering::Relaxed) >= REFUSED_FOR {
                    self.moves(REFUSED, UNKNOWN);
                }
                ScriptForm::Alone
            }
            _ => ScriptForm::Alone,
        }
    }

    /// Records the failure of a completion by the script of batches. Whether it may succeed alone.
    pub(super) fn failed(&self, failure: &Failure) -> bool {
        let Failure::Reply(error) = failure else {
            return false;
        };
        if is_unknown_script(error) {
            self.moves(KNOWN, UNKNOWN);
            return false;
        }
        // A proxy in front of several servers, a user without the right to `MGET`, a server without a part of it.
        let is_refused = matches!(error.code(), Some("CROSSSLOT" | "NOPERM" | "ERR"))
            // Of the connection: its last reply.
            && !has_no_room(error);
        if is_refused {
            self.refuse();
        }
        is_refused
    }

    /// Records that the script of batches missed the value of a claim: a proxy in front of several servers sent
    /// the batch to the server of its first key.
    pub(super) fn missed(&self) {
        self.refuse();
    }

    fn refuse(&self) {
        self.since_refusal.store(0, Ordering::Relaxed);
        self.state.store(REFUSED, Ordering::Relaxed);
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        let ordering = Ordering::Relaxed;
        (self.state)
            .compare_exchange(from, to, ordering, ordering)
            .is_ok()
    }
}

impl SourceTurn<'_> {
    /// The server has executed the script.
    pub(super) fn confirm(self) {
        self.0.moves(LOADING, KNOWN);
    }
}

impl Drop for SourceTurn<'_> {
    fn drop(&mut self) {
        self.0.moves(LOADING, UNKNOWN);
    }
}

/// A script's reply: one letter, then its fields. 1 is short for `C` and 0.
pub(super) struct ScriptReply {
    pub(super) code: u8,
    first: Option<Value>,
    second: Option<Value>,
}

impl ScriptReply {
    pub(super) fn parse(value: Value) -> Result<Self, StoreError> {
        let parts = match value {
            Value::Array(parts) => parts,
            Value::Int(1) => {
                return Ok(Self {
                    code: b'C',
                    first: Some(Value::Int(0)),
                    second: None,
                });
            }
            _ => return Err(unexpected()),
        };
        let mut parts = parts.into_iter();
        match parts.next() {
            Some(Value::BulkString(code)) if code.len() == 1 => Ok(Self {
                code: code[0],
                first: parts.next(),
                second: parts.next(),
            }),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn number(&self) -> Result<u64, StoreError> {
        match self.first {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn millis(&self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    pub(super) fn size(&self) -> Result<usize, StoreError> {
        match self.second {
            Some(Value::Int(number)) => usize::try_from(number).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }

    /// The first field, as bytes.
    pub(super) fn bytes(self) -> Result<Bytes, StoreError> {
        bytes(self.first)
    }

    /// The second field, a journal; empty if it is another.
    pub(super) fn journal(&mut self) -> Journal {
        match self.second.take() {
            Some(Value::BulkString(bytes)) => Journal::new(bytes.into()),
            _ => Journal::default(),
        }
    }

    /// The second field, a record.
    pub(super) fn record(self) -> Result<Bytes, StoreError> {
        bytes(self.second)
    }

    /// The reason of an unreadable value, if that is the reply.
    pub(super) fn unreadable(&self) -> Option<Unreadable> {
        match (self.code, &self.first) {
            (b'I', _) => Some(Unreadable::Immortal),
            (b'V', Some(Value::BulkString(start))) => Some(match Header::decode(start) {
                Err(error) => error,
                // The script and this code disagree about the layout of a record.
                Ok(_) => Unreadable::Type,
            }),
            (b'T', _) => Some(Unreadable::Type),
            _ => None,
        }
    }

    /// The reply by its letter, or that the value is unreadable.
    pub(super) fn among<T, const N: usize>(
        &self,
        unreadable: impl FnOnce(Unreadable) -> T,
        replies: [(u8, T); N],
    ) -> Result<T, StoreError> {
        if let Some(error) = self.unreadable() {
            return Ok(unreadable(error));
        }
        let found = replies.into_iter().find(|(code, _)| *code == self.code);
        found.map(|(_, reply)| reply).ok_or_else(unexpected)
    }

    /// The reply for a value that is not a string.
    pub(super) fn wrong_type() -> Self {
        Self {
            code: b'T',
            first: None,
            second: None,
        }
    }
}

fn bytes(value: Option<Value>) -> Result<Bytes, StoreError> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(bytes.into()),
        _ => Err(unexpected()),
    }
}

/// The error of a reply that no script returns.
pub(super) fn unexpected() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "Redis answered a script with something that the script does not return; look for a proxy \
         that rewrites replies",
    )
}

/// A duration in milliseconds, as Redis takes it. The bounds of the policy keep it far below the limit.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Batches {
        let (one, many) = ("one".to_owned(), "many".to_owned());
        Batches {
            script: Arc::new(BatchScript { one, many }),
            state: AtomicU8::new(KNOWN),
            since_refusal: AtomicU32::new(0),
            usable: true,
        }
    }

    fn said(line: &str) -> Failure {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        Failure::Reply(reply.extract_error().unwrap_err())
    }

    #[test]
    fn a_refusal_ends_batches_and_a_passing_error_does_not() {
        let silent = std::io::Error::from(std::io::ErrorKind::TimedOut);
        for (failure, is_refused, state) in [
            (said("CROSSSLOT Keys in request"), true, REFUSED),
            (said("NOPERM No permissions"), true, REFUSED),
            (said("ERR unknown command 'MGET'"), true, REFUSED),
            (said("NOSCRIPT No matching script"), false, UNKNOWN),
            (said("LOADING Redis is loading"), false, KNOWN),
            (said("READONLY You can't write"), false, KNOWN),
            (said("OOM command not allowed"), false, KNOWN),
            (said("BUSY Redis is busy"), false, KNOWN),
            (said("ERR max number of clients reached"), false, KNOWN),
            (Failure::Reply(silent.into()), false, KNOWN),
        ] {
            let batches = known();
            assert_eq!(batches.failed(&failure), is_refused);
            assert_eq!(batches.state.load(Ordering::Relaxed), state);
        }
    }

    #[test]
    fn a_server_that_refused_the_script_gets_it_again() {
        let batches = known();
        for _ in 0..2 {
            batches.failed(&said("NOPERM No permissions"));
            for _ in 0..=REFUSED_FOR {
                assert!(matches!(batches.form(|| true), ScriptForm::Alone));
            }
            assert!(matches!(batches.form(|| true), ScriptForm::BySource(_)));
        }
        let unusable = Batches {
            usable: false,
            ..known()
        };
        assert!(matches!(unusable.form(|| true), ScriptForm::Alone));
    }

    #[test]
    fn a_claim_that_the_script_did_not_see_ends_batches() {
        let batches = known();
        batches.missed();
        assert!(matches!(batches.form(|| true), ScriptForm::Alone));
    }

    #[test]
    fn one_completion_at_a_time_sends_the_source() {
        let batches = known();
        batches.failed(&said("NOSCRIPT No matching script"));
        assert!(matches!(batches.form(|| false), ScriptForm::Alone));
        for succeeds in [false, true] {
            let ScriptForm::BySource(turn) = batches.form(|| true) else {
                panic!("the server does not know it")
            };
            assert!(matches!(batches.form(|| true), ScriptForm::Alone));
            if succeeds {
                turn.confirm();
            }
        }
        assert!(matches!(batches.form(|| false), ScriptForm::InBatch(_)));
    }
}
