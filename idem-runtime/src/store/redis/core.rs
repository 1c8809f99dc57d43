//! The connections, scripts and settings behind a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::batches::Batches;
use super::notify::Subscribers;
use super::probe::Report;
use super::reply::ScriptReply;
use super::script::{Script, Scripts};
use super::topology::Topology;
use crate::store::StoreError;
use crate::store::observers::Observers;

/// The connections, scripts and settings of a connected store.
pub(super) struct RedisCore {
    /// For claims, completions, releases and resolutions.
    pub(super) link: Topology,
    /// For lease renewals and reads; connects at the first of them, on the thread of the engine.
    pub(super) background: Topology,
    /// For listings; connects at the first of them, on the thread of the engine.
    pub(super) listing: Topology,
    /// Connect at the first watch, on the thread of the engine.
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) scripts: Scripts,
    pub(super) report: Report,
    /// Warning about the transport to the server.
    pub(super) transport: Option<String>,
    /// Whether a claim is sent as a plain command where that suffices.
    pub(super) fast_claims: AtomicBool,
    /// Whether a completion is a plain compare-and-set where that suffices.
    pub(super) compares: bool,
    /// Completes several claims at once.
    pub(super) batches: Batches,
    /// Whether large answers are staged.
    pub(super) stages_large: AtomicBool,
    /// Notified of steps of the server's clock.
    pub(super) observers: Arc<Observers>,
    pub(super) max_record_bytes: usize,
}

impl RedisCore {
    pub(super) fn takes_fast_claims(&self) -> bool {
        self.fast_claims.load(Ordering::Relaxed)
    }

    pub(super) fn disable_fast_claims(&self) {
        self.fast_claims.store(false, Ordering::Relaxed);
    }

    /// Runs a script on `link`.
    pub(super) fn run<'a>(
        &'a self,
        what: &'a str,
        script: &'a Script,
        key: &'a str,
        arguments: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + use<'a> {
        self.link.run(what, script, key, arguments)
    }
}
