//! Checks for arguments that are valid alone, but not together.

use crate::args::{Args, Attempts, DurationArg, OnError};
use crate::duration;
use crate::errors::Errors;
use syn::LitStr;

pub(super) fn check(args: &Args, errors: &mut Errors) {
    check_outage_with_one_attempt(args, errors);
    check_count_errors(args, errors);
    check_error_ttl(args, errors);
    check_max_run(args, errors);
    check_tx(args, errors);
}

/// Rejects `max_attempts = 1` with `on_outage = run`.
fn check_outage_with_one_attempt(args: &Args, errors: &mut Errors) {
    if let (Some(Attempts::Most(1)), Some(outage)) = (args.max_attempts, args.word("on_outage"))
        && outage.text == "run"
    {
        errors.at(
            outage.span,
            "`on_outage = run` starts the body without a check for earlier attempts, which `max_attempts = 1` \
             forbids; remove one of the two",
        );
    }
}

/// Rejects `count_errors` where it has no effect.
fn check_count_errors(args: &Args, errors: &mut Errors) {
    let Some(count) = &args.count_errors else {
        return;
    };
    let (because, other) = match (count.value, &args.on_error, args.max_attempts) {
        (true, Some(OnError::Keep), _) => (
            "`on_error = keep` never releases the key after an error",
            "on_error",
        ),
        (true, Some(OnError::Unknown), _) => (
            "`on_error = unknown` never releases the key after an error",
            "on_error",
        ),
        (true, _, Some(Attempts::Unlimited)) => ("`max_attempts` is `unlimited`", "max_attempts"),
        (false, _, Some(Attempts::Most(1))) => (
            "with `max_attempts = 1` the body starts at most once",
            "max_attempts",
        ),
        _ => return,
    };
    let message = format!(
        "`count_errors` has no effect, because {because}; remove `count_errors` or `{other}`"
    );
    errors.at(count.span, message);
}

/// Rejects `error_ttl` where no error is stored.
fn check_error_ttl(args: &Args, errors: &mut Errors) {
    let (Some(named), Some(on_error)) = (args.named("error_ttl"), &args.on_error) else {
        return;
    };
    let because = match on_error {
        OnError::Release => "`on_error = release` stores none",
        OnError::Unknown => {
            "`on_error = unknown` stores an unknown outcome instead, whose life is `ttl`"
        }
        _ => return,
    };
    let message = format!(
        "`error_ttl` is the life of a stored error, but {because}; remove `error_ttl` or `on_error`"
    );
    errors.at(named, message);
}

/// Rejects a `max_run` below the lease, probably meant as a timeout.
fn check_max_run(args: &Args, errors: &mut Errors) {
    let (Some(DurationArg::Text(lease)), Some(DurationArg::Text(max_run))) =
        (args.duration("lease"), args.duration("max_run"))
    else {
        return;
    };
    let millis = |text: &LitStr| duration::parse_millis(&text.value()).ok();
    if let (Some(lease), Some(millis)) = (millis(lease), millis(max_run))
        && (1..lease).contains(&millis)
    {
        let message = format!(
            "`max_run` ends the renewal of the lease, not the body; it must be at least the `lease`, {}",
            duration::format_millis(lease)
        );
        errors.at(max_run.span(), message);
    }
}

/// Rejects arguments that have no meaning with `tx`: the transaction commits or rolls back everything inside it.
fn check_tx(args: &Args, errors: &mut Errors) {
    if args.named("tx").is_none() {
        return;
    }
    let no_lease = "your transaction holds the key's row, and there is no lease";
    let no_record =
        "a call that ends without an answer leaves no record, and no attempts are counted";
    let incompatible = [
        ("lease", no_lease),
        ("max_run", no_lease),
        (
            "on_cancel",
            "the writes of a dropped call are rolled back with your transaction",
        ),
        (
            "on_panic",
            "a panic rolls back the call's part of your transaction",
        ),
        ("on_lease_lost", no_lease),
        (
            "on_unconfirmed",
            "the answer is committed with your transaction, whose commit decides whether it is stored",
        ),
        (
            "on_outage",
            "the store is the database of your transaction, without which the body cannot run either",
        ),
        ("max_attempts", no_record),
        ("count_errors", no_record),
        (
            "label",
            "a call that ends without an answer leaves no record, and a label is stored with the attempts of one",
        ),
        (
            "reconcile",
            "the answer is committed with the body's writes, so that no outcome is unknown",
        ),
    ];
    for (name, because) in incompatible {
        if let Some(span) = args.named(name) {
            errors.at(span, format!("with `tx`, {because}; remove `{name}`"));
        }
    }
}
