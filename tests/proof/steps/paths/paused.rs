//! The first process is paused beyond its lease and overtaken.

use idem_runtime::OnLeaseLost;

use super::single;
use crate::history::Ending;
use crate::simulation::LEASE;
use crate::sweep::Path;

/// The first one ends after its successor: when it is let, or when it learns of that at the next renewal.
fn ends_after(name: &'static str, opens: bool) -> Path {
    Path::new(name, &["Value"], async move |s| {
        let first = s.call().paused().make();
        first.started().await;
        s.pause(LEASE);
        s.far().make().ended().await;
        if opens {
            first.open();
        }
        first.ended().await;
    })
}

/// The first one ends like this, and its successor after it. `paused`: for longer than its lease as well.
fn ends_before(
    name: &'static str,
    ends: &'static [&'static str],
    [first, second]: [Ending; 2],
    paused: bool,
) -> Path {
    Path::new(name, ends, async move |s| {
        let first = s.call().paused().ends(first).make();
        first.started().await;
        s.pause(LEASE);
        let second = s.far().paused().ends(second).make();
        second.started().await;
        if paused {
            s.pause(LEASE);
        }
        first.open();
        s.quiet().await;
        second.open();
        first.ended().await;
    })
}

pub(super) fn paths() -> Vec<Path> {
    let (known, either) = (&["Value"], &["Value", "Business"]);
    let (value, business, system) = (Ending::Value, Ending::Business, Ending::System);
    vec![
        ends_after("a_paused_process_that_ends_after_its_successor", true),
        ends_before(
            "a_paused_process_that_ends_before_its_successor",
            known,
            [value, value],
            false,
        ),
        ends_before(
            "a_paused_process_whose_successor_fails",
            known,
            [value, system],
            false,
        ),
        Path::new(
            "a_paused_process_whose_successor_vanishes",
            known,
            async |s| {
                let first = s.call().paused().make();
                first.started().await;
                s.pause(LEASE);
                let second = s.far().paused().make();
                second.started().await;
                second.go_away();
                first.open();
                first.ended().await;
            },
        ),
        ends_before(
            "a_paused_process_that_fails_beside_its_successor",
            either,
            [business, value],
            false,
        ),
        ends_before(
            "a_paused_process_that_fails_beside_a_paused_successor",
            either,
            [business, value],
            true,
        ),
        ends_after("a_paused_process_that_is_cancelled", false)
            .set(|engine| engine.on_lease_lost(OnLeaseLost::Cancel)),
        single(ends_after("one_attempt_that_is_paused", true))
            .at_worst(&["Exhausted"])
            .in_pairs(),
    ]
}
