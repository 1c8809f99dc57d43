//! Arguments that are passed to the runtime unchanged.

use super::length::{LEASE, Length, MAX_RUN, TTL, WAIT, length};
use crate::args::{Args, Attempts, OnRunning, Word};
use crate::errors::Errors;

pub(crate) struct Settings {
    /// By argument name.
    pub(crate) lengths: Vec<(&'static str, Length)>,
    /// By argument name.
    pub(crate) words: Vec<(&'static str, Word)>,
    pub(crate) on_running: Option<Running>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) count_errors: Option<bool>,
}

pub(crate) enum Running {
    Wait(Length),
    Reject,
}

impl Settings {
    pub(super) fn new(args: &mut Args, errors: &mut Errors) -> Self {
        let lengths = [
            ("ttl", args.ttl.value.take(), &TTL),
            ("error_ttl", args.error_ttl.value.take(), &TTL),
            ("lease", args.lease.value.take(), &LEASE),
            ("max_run", args.max_run.value.take(), &MAX_RUN),
        ];
        let lengths = lengths
            .into_iter()
            .filter_map(|(name, time, limits)| Some((name, length(name, time, limits, errors)?)));
        let lengths = lengths.collect();
        // `finish` is not a setting: it changes how the body is passed to the runtime.
        let on_cancel = args.on_cancel.value.filter(|word| word.text != "finish");
        let words = [
            ("on_duplicate", args.on_duplicate.value),
            ("on_cancel", on_cancel),
            ("on_panic", args.on_panic.value),
            ("on_lease_lost", args.on_lease_lost.value),
            ("on_unconfirmed", args.on_unconfirmed.value),
            ("on_outage", args.on_outage.value),
            ("on_other_type", args.on_other_type.value),
        ];
        Self {
            lengths,
            words: words
                .into_iter()
                .filter_map(|(name, word)| Some((name, word?)))
                .collect(),
            on_running: args.on_running.value.take().and_then(|running| {
                Some(match running {
                    OnRunning::Wait(time) => {
                        Running::Wait(length("wait", Some(time), &WAIT, errors)?)
                    }
                    OnRunning::Reject => Running::Reject,
                })
            }),
            max_attempts: args.max_attempts.value,
            count_errors: args.count_errors.value.as_ref().map(syn::LitBool::value),
        }
    }
}
