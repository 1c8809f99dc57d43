//! Names and fingerprints by a secret: what a reader of the store or of a log learns.

#![allow(
    clippy::unwrap_used,
    reason = "a case ends where something is not as it says"
)]

mod guesses;
mod limits;
mod rotation;
mod schedules;
mod stage;

use tokio::runtime::Builder;

fn run(case: impl Future<Output = ()>) {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(case);
}

/// A test of each case's name for each store.
macro_rules! on_every_store {
    ($($module:ident { $($case:ident,)* })*) => {
        on_every_store! { @ memory Memory $($module { $($case,)* })* }
        on_every_store! { @ redis Redis $($module { $($case,)* })* }
        on_every_store! { @ sqlite Sqlite $($module { $($case,)* })* }
        on_every_store! { @ postgres Postgres $($module { $($case,)* })* }
    };
    (@ $name:ident $kind:ident $($module:ident { $($case:ident,)* })*) => {
        mod $name {
            $(mod $module { $(
                #[test]
                fn $case() {
                    crate::run(crate::$module::$case(crate::stage::Kind::$kind));
                }
            )* })*
        }
    };
}

on_every_store! {
    guesses {
        a_reader_confirms_a_guess_only_without_a_secret,
        an_entry_is_found_by_its_call_and_by_its_digest,
        derived_keys_are_the_same_under_every_secret,
        requests_are_compared_as_without_a_secret,
        a_process_of_another_secret_runs_the_body_again,
    }
    rotation {
        an_answer_from_before_is_replayed,
        an_abandoned_attempt_from_before_is_taken_over,
        a_counted_attempt_from_before_counts,
        another_request_is_refused,
        callers_at_once_start_one_body,
        an_entry_from_before_is_found_and_settled,
        a_process_without_the_former_secret_runs_the_body_again,
    }
}
