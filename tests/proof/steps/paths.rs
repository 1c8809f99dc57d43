//! The paths through the library.

mod paused;
mod steps;

use std::num::NonZeroU16;

use idem_runtime::admin::Entry;
use idem_runtime::{OnCancel, OnPanic};
use idem_tests::payment::Receipt;

use crate::calls::Hook;
use crate::history::Ending;
use crate::simulation::{LEASE, Simulation};
use crate::sweep::Path;

/// More than there are faults: an operator repeats an action until it succeeds.
const TRIES: usize = 3;

pub(crate) fn all() -> Vec<Path> {
    [calls(), outcomes(), paused::paths(), steps::paths()].concat()
}

/// One call whose body ends like this.
fn alone(name: &'static str, ends: &'static [&'static str], how: Ending) -> Path {
    Path::new(name, ends, async move |s| {
        s.call().ends(how).make().ended().await;
    })
}

/// A call whose body ends like this, and another one elsewhere. It and later ones reconcile like this.
fn again(
    name: &'static str,
    ends: &'static [&'static str],
    how: Ending,
    hook: Option<Hook>,
) -> Path {
    let path = Path::new(name, ends, async move |s| {
        s.call().ends(how).make().ended().await;
        s.far().hook(hook).make().ended().await;
    });
    path.hook(hook)
}

/// A body whose caller leaves, and a call after the lease.
fn dropped(name: &'static str, ends: &'static [&'static str], on_cancel: OnCancel) -> Path {
    let path = Path::new(name, ends, async |s| {
        let first = s.call().paused().make();
        first.started().await;
        first.go_away();
        s.settle().await;
        s.far().make().ended().await;
    });
    let path = path.set(move |engine| engine.on_cancel(on_cancel));
    match on_cancel {
        OnCancel::Unknown => path.unknown_after(&[Ending::Dropped]),
        _ => path,
    }
}

/// A second call, here or elsewhere, while the first one's body runs.
fn duplicate(name: &'static str, far: bool) -> Path {
    Path::new(name, &["Value"], async move |s| {
        let first = s.call().paused().make();
        first.started().await;
        let second = if far { s.far() } else { s.call() };
        let second = second.make();
        s.quiet().await;
        first.open();
        second.ended().await;
    })
}

/// Of one attempt.
fn single(path: Path) -> Path {
    path.attempts(1)
        .set(|engine| engine.max_attempts(Some(NonZeroU16::MIN)))
}

/// An operator's repeated acts on an unknown call.
async fn by_hand<F>(s: &Simulation, act: impl Fn(Entry) -> F + Copy + Send + 'static)
where
    F: Future<Output = Result<(), idem_runtime::Error>> + Send,
{
    for _ in 0..TRIES {
        s.by_hand(act).await;
    }
}

fn calls() -> Vec<Path> {
    let known = &["Value"];
    vec![
        alone("a_first_call", known, Ending::Value).in_pairs(),
        // A call that was refused left the key to a later one.
        alone("a_business_error", &["Business", "Value"], Ending::Business).in_pairs(),
        again("a_system_error_and_a_retry", known, Ending::System, None).in_pairs(),
        again("a_panic", known, Ending::Panic, None),
        Path::new("a_replay", known, async |s| {
            s.call().make().ended().await;
            s.call().make().ended().await;
            s.far().make().ended().await;
        }),
        duplicate("a_duplicate_that_waits_here", false).in_pairs(),
        duplicate("a_duplicate_that_waits_elsewhere", true),
        Path::new("a_duplicate_of_a_call_that_fails", known, async |s| {
            let first = s.call().paused().ends(Ending::System).make();
            first.started().await;
            let (second, third) = (s.call().make(), s.far().make());
            s.quiet().await;
            first.open();
            second.ended().await;
            third.ended().await;
        }),
        Path::new("a_body_that_outlives_its_caller", known, async |s| {
            let first = s.call().paused().finishes().make();
            first.started().await;
            first.go_away();
            s.quiet().await;
            first.open();
            s.settle().await;
        })
        .in_pairs(),
        dropped("a_dropped_caller_whose_key_lapses", known, OnCancel::Hold),
        dropped(
            "a_dropped_caller_whose_key_is_given_back",
            known,
            OnCancel::Release,
        ),
        // A claim that arrives after all callers have given up costs the only attempt.
        single(alone("one_attempt_that_succeeds", known, Ending::Value))
            .at_worst(&["Exhausted"])
            .in_pairs(),
        single(again(
            "one_attempt_that_fails",
            &["Exhausted", "Value"],
            Ending::System,
            None,
        )),
        single(dropped(
            "one_attempt_that_vanishes",
            &["Exhausted", "Value"],
            OnCancel::Hold,
        )),
        alone("an_answer_that_is_too_large", &["NotStored"], Ending::Value)
            .set(|engine| engine.max_value_bytes(4)),
    ]
}

/// Of bodies whose outcome is unknown.
fn outcomes() -> Vec<Path> {
    let (known, unknown) = (&["Value"], &["Unknown", "Value"]);
    let errors = |name, ends, hook| again(name, ends, Ending::Unknown, hook);
    vec![
        errors("an_unknown_error", unknown, None),
        errors("an_unknown_error_that_landed", known, Some(Hook::Truth)).in_pairs(),
        errors(
            "an_unknown_error_that_did_not_land",
            known,
            Some(Hook::NotLanded),
        ),
        errors(
            "an_unknown_error_that_stays_unknown",
            unknown,
            Some(Hook::Undecided),
        ),
        Path::new("a_hook_whose_caller_vanishes", known, async |s| {
            s.call().ends(Ending::Unknown).make().ended().await;
            let second = s.far().paused().hook(Some(Hook::NotLanded)).make();
            second.started().await;
            second.go_away();
            s.quiet().await;
            s.pass(LEASE);
            s.call().hook(Some(Hook::Truth)).make().ended().await;
        })
        .hook(Some(Hook::Truth)),
        Path::new(
            "a_caller_that_vanishes_while_it_finds_out",
            unknown,
            async |s| {
                s.call().ends(Ending::Unknown).make().ended().await;
                let second = s.far().hook(Some(Hook::Silent)).make();
                s.quiet().await;
                second.go_away();
                s.settle().await;
            },
        ),
        alone("a_panic_that_is_unknown", unknown, Ending::Panic)
            .set(|engine| engine.on_panic(OnPanic::Unknown))
            .unknown_after(&[Ending::Panic]),
        dropped(
            "a_dropped_caller_leaves_the_outcome_unknown",
            unknown,
            OnCancel::Unknown,
        )
        .in_pairs(),
        dropped("a_dropped_caller_is_reconciled", known, OnCancel::Unknown).hook(Some(Hook::Truth)),
        Path::new("an_unknown_call_that_is_resolved", known, async |s| {
            s.call().ends(Ending::Unknown).make().ended().await;
            by_hand(s, async |entry: Entry| {
                entry.resolve(&Receipt { run: 1 }).await
            })
            .await;
        }),
        Path::new("an_unknown_call_that_is_reset", known, async |s| {
            s.call().ends(Ending::Unknown).make().ended().await;
            by_hand(s, Entry::reset).await;
        }),
    ]
}
