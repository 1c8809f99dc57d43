//! The paths through the library.

mod paused;
mod steps;

use std::num::NonZeroU16;

use idem_runtime::{OnCancel, OnPanic};
use idem_tests::payment::Receipt;

pub(crate) use self::paused::*;
pub(crate) use self::steps::*;
use crate::calls::Hook;
use crate::history::Ending;
use crate::simulation::LEASE;
use crate::sweep::Path;

/// More than there are faults: an operator repeats an action until it succeeds.
const TRIES: usize = 3;

pub(crate) fn a_first_call() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().make().ended().await;
        })
    })
}

pub(crate) fn a_business_error() -> Path {
    // A call that was refused left the key to a later one.
    Path::new(&["Business", "Value"], |simulation| {
        Box::pin(async move {
            simulation
                .call()
                .ends(Ending::Business)
                .make()
                .ended()
                .await;
        })
    })
}

pub(crate) fn a_system_error_and_a_retry() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::System).make().ended().await;
            simulation.far().make().ended().await;
        })
    })
}

pub(crate) fn an_unknown_error() -> Path {
    Path::new(&["Unknown", "Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            simulation.far().make().ended().await;
        })
    })
}

pub(crate) fn an_unknown_error_that_landed() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            simulation.far().hook(Hook::Truth).make().ended().await;
        })
    })
    .hook(Hook::Truth)
}

pub(crate) fn an_unknown_error_that_did_not_land() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            simulation.far().hook(Hook::NotLanded).make().ended().await;
        })
    })
    .hook(Hook::NotLanded)
}

pub(crate) fn an_unknown_error_that_stays_unknown() -> Path {
    Path::new(&["Unknown", "Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            simulation.far().hook(Hook::Undecided).make().ended().await;
        })
    })
    .hook(Hook::Undecided)
}

pub(crate) fn a_hook_whose_caller_vanishes() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            let second = simulation.far().paused().hook(Hook::NotLanded).make();
            second.started().await;
            second.go_away();
            simulation.quiet().await;
            simulation.pass(LEASE);
            simulation.call().hook(Hook::Truth).make().ended().await;
        })
    })
    .hook(Hook::Truth)
}

pub(crate) fn a_caller_that_vanishes_while_it_finds_out() -> Path {
    Path::new(&["Unknown", "Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            let second = simulation.far().hook(Hook::Silent).make();
            simulation.quiet().await;
            second.go_away();
            simulation.settle().await;
        })
    })
}

pub(crate) fn a_panic() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Panic).make().ended().await;
            simulation.far().make().ended().await;
        })
    })
}

pub(crate) fn a_panic_that_is_unknown() -> Path {
    Path::new(&["Unknown", "Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Panic).make().ended().await;
        })
    })
    .set(|engine| engine.on_panic(OnPanic::Unknown))
    .unknown_after(&[Ending::Panic])
}

/// A body whose caller goes away, and a call that comes when the lease is over.
fn dropped(ends: &'static [&'static str]) -> Path {
    Path::new(ends, |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            first.go_away();
            simulation.settle().await;
            simulation.far().make().ended().await;
        })
    })
}

pub(crate) fn a_dropped_caller_whose_key_lapses() -> Path {
    dropped(&["Value"])
}

pub(crate) fn a_dropped_caller_whose_key_is_given_back() -> Path {
    dropped(&["Value"]).set(|engine| engine.on_cancel(OnCancel::Release))
}

pub(crate) fn a_dropped_caller_leaves_the_outcome_unknown() -> Path {
    dropped(&["Unknown", "Value"])
        .set(|engine| engine.on_cancel(OnCancel::Unknown))
        .unknown_after(&[Ending::Dropped])
}

pub(crate) fn a_dropped_caller_is_reconciled() -> Path {
    dropped(&["Value"])
        .set(|engine| engine.on_cancel(OnCancel::Unknown))
        .unknown_after(&[Ending::Dropped])
        .hook(Hook::Truth)
}

pub(crate) fn a_body_that_outlives_its_caller() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().finishes().make();
            first.started().await;
            first.go_away();
            simulation.quiet().await;
            first.open();
            simulation.settle().await;
        })
    })
}

pub(crate) fn a_replay() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().make().ended().await;
            simulation.call().make().ended().await;
            simulation.far().make().ended().await;
        })
    })
}

pub(crate) fn a_duplicate_that_waits_here() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            let second = simulation.call().make();
            simulation.quiet().await;
            first.open();
            second.ended().await;
        })
    })
}

pub(crate) fn a_duplicate_that_waits_elsewhere() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            let second = simulation.far().make();
            simulation.quiet().await;
            first.open();
            second.ended().await;
        })
    })
}

pub(crate) fn a_duplicate_of_a_call_that_fails() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().ends(Ending::System).make();
            first.started().await;
            let (second, third) = (simulation.call().make(), simulation.far().make());
            simulation.quiet().await;
            first.open();
            second.ended().await;
            third.ended().await;
        })
    })
}

/// Of one attempt.
fn single(path: Path) -> Path {
    path.attempts(1)
        .set(|engine| engine.max_attempts(Some(NonZeroU16::MIN)))
}

pub(crate) fn one_attempt_that_succeeds() -> Path {
    // A claim that arrives after all callers have given up costs the only attempt.
    single(Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().make().ended().await;
        })
    }))
    .at_worst(&["Exhausted"])
}

pub(crate) fn one_attempt_that_fails() -> Path {
    single(Path::new(&["Exhausted", "Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::System).make().ended().await;
            simulation.far().make().ended().await;
        })
    }))
}

pub(crate) fn one_attempt_that_vanishes() -> Path {
    single(dropped(&["Exhausted", "Value"]))
}

pub(crate) fn one_attempt_that_is_paused() -> Path {
    single(Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            simulation.far().make().ended().await;
            first.open();
            first.ended().await;
        })
    }))
    .at_worst(&["Exhausted"])
}

pub(crate) fn an_answer_that_is_too_large() -> Path {
    Path::new(&["NotStored"], |simulation| {
        Box::pin(async move {
            simulation.call().make().ended().await;
        })
    })
    .set(|engine| engine.max_value_bytes(4))
}

pub(crate) fn an_unknown_call_that_is_resolved() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            for _ in 0..TRIES {
                simulation
                    .by_hand(|entry| async move { entry.resolve(&Receipt { run: 1 }).await })
                    .await;
            }
        })
    })
}

pub(crate) fn an_unknown_call_that_is_reset() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().ends(Ending::Unknown).make().ended().await;
            for _ in 0..TRIES {
                simulation.by_hand(idem_runtime::admin::Entry::reset).await;
            }
        })
    })
}
