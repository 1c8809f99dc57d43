//! Every fault at every step of every path, on every store: whatever strikes, there is at most one
//! valid claim, every caller gets the same answer, and no answer is lost.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod calls;
mod checker;
mod history;
mod parts;
mod paths;
mod simulation;
mod sweep;
mod tap;

use idem_tests::fixture::Fixture;

macro_rules! sweep {
    ($times:ident, $fixture:expr, $ticks:expr, [$($name:ident),+ $(,)?]) => {
        $(
            #[tokio::test]
            async fn $name() {
                let path = crate::paths::$name();
                let name = concat!(module_path!(), "::", stringify!($name));
                crate::sweep::$times(name, &path, async || $fixture, $ticks).await;
            }
        )+
    };
}

/// One fault, on every store.
macro_rules! once {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            sweep!(once, crate::Fixture::memory(), false, [$($name),+]);
        }

        mod redis {
            sweep!(once, crate::Fixture::redis().await, true, [$($name),+]);
        }
    };
}

/// Two faults, for paths of few steps.
macro_rules! twice {
    ($($name:ident),+ $(,)?) => {
        mod pairs {
            sweep!(twice, crate::Fixture::memory(), false, [$($name),+]);
        }
    };
}

once![
    a_first_call,
    a_business_error,
    a_system_error_and_a_retry,
    an_unknown_error,
    an_unknown_error_that_landed,
    an_unknown_error_that_did_not_land,
    an_unknown_error_that_stays_unknown,
    a_hook_whose_caller_vanishes,
    a_caller_that_vanishes_while_it_finds_out,
    a_panic,
    a_panic_that_is_unknown,
    a_dropped_caller_whose_key_lapses,
    a_dropped_caller_whose_key_is_given_back,
    a_dropped_caller_leaves_the_outcome_unknown,
    a_dropped_caller_is_reconciled,
    a_body_that_outlives_its_caller,
    a_replay,
    a_duplicate_that_waits_here,
    a_duplicate_that_waits_elsewhere,
    a_duplicate_of_a_call_that_fails,
    a_paused_process_that_ends_after_its_successor,
    a_paused_process_that_ends_before_its_successor,
    a_paused_process_whose_successor_fails,
    a_paused_process_whose_successor_vanishes,
    a_paused_process_that_fails_beside_its_successor,
    a_paused_process_that_fails_beside_a_paused_successor,
    a_paused_process_that_is_cancelled,
    one_attempt_that_succeeds,
    one_attempt_that_fails,
    one_attempt_that_vanishes,
    one_attempt_that_is_paused,
    an_answer_that_is_too_large,
    an_unknown_call_that_is_resolved,
    an_unknown_call_that_is_reset,
    a_first_call_with_steps,
    a_failed_call_is_continued,
    a_step_that_runs_once_fails,
    a_step_that_runs_once_is_interrupted,
    an_interrupted_step_is_asked_about,
    an_unknown_step_is_asked_about,
    a_paused_step_ends_after_its_successor,
    a_paused_step_is_unknown_after_its_successor,
    a_hook_of_a_step_is_paused,
    a_hook_of_a_step_outlives_its_lease,
    one_attempt_with_steps,
    an_unknown_step_is_reset,
    a_dropped_caller_is_continued,
    a_dropped_caller_gives_its_steps_back,
];

twice![
    a_first_call,
    a_business_error,
    a_system_error_and_a_retry,
    an_unknown_error_that_landed,
    a_dropped_caller_leaves_the_outcome_unknown,
    a_body_that_outlives_its_caller,
    a_duplicate_that_waits_here,
    one_attempt_that_succeeds,
    one_attempt_that_is_paused,
    a_failed_call_is_continued,
];
