//! Each scenario's books balance on real servers, and only with idem.

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

/// The books balance, and do not without idem: the proof that they can fail.
fn balances(scenario: &str) {
    for (args, ends_well, verdict) in [
        (&[][..], true, "the books balance"),
        (&["--unprotected"], false, "DO NOT BALANCE"),
    ] {
        let (printed, ended_well) = run(scenario, args);
        assert_eq!(ended_well, ends_well, "{printed}");
        assert!(printed.contains(verdict), "{printed}");
    }
}

#[test]
fn a_flash_sale_sells_each_item_once_and_one_to_a_buyer() {
    balances("flash_sale");
}

#[test]
fn stock_is_not_oversold_in_any_of_three_ways() {
    balances("stock");
}

#[test]
fn an_order_takes_allowed_steps_only_and_each_once() {
    balances("order_status");
}

#[test]
fn a_movement_of_money_is_booked_once_and_the_journal_explains_the_balance() {
    balances("balance");
}

#[test]
fn a_redis_that_is_killed_in_front_of_a_database_costs_no_answer() {
    balances("double_layer");
}

#[test]
fn a_licence_is_issued_once_by_engines_that_share_a_lock_service() {
    balances("lock_service");
}

#[test]
fn every_repeat_of_an_order_of_a_partner_gets_its_receipt() {
    balances("order");
}

#[test]
fn every_notification_of_a_payment_is_answered_with_success() {
    balances("payment_callback");
}

#[test]
fn each_notification_is_sent_once_and_a_captcha_once_a_minute() {
    balances("notifications");
}

#[test]
fn a_flow_that_is_killed_after_every_step_ends_once() {
    balances("order_flow");
}

#[test]
fn a_message_is_handled_once_or_becomes_a_dead_letter() {
    balances("messages");
}

#[test]
fn every_scenario_is_tested() {
    let here = include_str!("scenarios.rs");
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    for entry in std::fs::read_dir(programs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let scenario = name.strip_suffix(".rs").unwrap();
        assert!(
            here.contains(&format!("balances(\"{scenario}\")")),
            "{scenario}"
        );
    }
}
