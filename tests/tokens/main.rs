//! One-time tokens, on every kind of store.

#![allow(
    clippy::unwrap_used,
    reason = "a case ends where something is not as it says"
)]

mod expiry;
mod stage;
mod taking;
mod traffic;
mod uses;

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
    taking {
        many_submits_of_one_token_make_one_order,
        a_token_is_of_use_to_its_subject_and_operation,
        after_a_system_error_it_is_usable_again,
        after_a_business_error_that_is_the_answer,
        another_order_with_the_same_token_is_refused,
        two_tokens_are_two_orders,
    }
    expiry {
        an_expired_token_starts_nothing,
        an_expired_token_gets_the_answer,
        an_expired_token_waits_for_who_runs,
        an_expired_token_that_was_given_back_starts_nothing,
        an_expired_token_of_an_abandoned_order_is_unknown,
        an_expired_token_is_looked_for_under_its_former_name,
    }
}
