//! The Lua scripts.

use std::fmt;

use super::arguments::decimal;
use super::durability::WriteConcern;
use super::link::{RoutedCommand, Words, WriteCommand};
use super::probe::Report;

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

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.sha).finish()
    }
}

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
        let prelude = include_str!("script/prelude.lua");
        let script = |concern, body| Script::new(report, None, concern, &[prelude, body].concat());
        // Constants of the scripts that publish.
        let publish = format!(
            "local PUBLISH, DECLARED = '{}', {}\n",
            report.publish(),
            report.reads_declarations(),
        );
        let telling = |concern, flags, body| {
            let (first, body) = body;
            let source = [
                &*publish,
                first,
                prelude,
                include_str!("script/ending.lua"),
                body,
            ]
            .concat();
            Script::new(report, flags, concern, &source)
        };
        let ending = |concern, body| telling(concern, Some("allow-oom"), ("", body));
        // Completes claims of the usual state alone.
        let short = |body| {
            let source = [&*publish, body].concat();
            Script::new(report, Some("allow-oom"), WriteConcern::Replicated, &source)
        };
        Self {
            claim: Script {
                tells_time: true,
                claims: true,
                ..script(WriteConcern::Replicated, include_str!("script/claim.lua"))
            },
            complete: telling(
                WriteConcern::Replicated,
                Some("allow-oom"),
                (
                    include_str!("script/complete_own.lua"),
                    include_str!("script/complete.lua"),
                ),
            ),
            complete_batch: short(include_str!("script/complete_batch.lua")),
            complete_staged: short(include_str!("script/complete_staged.lua")),
            release: telling(
                WriteConcern::Local,
                Some("allow-oom"),
                (
                    include_str!("script/release_own.lua"),
                    include_str!("script/release.lua"),
                ),
            ),
            renew: Script {
                tells_time: true,
                ..script(WriteConcern::Replicated, include_str!("script/renew.lua"))
            },
            append: Script {
                tells_time: true,
                ..ending(WriteConcern::Replicated, include_str!("script/append.lua"))
            },
            resolve: ending(WriteConcern::Replicated, include_str!("script/resolve.lua")),
            read: Script::new(
                report,
                Some("no-writes"),
                WriteConcern::Local,
                include_str!("script/read.lua"),
            ),
            header: Script::new(
                report,
                Some("no-writes"),
                WriteConcern::Local,
                include_str!("script/header.lua"),
            ),
            wait: Script::new(
                report,
                None,
                WriteConcern::Local,
                &[
                    include_str!("script/wait.lua"),
                    include_str!("script/read.lua"),
                ]
                .concat(),
            ),
            mark: Script::new(
                report,
                None,
                WriteConcern::Local,
                &[include_str!("script/wait.lua"), "return 1\n"].concat(),
            ),
            look: Script::new(
                report,
                Some("no-writes"),
                WriteConcern::Local,
                &[prelude, include_str!("script/look.lua")].concat(),
            ),
            // A copy may be lost, and is not written into a full memory.
            keep: telling(
                WriteConcern::Local,
                None,
                ("", include_str!("script/keep.lua")),
            ),
            forget: ending(WriteConcern::Local, include_str!("script/forget.lua")),
        }
    }
}
