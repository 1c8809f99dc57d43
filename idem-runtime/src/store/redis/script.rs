//! The Lua scripts.

use super::arguments::decimal;
use super::durability::WriteConcern;
use super::link::RoutedCommand;
use super::probe::Report;
use super::wire::{Words, WriteCommand};

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

    /// Writes the command that runs the script on these keys, by digest or by source.
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
