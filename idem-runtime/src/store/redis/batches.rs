//! Completions of several calls by one script, and whether the server takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::failure::{Failure, has_no_room, is_unknown_script};
use super::script::Scripts;
use super::wire::BatchScript;

/// The server may not know the script.
const UNKNOWN: u8 = 0;
/// A completion sends the script by its source.
const LOADING: u8 = 1;
const KNOWN: u8 = 2;
/// The server, or a proxy, does not execute it, or a proxy routes it by its first key.
const REFUSED: u8 = 3;
/// Completions after which a server that refused the script gets it again: a right may have been granted meanwhile.
const REFUSED_FOR: u32 = 10_000;

/// The script that completes several claims.
///
/// The server does not know it at first: one completion of a busy connection sends its source, and the others go alone
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Batches {
    script: Arc<BatchScript>,
    state: AtomicU8,
    /// Completions since the server refused the script.
    since_refusal: AtomicU32,
    /// The server executes scripts with declarations, and has all keys.
    usable: bool,
}

/// How a completion is sent.
pub(super) enum Form<'a> {
    InBatch(&'a Arc<BatchScript>),
    /// Alone, by the source of the script of batches.
    BySource(SourceTurn<'a>),
    Alone,
}

/// The right to send the source. If dropped, another completion sends it.
pub(super) struct SourceTurn<'a>(&'a Batches);

impl Batches {
    pub(crate) fn new(scripts: &Scripts, usable: bool) -> Self {
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
    pub(super) fn form(&self, is_busy: impl FnOnce() -> bool) -> Form<'_> {
        if !self.usable {
            return Form::Alone;
        }
        match self.state.load(Ordering::Relaxed) {
            KNOWN => Form::InBatch(&self.script),
            UNKNOWN if is_busy() && self.moves(UNKNOWN, LOADING) => {
                Form::BySource(SourceTurn(self))
            }
            REFUSED => {
                if self.since_refusal.fetch_add(1, Ordering::Relaxed) >= REFUSED_FOR {
                    self.moves(REFUSED, UNKNOWN);
                }
                Form::Alone
            }
            _ => Form::Alone,
        }
    }

    /// Records the failure of a completion that was sent for the script of batches. Whether it may succeed alone.
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

    /// Records that the script of batches found nothing under the key of a claim that is there: a proxy in front of
    /// several servers sent the batch to the server of its first key.
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
                assert!(matches!(batches.form(|| true), Form::Alone));
            }
            assert!(matches!(batches.form(|| true), Form::BySource(_)));
        }
        let unusable = Batches {
            usable: false,
            ..known()
        };
        assert!(matches!(unusable.form(|| true), Form::Alone));
    }

    #[test]
    fn a_claim_that_the_script_did_not_see_ends_batches() {
        let batches = known();
        batches.missed();
        assert!(matches!(batches.form(|| true), Form::Alone));
    }

    #[test]
    fn one_completion_at_a_time_sends_the_source() {
        let batches = known();
        batches.failed(&said("NOSCRIPT No matching script"));
        assert!(matches!(batches.form(|| false), Form::Alone));
        for succeeds in [false, true] {
            let Form::BySource(turn) = batches.form(|| true) else {
                panic!("the server does not know it")
            };
            assert!(matches!(batches.form(|| true), Form::Alone));
            if succeeds {
                turn.confirm();
            }
        }
        assert!(matches!(batches.form(|| false), Form::InBatch(_)));
    }
}
