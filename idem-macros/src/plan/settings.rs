//! Arguments that are passed to the runtime unchanged.

use super::duration_setting::{self, DurationSetting, LEASE, MAX_RUN, TTL, WAIT};
use crate::args::{Args, Attempts, OnRunning, WORDS, Word};
use crate::errors::Errors;

pub(crate) struct Settings {
    /// By argument name.
    pub(crate) durations: Vec<(&'static str, DurationSetting)>,
    /// By argument name.
    pub(crate) words: Vec<(&'static str, Word)>,
    pub(crate) on_running: Option<Running>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) count_errors: Option<bool>,
}

pub(crate) enum Running {
    Wait(DurationSetting),
    Reject,
}

impl Settings {
    pub(super) fn new(args: &mut Args, errors: &mut Errors) -> Self {
        let durations = [
            ("ttl", args.ttl.value.take(), &TTL),
            ("error_ttl", args.error_ttl.value.take(), &TTL),
            ("lease", args.lease.value.take(), &LEASE),
            ("max_run", args.max_run.value.take(), &MAX_RUN),
        ];
        let durations = durations.into_iter().filter_map(|(name, arg, range)| {
            Some((name, duration_setting::check(name, arg, range, errors)?))
        });
        let durations = durations.collect();
        let words = WORDS.iter().zip(&args.words);
        let words = words.filter_map(|((name, _), slot)| Some((*name, slot.value?)));
        // `finish` is not a setting: it changes how the body is passed to the runtime.
        let words = words.filter(|(_, word)| word.text != "finish").collect();
        Self {
            durations,
            words,
            on_running: args.on_running.value.take().and_then(|running| {
                Some(match running {
                    OnRunning::Wait(arg) => {
                        Running::Wait(duration_setting::check("wait", Some(arg), &WAIT, errors)?)
                    }
                    OnRunning::Reject => Running::Reject,
                })
            }),
            max_attempts: args.max_attempts.value,
            count_errors: args.count_errors.value.as_ref().map(syn::LitBool::value),
        }
    }
}
