//! Arguments that are passed to the runtime unchanged.

use super::length::{LEASE, Length, MAX_RUN, TTL, WAIT, length};
use crate::args::{Args, Attempts, OnRunning, WORDS, Word};
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
        let words = WORDS.iter().zip(&args.words);
        let words = words.filter_map(|((name, _), slot)| Some((*name, slot.value?)));
        // `finish` is not a setting: it changes how the body is passed to the runtime.
        let words = words.filter(|(_, word)| word.text != "finish").collect();
        Self {
            lengths,
            words,
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
