//! Completions of several calls by one script, and whether the server takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::store::redis::failure::{Failure, is_unknown_script};
use crate::store::redis::link::BatchScript;
use crate::store::redis::script::Scripts;

/// The server may not know the script.
const UNKNOWN: u8 = 0;
/// A completion sends the script by its source.
const LOADING: u8 = 1;
const KNOWN: u8 = 2;
/// The server, or a proxy, does not execute it.
const REFUSED: u8 = 3;

/// The script that completes several claims.
///
/// A server that does not know it learns it from one completion of a busy connection, which sends its source; the others
/// go alone meanwhile.
#[derive(Debug)]
pub(in crate::store::redis) struct Batches {
    script: Arc<BatchScript>,
    state: AtomicU8,
}

/// How a completion is sent.
pub(super) enum Form<'a> {
    InBatch(&'a Arc<BatchScript>),
    /// Alone, by the source of the script of batches.
    Teaching(Lesson<'a>),
    Alone,
}

/// The right to send the source. If dropped, another completion sends it.
pub(super) struct Lesson<'a>(&'a Batches);

impl Batches {
    /// `usable`: the server executes scripts with declarations, and has all keys.
    pub(in crate::store::redis) fn new(scripts: &Scripts, usable: bool) -> Self {
        Self {
            script: Arc::new(BatchScript {
                one: scripts.complete.sha.clone(),
                many: scripts.complete_batch.sha.clone(),
            }),
            state: AtomicU8::new(if usable { UNKNOWN } else { REFUSED }),
        }
    }

    /// `is_busy`: whether other commands are under way on the connection.
    pub(super) fn form(&self, is_busy: impl FnOnce() -> bool) -> Form<'_> {
        match self.state.load(Ordering::Relaxed) {
            KNOWN => Form::InBatch(&self.script),
            UNKNOWN if is_busy() && self.moves(UNKNOWN, LOADING) => Form::Teaching(Lesson(self)),
            _ => Form::Alone,
        }
    }

    /// Notes the failure of a completion. Returns whether it may succeed alone.
    pub(super) fn failed(&self, failure: &Failure) -> bool {
        let Failure::Reply(error) = failure else {
            return false;
        };
        if is_unknown_script(error) {
            self.moves(KNOWN, UNKNOWN);
            return false;
        }
        // A proxy in front of several servers, a user without the right to `MGET`, a server without a part of it.
        let is_refused = matches!(error.code(), Some("CROSSSLOT" | "NOPERM" | "ERR"));
        if is_refused {
            self.state.store(REFUSED, Ordering::Relaxed);
        }
        is_refused
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        let ordering = Ordering::Relaxed;
        (self.state)
            .compare_exchange(from, to, ordering, ordering)
            .is_ok()
    }
}

impl Lesson<'_> {
    /// The server has executed the script.
    pub(super) fn learned(self) {
        self.0.moves(LOADING, KNOWN);
    }
}

impl Drop for Lesson<'_> {
    fn drop(&mut self) {
        self.0.moves(LOADING, UNKNOWN);
    }
}
