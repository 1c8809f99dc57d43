//! Bodies with steps.

use idem_runtime::OnCancel;

use super::{TRIES, single};
use crate::calls::Hook;
use crate::history::Ending;
use crate::parts::Part::{Asked, Once, Plain};
use crate::parts::Turn;
use crate::simulation::LEASE;
use crate::sweep::Path;

pub(crate) fn a_first_call_with_steps() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            simulation.call().make().ended().await;
        })
    })
    .parts(&[Plain, Once], &[1])
}

/// The second call gets the result of the first step, and runs the second one.
pub(crate) fn a_failed_call_is_continued() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(1, Turn::System).make();
            first.ended().await;
            simulation.far().make().ended().await;
        })
    })
    .parts(&[Plain, Plain], &[])
}

/// A system error states that nothing happened.
pub(crate) fn a_step_that_runs_once_fails() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(1, Turn::System).make();
            first.ended().await;
            simulation.far().make().ended().await;
        })
    })
    .parts(&[Plain, Once], &[1])
    // Its beginning was stored without a reply, and what voids it was lost.
    .at_worst(&["Unknown"])
}

pub(crate) fn a_step_that_runs_once_is_interrupted() -> Path {
    Path::new(&["Unknown", "Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(1, Turn::Waits).make();
            first.reached(1).await;
            first.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            simulation.far().make().ended().await;
        })
    })
    .parts(&[Plain, Once], &[1])
}

pub(crate) fn an_interrupted_step_is_asked_about() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(0, Turn::Waits).make();
            first.reached(0).await;
            first.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            let second = (simulation.far())
                .turn(0, Turn::WaitsBehindItsEffect)
                .make();
            second.reached(0).await;
            second.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            simulation.call().make().ended().await;
        })
    })
    .parts(&[Asked, Plain], &[0])
}

pub(crate) fn an_unknown_step_is_asked_about() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(0, Turn::Unknown).make();
            first.ended().await;
            simulation.far().hook(Hook::NotLanded).make().ended().await;
        })
    })
    .parts(&[Asked, Plain], &[0])
    .hook(Hook::NotLanded)
}

/// A paused process ends its step after its successor has run it.
pub(crate) fn a_paused_step_ends_after_its_successor() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = (simulation.call())
                .turn(0, Turn::WaitsBehindItsEffect)
                .make();
            first.reached(0).await;
            simulation.pause(LEASE);
            let second = simulation.far().turn(1, Turn::System).make();
            second.ended().await;
            first.open();
            first.ended().await;
        })
    })
    .parts(&[Plain, Plain], &[])
}

/// A paused process is dropped, and its outcome is unknown, when its successor has failed.
pub(crate) fn a_paused_step_is_unknown_after_its_successor() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(0, Turn::Waits).make();
            first.reached(0).await;
            simulation.pause(LEASE);
            let second = simulation.far().turn(1, Turn::System).make();
            second.ended().await;
            first.go_away();
            simulation.quiet().await;
            // If the second one could not give its claim back, it is over now.
            simulation.pass(LEASE);
            simulation.far().hook(Hook::NotLanded).make().ended().await;
        })
    })
    .parts(&[Plain, Plain], &[])
    .set(|engine| engine.on_cancel(OnCancel::Unknown))
    .unknown_after(&[])
    .hook(Hook::NotLanded)
}

/// The hook of a paused process finds nothing, and its successor runs the step.
pub(crate) fn a_hook_of_a_step_is_paused() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(0, Turn::Waits).make();
            first.reached(0).await;
            first.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            let second = simulation.far().turn(0, Turn::HookWaits).make();
            second.started().await;
            simulation.pause(LEASE);
            simulation.call().make().ended().await;
            second.open();
            second.ended().await;
        })
    })
    .parts(&[Asked, Plain], &[0])
}

/// The hook of a process finds nothing, and the process has learned meanwhile that its lease is lost.
pub(crate) fn a_hook_of_a_step_outlives_its_lease() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(0, Turn::Waits).make();
            first.reached(0).await;
            first.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            let second = simulation.far().turn(0, Turn::HookWaits).make();
            second.started().await;
            simulation.pause(LEASE);
            let third = simulation.call().paused().make();
            third.started().await;
            simulation.pass(LEASE / 2);
            simulation.quiet().await;
            second.open();
            simulation.quiet().await;
            third.open();
            second.ended().await;
        })
    })
    .parts(&[Asked, Plain], &[0])
}

pub(crate) fn one_attempt_with_steps() -> Path {
    single(Path::new(&["Exhausted", "Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().turn(1, Turn::System).make();
            first.ended().await;
            simulation.far().make().ended().await;
        })
    }))
    .parts(&[Plain, Once], &[1])
}

pub(crate) fn an_unknown_step_is_reset() -> Path {
    Path::new(&["Value", "Unknown"], |simulation| {
        Box::pin(async move {
            simulation
                .call()
                .turn(1, Turn::Unknown)
                .make()
                .ended()
                .await;
            for _ in 0..TRIES {
                simulation.by_hand(idem_runtime::admin::Entry::reset).await;
            }
            simulation.far().make().ended().await;
            for _ in 0..TRIES {
                simulation
                    .by_hand(idem_runtime::admin::Entry::reset_with_steps)
                    .await;
            }
        })
    })
    .parts(&[Plain, Once], &[1])
    .unknown_after(&[Ending::Unknown])
}

/// A caller goes away behind its steps.
fn dropped_behind_its_steps() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.reached(1).await;
            simulation.quiet().await;
            first.go_away();
            simulation.settle().await;
            simulation.pass(LEASE);
            simulation.far().make().ended().await;
        })
    })
    .parts(&[Plain, Plain], &[])
}

pub(crate) fn a_dropped_caller_is_continued() -> Path {
    dropped_behind_its_steps()
}

pub(crate) fn a_dropped_caller_gives_its_steps_back() -> Path {
    dropped_behind_its_steps().set(|engine| engine.on_cancel(OnCancel::Release))
}
