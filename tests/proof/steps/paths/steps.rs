//! Bodies with steps.

use idem_runtime::OnCancel;
use idem_runtime::admin::Entry;

use super::{alone, by_hand, single};
use crate::calls::{Call, Hook};
use crate::history::Ending;
use crate::parts::Part::{self, Asked, Once, Plain};
use crate::parts::Turn;
use crate::simulation::{LEASE, Simulation};
use crate::sweep::Path;

/// A caller that leaves during this event of its body's first step. Its lease lapses.
async fn vanishes(s: &Simulation, call: Call<'_>, step: u8) {
    call.reached(step).await;
    call.go_away();
    s.settle().await;
    s.pass(LEASE);
}

/// A call whose second step fails, and a replay of the first.
fn fails(
    name: &'static str,
    ends: &'static [&'static str],
    parts: &'static [Part],
    once: &'static [u8],
) -> Path {
    let path = Path::new(name, ends, async |s| {
        s.call().turn(1, Turn::System).make().ended().await;
        s.far().make().ended().await;
    });
    path.parts(parts, once)
}

/// A caller goes away behind its steps.
fn dropped(name: &'static str, on_cancel: OnCancel) -> Path {
    let path = Path::new(name, &["Value"], async |s| {
        let first = s.call().paused().make();
        first.reached(1).await;
        s.quiet().await;
        first.go_away();
        s.settle().await;
        s.pass(LEASE);
        s.far().make().ended().await;
    });
    path.parts(&[Plain, Plain], &[])
        .set(move |engine| engine.on_cancel(on_cancel))
}

pub(super) fn paths() -> Vec<Path> {
    [continued(), interrupted(), paused()].concat()
}

fn continued() -> Vec<Path> {
    let (known, exhausted) = (&["Value"], &["Exhausted", "Value"]);
    vec![
        alone("a_first_call_with_steps", known, Ending::Value).parts(&[Plain, Once], &[1]),
        fails("a_failed_call_is_continued", known, &[Plain, Plain], &[]).in_pairs(),
        // A system error states that nothing happened. Its beginning was stored without a reply, and what voids it
        // was lost, at worst.
        fails("a_step_that_runs_once_fails", known, &[Plain, Once], &[1]).at_worst(&["Unknown"]),
        single(fails(
            "one_attempt_with_steps",
            exhausted,
            &[Plain, Once],
            &[1],
        )),
        dropped("a_dropped_caller_is_continued", OnCancel::Hold),
        dropped("a_dropped_caller_gives_its_steps_back", OnCancel::Release),
    ]
}

/// A step has no end, or an unknown one.
fn interrupted() -> Vec<Path> {
    vec![
        Path::new(
            "a_step_that_runs_once_is_interrupted",
            &["Unknown", "Value"],
            async |s| {
                vanishes(s, s.call().turn(1, Turn::Waits).make(), 1).await;
                s.far().make().ended().await;
            },
        )
        .parts(&[Plain, Once], &[1]),
        Path::new(
            "an_interrupted_step_is_asked_about",
            &["Value"],
            async |s| {
                vanishes(s, s.call().turn(0, Turn::Waits).make(), 0).await;
                let second = s.far().turn(0, Turn::WaitsBehindItsEffect);
                vanishes(s, second.make(), 0).await;
                s.call().make().ended().await;
            },
        )
        .parts(&[Asked, Plain], &[0]),
        Path::new("an_unknown_step_is_asked_about", &["Value"], async |s| {
            s.call().turn(0, Turn::Unknown).make().ended().await;
            s.far().hook(Some(Hook::NotLanded)).make().ended().await;
        })
        .parts(&[Asked, Plain], &[0])
        .hook(Some(Hook::NotLanded)),
        Path::new(
            "an_unknown_step_is_reset",
            &["Value", "Unknown"],
            async |s| {
                s.call().turn(1, Turn::Unknown).make().ended().await;
                by_hand(s, Entry::reset).await;
                s.far().make().ended().await;
                by_hand(s, Entry::reset_with_steps).await;
            },
        )
        .parts(&[Plain, Once], &[1])
        .unknown_after(&[Ending::Unknown]),
    ]
}

/// A process is paused in a step for longer than its lease.
fn paused() -> Vec<Path> {
    vec![
        // It ends its step after its successor has run it.
        Path::new(
            "a_paused_step_ends_after_its_successor",
            &["Value"],
            async |s| {
                let first = s.call().turn(0, Turn::WaitsBehindItsEffect).make();
                first.reached(0).await;
                s.pause(LEASE);
                s.far().turn(1, Turn::System).make().ended().await;
                first.open();
                first.ended().await;
            },
        )
        .parts(&[Plain, Plain], &[]),
        // It is dropped, and its outcome is unknown, when its successor has failed.
        Path::new(
            "a_paused_step_is_unknown_after_its_successor",
            &["Value"],
            async |s| {
                let first = s.call().turn(0, Turn::Waits).make();
                first.reached(0).await;
                s.pause(LEASE);
                s.far().turn(1, Turn::System).make().ended().await;
                first.go_away();
                s.quiet().await;
                // If the second one could not give its claim back, it is over now.
                s.pass(LEASE);
                s.far().hook(Some(Hook::NotLanded)).make().ended().await;
            },
        )
        .parts(&[Plain, Plain], &[])
        .set(|engine| engine.on_cancel(OnCancel::Unknown))
        .unknown_after(&[])
        .hook(Some(Hook::NotLanded)),
        // Its hook finds nothing, and its successor runs the step.
        Path::new("a_hook_of_a_step_is_paused", &["Value"], async |s| {
            vanishes(s, s.call().turn(0, Turn::Waits).make(), 0).await;
            let second = s.far().turn(0, Turn::HookWaits).make();
            second.started().await;
            s.pause(LEASE);
            s.call().make().ended().await;
            second.open();
            second.ended().await;
        })
        .parts(&[Asked, Plain], &[0]),
        // Its hook finds nothing, and it has learned meanwhile that its lease is lost.
        Path::new(
            "a_hook_of_a_step_outlives_its_lease",
            &["Value"],
            async |s| {
                vanishes(s, s.call().turn(0, Turn::Waits).make(), 0).await;
                let second = s.far().turn(0, Turn::HookWaits).make();
                second.started().await;
                s.pause(LEASE);
                let third = s.call().paused().make();
                third.started().await;
                s.pass(LEASE / 2);
                s.quiet().await;
                second.open();
                s.quiet().await;
                third.open();
                second.ended().await;
            },
        )
        .parts(&[Asked, Plain], &[0]),
    ]
}
