//! Arguments that are valid alone, but not together.

use crate::args::{Args, Attempts, OnError, Time};
use crate::borrows;
use crate::duration;
use crate::errors::Errors;
use proc_macro2::Span;
use syn::{FnArg, Receiver, ReceiverKind, Signature};

pub(super) fn check(args: &Args, errors: &mut Errors) {
    unprotected_once(args, errors);
    counted_in_vain(args, errors);
    errors_that_are_not_kept(args, errors);
    short_run(args, errors);
    in_tx(args, errors);
}

/// `max_attempts = 1` contradicts `on_outage = run`.
fn unprotected_once(args: &Args, errors: &mut Errors) {
    let (Some(Attempts::Most(1)), Some(outage)) =
        (args.max_attempts.value, args.word("on_outage").value)
    else {
        return;
    };
    if outage.text == "run" {
        errors.at(
            outage.span,
            "`run` starts the body without asking whether it was started before, which `max_attempts = 1` \
             forbids; remove one",
        );
    }
}

/// `count_errors` without any effect.
fn counted_in_vain(args: &Args, errors: &mut Errors) {
    let Some(count) = &args.count_errors.value else {
        return;
    };
    let because = match (count.value, &args.on_error.value, args.max_attempts.value) {
        (true, Some(OnError::Keep), _) => {
            "`on_error = keep` gives no key back, so that no error would count"
        }
        (true, Some(OnError::Unknown), _) => {
            "`on_error = unknown` gives no key back, so that no error would count"
        }
        (true, _, Some(Attempts::Unlimited)) => {
            "errors count towards `max_attempts`, which is `unlimited`"
        }
        (false, _, Some(Attempts::Most(1))) => {
            "with `max_attempts = 1` the body starts at most once, however it ends"
        }
        _ => return,
    };
    errors.at(count.span, format!("{because}; remove one"));
}

/// `error_ttl` for errors that are never stored.
fn errors_that_are_not_kept(args: &Args, errors: &mut Errors) {
    let (Some(named), Some(on_error)) = (args.error_ttl.named, &args.on_error.value) else {
        return;
    };
    let because = match on_error {
        OnError::Release => "`on_error = release` keeps none",
        OnError::Unknown => {
            "with `on_error = unknown` what is kept is no error, and stays for `ttl`"
        }
        _ => return,
    };
    let message = format!("`error_ttl` is the life of a kept error, and {because}; remove one");
    errors.at(named, message);
}

/// A `max_run` below the lease was probably meant as a timeout of the body.
fn short_run(args: &Args, errors: &mut Errors) {
    let (Some(Time::Text(lease)), Some(Time::Text(run))) = (&args.lease.value, &args.max_run.value)
    else {
        return;
    };
    if let (Ok(lease), Ok(most)) = (
        duration::millis(&lease.value()),
        duration::millis(&run.value()),
    ) && most < lease
    {
        errors.at(
            run.span(),
            format!(
                "`max_run` ends the renewal of the lease, not the body; it is at least the `lease`, {}",
                duration::words(lease)
            ),
        );
    }
}

/// The caller's transaction commits or rolls back everything inside it as a whole.
fn in_tx(args: &Args, errors: &mut Errors) {
    if args.tx.named.is_none() {
        return;
    }
    let no_lease = "your transaction holds the key's row, and no lease runs out";
    let no_record =
        "a call that ends without an answer leaves no record, and no attempts are counted";
    let beside = [
        ("lease", args.lease.named, no_lease),
        ("max_run", args.max_run.named, no_lease),
        (
            "on_cancel",
            args.word("on_cancel").named,
            "what a dropped call wrote is rolled back with your transaction",
        ),
        (
            "on_panic",
            args.word("on_panic").named,
            "a panic undoes the call's part of your transaction",
        ),
        ("on_lease_lost", args.word("on_lease_lost").named, no_lease),
        (
            "on_unconfirmed",
            args.word("on_unconfirmed").named,
            "the answer is committed with your transaction, which says whether it is stored",
        ),
        (
            "on_outage",
            args.word("on_outage").named,
            "the store is the database of your transaction, without which the body cannot run either",
        ),
        ("max_attempts", args.max_attempts.named, no_record),
        ("count_errors", args.count_errors.named, no_record),
        (
            "reconcile",
            args.reconcile.named,
            "the answer is committed with what the body wrote, and nothing is left to find out",
        ),
    ];
    for (name, named, because) in beside {
        if let Some(span) = named {
            errors.at(span, format!("with `tx`, {because}; remove `{name}`"));
        }
    }
}

/// A body that outlives its caller must own all that it uses.
pub(super) fn borrowed(sig: &Signature, errors: &mut Errors) {
    for input in &sig.inputs {
        let (span, instead) = match input {
            FnArg::Receiver(receiver) => (lent(receiver), "`self: Arc<Self>` or `self`"),
            FnArg::Typed(typed) => (
                borrows::borrowed(&typed.ty),
                "an owned value, such as a `String` for a `&str`, or an `Arc`",
            ),
        };
        if let Some(span) = span {
            errors.at(
                span,
                format!(
                    "with `on_cancel = finish` the body runs in a task of its own, which may outlive what is \
                     borrowed here; take {instead}"
                ),
            );
        }
    }
}

fn lent(receiver: &Receiver) -> Option<Span> {
    match &receiver.kind {
        ReceiverKind::Reference(and, ..) => Some(and.span),
        ReceiverKind::Typed(_, ty) => borrows::borrowed(ty),
        _ => None,
    }
}
