//! Arguments that are passed to the runtime unchanged.

use super::duration_setting::{self, DURATIONS, DurationSetting, WAIT};
use crate::args::{Args, Attempts, OnRunning, WORDS, Word};
use crate::errors::Errors;

pub(crate) struct Settings {
    /// By argument name.
    pub(crate) durations: Vec<(&'static str, DurationSetting)>,
    /// By argument name.
    pub(crate) words: Vec<(&'static str, Word)>,
    pub(crate) on_running: Option<OnRunning<DurationSetting>>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) count_errors: Option<bool>,
}

impl Settings {
    pub(super) fn new(args: &Args, errors: &mut Errors) -> Self {
        let durations = DURATIONS.iter().filter_map(|(name, range)| {
            let setting = duration_setting::check(name, args.duration(name)?, range);
            Some((*name, errors.ok(setting)?))
        });
        let durations = durations.collect();
        let words = WORDS
            .iter()
            .filter_map(|(name, _)| Some((*name, args.word(name)?)));
        Self {
            durations,
            // `finish` is not a setting: it changes how the body is passed to the runtime.
            words: words.filter(|(_, word)| word.text != "finish").collect(),
            on_running: args.on_running.as_ref().and_then(|running| {
                Some(match running {
                    OnRunning::Wait(arg) => {
                        let setting = duration_setting::check("wait", arg, &WAIT);
                        OnRunning::Wait(errors.ok(setting)?)
                    }
                    OnRunning::Reject => OnRunning::Reject,
                })
            }),
            max_attempts: args.max_attempts,
            count_errors: args.count_errors.as_ref().map(syn::LitBool::value),
        }
    }
}
