//! The identity of a call: the secret of key digests and fingerprints, and one-time tokens.

mod digest_key;
mod stores;
mod tokens;

use tokio::runtime::Builder;

fn run(case: impl Future<Output = ()>) {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(case);
}

/// A test of each case's name for each store.
macro_rules! on_every_store {
    ($($subject:ident $module:ident { $($case:ident,)* })*) => {
        on_every_store! { @ memory Memory $($subject $module { $($case,)* })* }
        on_every_store! { @ redis Redis $($subject $module { $($case,)* })* }
        on_every_store! { @ sqlite Sqlite $($subject $module { $($case,)* })* }
        on_every_store! { @ postgres Postgres $($subject $module { $($case,)* })* }
    };
    (@ $name:ident $kind:ident $($subject:ident $module:ident { $($case:ident,)* })*) => {
        mod $name {
            $(mod $module { $(
                #[test]
                fn $case() {
                    use crate::identity::{$subject::$module::$case, run, stores::Kind};
                    run($case(Kind::$kind));
                }
            )* })*
        }
    };
}

on_every_store! {
    digest_key guesses {
        a_reader_confirms_a_guess_only_without_a_secret,
        an_entry_is_found_by_its_call_and_by_its_digest,
        derived_keys_are_the_same_under_every_secret,
        requests_are_compared_as_without_a_secret,
        a_process_of_another_secret_runs_the_body_again,
    }
    digest_key rotation {
        an_answer_from_before_is_replayed,
        an_abandoned_attempt_from_before_is_taken_over,
        a_counted_attempt_from_before_counts,
        another_request_is_refused,
        callers_at_once_start_one_body,
        an_entry_from_before_is_found_and_settled,
        a_process_without_the_former_secret_runs_the_body_again,
    }
    tokens taking {
        many_submits_of_one_token_make_one_order,
        a_token_is_of_use_to_its_subject_and_operation,
        after_a_system_error_it_is_usable_again,
        after_a_business_error_that_is_the_answer,
        another_order_with_the_same_token_is_refused,
        two_tokens_are_two_orders,
    }
    tokens expiry {
        an_expired_token_starts_nothing,
        an_expired_token_gets_the_answer,
        an_expired_token_waits_for_a_running_order,
        an_expired_token_that_was_given_back_starts_nothing,
        an_expired_token_of_an_abandoned_order_is_unknown,
        an_expired_token_is_looked_for_under_its_former_name,
    }
}
