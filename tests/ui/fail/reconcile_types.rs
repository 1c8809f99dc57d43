//! Hooks that take other arguments, or find something else.

use idem_runtime::{Answer, Context, Error, Reconciled, idempotent};

struct Bank;

async fn find_text(_: &u64, _: &str, _: &Context) -> Reconciled<String> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find_text)]
async fn another_answer(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

async fn find_by_value(_: u64, _: &str, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = self::find_by_value)]
async fn by_value(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

async fn find_of_text(_: &String, _: &str, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find_of_text)]
async fn other_arguments(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

async fn find(_: &u64, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn too_few_arguments(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

async fn find_in_bank(_: &u64, _: &Bank, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find_in_bank)]
async fn skipped_argument(order: u64, #[idem(skip)] bank: &Bank) -> Result<u64, Error> {
    Ok(order)
}

async fn find_option(_: &u64, _: &str, _: &Context) -> Option<u64> {
    None
}

#[idempotent(key = order, on_error = release, reconcile = find_option)]
async fn no_verdict(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

fn find_now(_: &u64, _: &str, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find_now)]
async fn not_async(order: u64, note: &str) -> Result<u64, Error> {
    Ok(order)
}

fn found_now(_: &u64) -> Reconciled<u64> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = found_now(&order))]
async fn call_not_async(order: u64) -> Result<u64, Error> {
    Ok(order)
}

async fn found_text(_: &u64) -> Reconciled<String> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = found_text(&order))]
async fn call_of_another_answer(order: u64) -> Result<u64, Error> {
    Ok(order)
}

async fn find_answer(_: &u64, _: &Context) -> Reconciled<String> {
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find_answer)]
async fn of_an_answer(order: u64) -> Result<Answer<u64>, Error> {
    Ok(order.into())
}

fn main() {}
