//! Each scenario's books balance on real servers, and do not balance without idem.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::process::Command;

/// Runs the program on servers of its own. Its output, and whether it ended well.
fn run(scenario: &str, args: &[&str]) -> (String, bool) {
    let mut command = Command::new(support::built(scenario));
    command.env_remove("REDIS_URL").env_remove("DATABASE_URL");
    let output = command.args(args).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (printed + &errors, output.status.success())
}

fn balances(scenario: &str) {
    let (printed, ended_well) = run(scenario, &[]);
    assert!(ended_well, "{printed}");
    assert!(printed.contains("the books balance"), "{printed}");
}

/// The proof that the books can fail.
fn does_not_balance_without_idem(scenario: &str) {
    let (printed, ended_well) = run(scenario, &["--unprotected"]);
    assert!(!ended_well, "{printed}");
    assert!(printed.contains("DO NOT BALANCE"), "{printed}");
}

#[test]
fn a_captcha_is_sent_once_a_minute() {
    balances("captcha");
    does_not_balance_without_idem("captcha");
}

#[test]
fn a_flash_sale_sells_each_item_once_and_one_to_a_buyer() {
    balances("flash_sale");
    does_not_balance_without_idem("flash_sale");
}

#[test]
fn stock_is_not_oversold_in_any_of_three_ways() {
    balances("stock");
    does_not_balance_without_idem("stock");
}

#[test]
fn an_order_takes_allowed_steps_only_and_each_once() {
    balances("order_status");
    does_not_balance_without_idem("order_status");
}

#[test]
fn a_movement_of_money_is_booked_once_and_the_journal_explains_the_balance() {
    balances("balance");
    does_not_balance_without_idem("balance");
}

#[test]
fn a_redis_that_is_killed_in_front_of_a_database_costs_no_answer() {
    balances("double_layer");
    does_not_balance_without_idem("double_layer");
}

#[test]
fn a_licence_is_issued_once_by_engines_that_share_a_lock_service() {
    balances("lock_service");
    does_not_balance_without_idem("lock_service");
}
