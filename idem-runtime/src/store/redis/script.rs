//! The Lua scripts and their replies.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};

use super::super::{StoreError, StoreErrorKind, Unreadable};
use super::check::Report;
use super::node::Keeping;
use crate::record::Header;

/// A script that is run by its digest.
pub(super) struct Script {
    source: String,
    sha: String,
    /// Whether a failover may forget its write: a release may be lost, since the key is free when its lease ends.
    pub(super) keeping: Keeping,
    /// Its reply ends with the server's time.
    pub(super) tells_time: bool,
    /// It is a claim: completions, releases and renewals are sent before it.
    pub(super) claims: bool,
}

impl Script {
    /// `flags` is what the script declares to servers that read declarations (Redis 7).
    fn new(report: &Report, flags: Option<&str>, keeping: Keeping, source: &str) -> Self {
        let source = match flags.filter(|_| report.reads_declarations()) {
            Some(flags) => format!("#!lua flags={flags}\n{source}"),
            None => source.to_owned(),
        };
        Self {
            sha: redis::Script::new(&source).get_hash().to_owned(),
            source,
            keeping,
            tells_time: false,
            claims: false,
        }
    }

    /// The command that runs it on these keys: by digest, or by source where the server does not know the
    /// digest. Not `SCRIPT LOAD`, which restricted users may not call and which a cluster client sends
    /// to another node.
    pub(super) fn command(&self, keys: &[&str], arguments: &[&[u8]], by_source: bool) -> Cmd {
        let (name, script) = if by_source {
            ("EVAL", &self.source)
        } else {
            ("EVALSHA", &self.sha)
        };
        let bytes = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        let names: usize = keys.iter().map(|key| key.len()).sum();
        // With room for the other words and the separators.
        let size = script.len() + names + bytes(arguments) + 16;
        let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), size);
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        for argument in arguments {
            command.arg(*argument);
        }
        command
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.sha).finish()
    }
}

/// All scripts, in the form for the connected server.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) complete: Script,
    pub(super) complete_staged: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) resolve: Script,
    pub(super) read: Script,
    /// Reads the header alone.
    pub(super) header: Script,
    /// Reads for a watcher, and marks the claim.
    pub(super) wait: Script,
    /// Only marks the claim as watched.
    pub(super) mark: Script,
    /// Scripts for copies in front of another store.
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
        let prelude = include_str!("prelude.lua");
        let script = |keeping, body| Script::new(report, None, keeping, &[prelude, body].concat());
        // Constants for the scripts that write into a full memory, and notify watchers.
        let publish = format!(
            "local PUBLISH, DECLARED = '{}', {}\n",
            report.publish(),
            report.reads_declarations(),
        );
        let telling = |keeping, flags, body| {
            let (first, body) = body;
            let source = [&*publish, first, prelude, include_str!("ending.lua"), body].concat();
            Script::new(report, flags, keeping, &source)
        };
        let ending = |keeping, body| telling(keeping, Some("allow-oom"), ("", body));
        Self {
            claim: Script {
                tells_time: true,
                claims: true,
                ..script(Keeping::Writes, include_str!("claim.lua"))
            },
            complete: telling(
                Keeping::Writes,
                Some("allow-oom"),
                (
                    include_str!("complete_own.lua"),
                    include_str!("complete.lua"),
                ),
            ),
            complete_staged: {
                let source = [&*publish, include_str!("complete_staged.lua")].concat();
                Script::new(report, Some("allow-oom"), Keeping::Writes, &source)
            },
            release: telling(
                Keeping::Nothing,
                Some("allow-oom"),
                (include_str!("release_own.lua"), include_str!("release.lua")),
            ),
            renew: Script {
                tells_time: true,
                ..script(Keeping::Writes, include_str!("renew.lua"))
            },
            resolve: ending(Keeping::Writes, include_str!("resolve.lua")),
            read: Script::new(
                report,
                Some("no-writes"),
                Keeping::Nothing,
                include_str!("read.lua"),
            ),
            header: Script::new(
                report,
                Some("no-writes"),
                Keeping::Nothing,
                include_str!("header.lua"),
            ),
            wait: Script::new(
                report,
                None,
                Keeping::Nothing,
                &[include_str!("wait.lua"), include_str!("read.lua")].concat(),
            ),
            mark: Script::new(
                report,
                None,
                Keeping::Nothing,
                &[include_str!("wait.lua"), "return 1\n"].concat(),
            ),
            look: Script::new(
                report,
                Some("no-writes"),
                Keeping::Nothing,
                &[prelude, include_str!("look.lua")].concat(),
            ),
            // A copy may be lost, and is not written into a full memory.
            keep: telling(Keeping::Nothing, None, ("", include_str!("keep.lua"))),
            forget: ending(Keeping::Nothing, include_str!("forget.lua")),
        }
    }
}

/// A script's reply: one letter, then its fields. 1 is short for the most frequent one, `C`
/// and 0.
pub(super) struct Answer {
    pub(super) code: u8,
    first: Option<Value>,
    second: Option<Value>,
}

impl Answer {
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

    /// The second field, a record.
    pub(super) fn record(self) -> Result<Bytes, StoreError> {
        bytes(self.second)
    }

    /// Why the value is no readable record, if that is the reply.
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

    /// The value under the key is not a string.
    pub(super) fn wrong_type() -> Self {
        Self {
            code: b'T',
            first: None,
            second: None,
        }
    }
}

/// Whether a script's reply reports a write: a granted claim (`A`, `F`), a completion, release,
/// renewal or resolution (`C`), a lost claim that was written again (`L`).
pub(super) fn wrote(reply: &Value) -> bool {
    match reply {
        Value::Int(written) => *written == 1,
        Value::Array(parts) => {
            matches!(parts.first(), Some(Value::BulkString(code)) if matches!(code[..], [b'A' | b'C' | b'F' | b'L']))
        }
        _ => false,
    }
}

/// The server's time at the end of a reply, in microseconds.
pub(super) fn time_of(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    match parts.last() {
        Some(Value::Int(micros)) => u64::try_from(*micros).ok(),
        _ => None,
    }
}

fn bytes(value: Option<Value>) -> Result<Bytes, StoreError> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(bytes.into()),
        _ => Err(unexpected()),
    }
}

pub(super) fn unexpected() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "Redis answered a script with something that the script does not return; look for a proxy \
         that rewrites replies",
    )
}
