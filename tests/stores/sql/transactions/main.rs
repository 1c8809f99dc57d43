//! Calls inside the caller's transaction, on `SQLite`, `PostgreSQL` and `MariaDB`.
//!
//! Every case runs on each of them: `cargo test -p idem-tests --test transactions -- postgres::` runs those of one. The servers
//! start with the first case and serve all; each case has a separate database.

#![allow(
    clippy::unwrap_used,
    reason = "a case ends where something is not as it says"
)]

mod attribute;
mod commits;
mod connections;
mod database;
mod digest_key;
mod ended;
mod fixture;
mod isolation;
mod locked_file;
mod nesting;
mod outcomes;
mod prelude;
mod records;
mod rolled_back;
mod shutdown;
mod steps;
mod texts;
mod tokens;
mod traffic;
mod waiting;

use idem_runtime::store::sql::{MySql, Postgres, Sqlite};
use tokio::runtime::Builder;

fn run(case: impl Future<Output = ()>) {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(case);
}

/// One test per case and database.
macro_rules! cases {
    ($name:ident $database:ident $($module:ident { $($case:ident,)* })*) => {
        mod $name {
            $(mod $module { $(
                #[test]
                fn $case() {
                    crate::run(crate::$module::$case::<crate::$database>());
                }
            )* })*
        }
    };
}

macro_rules! on_every_database {
    ($($cases:tt)*) => {
        cases! { sqlite Sqlite $($cases)* }
        cases! { postgres Postgres $($cases)* }
        cases! { mariadb MySql $($cases)* }
    };
}

/// Cases that need sessions which wait for each other, and can be ended.
macro_rules! on_every_server {
    ($($cases:tt)*) => {
        mod servers {
            cases! { postgres Postgres $($cases)* }
            cases! { mariadb MySql $($cases)* }
        }
    };
}

macro_rules! on_databases_that_check_at_commit {
    ($($cases:tt)*) => {
        mod deferred {
            cases! { sqlite Sqlite $($cases)* }
            cases! { postgres Postgres $($cases)* }
        }
    };
}

macro_rules! on_files {
    ($($cases:tt)*) => {
        mod files {
            cases! { sqlite Sqlite $($cases)* }
        }
    };
}

on_every_database! {
    outcomes {
        an_order_and_its_record_are_committed_together,
        a_rollback_takes_the_record_with_it,
        a_replay_in_the_same_transaction_is_one,
        a_business_error_undoes_the_writes_of_the_body_and_is_kept,
        a_business_error_after_an_error_of_the_database_is_kept,
        a_business_error_that_is_rolled_back_is_not_kept,
        a_commit_after_a_system_error_commits_nothing_of_the_call,
        the_same_transaction_may_try_again_after_a_system_error,
        after_an_error_of_class_unknown_no_body_runs_again,
        a_panic_undoes_the_call,
        dropped_half_way_and_committed_no_body_runs_again,
        dropped_half_way_and_rolled_back_it_runs_again,
        another_request_with_the_same_key_is_refused,
        a_cool_down_refuses_until_it_is_over,
        an_answer_may_be_kept_for_ever,
        a_kept_error_has_a_life_of_its_own,
        the_first_caller_gets_what_is_stored,
    }
    nesting {
        calls_of_one_transaction_are_committed_together,
        an_inner_call_is_committed_with_the_outer_one,
        an_inner_call_is_undone_with_the_outer_one,
        an_inner_call_that_fails_leaves_the_outer_one,
        an_inner_replay_leaves_the_outer_one,
        a_body_that_calls_itself_is_refused,
        a_savepoint_of_sqlx_around_a_call,
    }
    waiting {
        a_duplicate_waits_for_the_commit_and_replays,
        a_duplicate_waits_for_the_rollback_and_runs,
        a_session_keeps_its_settings,
    }
    connections {
        a_plain_connection_is_committed_for_the_call,
        a_pool_connection_is_committed_for_the_call,
        errors_on_a_connection_without_a_transaction,
        every_end_on_a_pool_connection,
        dropped_half_way_nothing_stays_open,
        the_connection_of_a_transaction,
        savepoints_of_sqlx_in_a_body,
        a_body_that_rolls_back_is_refused,
        an_engine_of_another_store_is_refused,
        a_refusal_leaves_nothing_open,
        calls_are_spawned,
        a_shutdown_waits_for_bodies,
    }
    shutdown {
        a_call_is_waited_for_at_every_moment,
    }
    ended {
        a_body_that_ends_the_transaction_is_refused,
        a_body_that_ends_idems_transaction_is_refused,
        a_claim_without_its_transaction_is_refused,
        a_body_that_leaves_a_transaction_open,
        a_body_that_makes_a_table,
        an_error_of_the_caller_after_the_call,
    }
    attribute {
        functions_in_the_callers_transaction,
        functions_on_a_connection,
    }
    records {
        a_key_that_was_given_back_is_claimed,
        a_lapsed_lease_is_taken_over,
        a_lease_that_runs_is_respected,
        an_expired_record_is_taken_over,
        an_unknown_outcome_is_respected,
        calls_with_leases_replay_committed_answers,
        the_context_of_a_body,
    }
    tokens {
        a_token_is_taken_with_the_commit,
        an_expired_token_leaves_nothing,
    }
    digest_key {
        a_call_has_one_record_under_its_keyed_name,
        an_answer_from_before_the_secret_was_changed_is_replayed,
        an_unfinished_record_from_before_is_not_taken_over,
        a_call_after_the_change_begins_under_the_new_name,
    }
    steps {
        a_step_and_its_rows_are_committed_together,
        a_step_that_is_rolled_back_runs_again,
        the_errors_of_a_step_undo_its_rows,
        a_reset_and_a_later_call_forget_the_step,
        a_connection_is_committed_for_the_step,
        steps_in_one_transaction_and_steps_without_one,
        a_step_is_refused_where_it_cannot_be_kept,
        no_step_begins_after_the_lease_is_lost,
        a_body_in_a_transaction_does_not_repeat_steps,
        a_step_of_a_function_that_is_generic,
        a_step_lives_as_long_as_its_call_is_retried,
        a_journal_lives_as_long_as_its_call_is_retried,
        a_step_that_is_dropped_half_way_and_committed,
        a_step_of_a_long_name,
        a_step_of_a_call_that_is_kept_for_ever,
        a_disabled_engine_begins_a_transaction_for_the_step,
        a_cool_down_of_the_engine_is_not_one_of_its_steps,
        a_step_of_class_unknown_can_be_freed_without_the_other_steps,
    }
    texts {
        operations_with_any_name,
        large_answers_with_all_bytes,
        encrypted_and_compressed_answers,
        settings_of_a_session_that_change_the_meaning_of_a_text,
    }
    isolation {
        callers_that_try_again_have_one_effect_a_key,
        an_old_snapshot_is_no_answer,
    }
}

on_every_server! {
    waiting {
        a_caller_that_does_not_wait_gets_running_and_continues,
        a_dropped_claim_leaves_a_usable_connection,
        a_claim_that_gives_up_unheard_spoils_no_setting,
        a_deadlock_ends_with_one_of_two_aborted,
    }
    commits {
        a_session_that_ends_before_the_commit_leaves_nothing,
        a_zombie_cannot_finish,
        lost_replies_to_commits_of_the_caller,
        lost_replies_to_commits_of_idem,
        a_lost_reply_to_the_completion,
        a_lost_reply_to_the_claim,
        a_body_that_deadlocks_loses_nothing_silently,
    }
    connections {
        savepoints_of_sqlx,
    }
    ended {
        a_body_that_swallows_a_deadlock,
        a_session_that_is_idle_for_too_long,
    }
    steps {
        a_step_that_loses_its_lease_half_way_writes_nothing,
        attempts_that_overlap_book_once,
    }
    traffic {
        round_trips_of_calls,
    }
}

on_databases_that_check_at_commit! {
    commits {
        a_commit_that_is_refused_leaves_nothing,
    }
}

on_files! {
    steps {
        a_step_in_a_transaction_that_began_with_the_lock,
    }
    locked_file {
        a_repeat_waits_for_a_running_body_as_set,
        a_repeat_waits_a_moment_for_the_commit_after_a_body,
        another_writer_is_waited_for_until_the_claim_deadline,
        a_transaction_of_another_engine_is_another_writer,
        a_repeat_that_waits_gets_the_committed_answer,
        committed_answers_need_no_lock,
        a_transaction_that_has_read_is_aborted,
        a_claim_that_is_undone_is_no_running_call,
        a_dropped_claim_restores_the_connection,
    }
}
