//! The first process is paused for longer than its lease, and another one takes its key over.

use idem_runtime::OnLeaseLost;

use crate::history::Ending;
use crate::simulation::LEASE;
use crate::sweep::Path;

pub(crate) fn a_paused_process_that_ends_after_its_successor() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            simulation.far().make().ended().await;
            first.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_ends_before_its_successor() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            let second = simulation.far().paused().make();
            second.started().await;
            first.open();
            simulation.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_whose_successor_fails() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            let second = simulation.far().paused().ends(Ending::System).make();
            second.started().await;
            first.open();
            simulation.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_whose_successor_vanishes() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            let second = simulation.far().paused().make();
            second.started().await;
            second.go_away();
            first.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_fails_beside_its_successor() -> Path {
    Path::new(&["Value", "Business"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().ends(Ending::Business).make();
            first.started().await;
            simulation.pause(LEASE);
            let second = simulation.far().paused().make();
            second.started().await;
            first.open();
            simulation.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_fails_beside_a_paused_successor() -> Path {
    Path::new(&["Value", "Business"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().ends(Ending::Business).make();
            first.started().await;
            simulation.pause(LEASE);
            let second = simulation.far().paused().make();
            second.started().await;
            simulation.pause(LEASE);
            first.open();
            simulation.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_is_cancelled() -> Path {
    Path::new(&["Value"], |simulation| {
        Box::pin(async move {
            let first = simulation.call().paused().make();
            first.started().await;
            simulation.pause(LEASE);
            simulation.far().make().ended().await;
            // It learns of it at the next renewal.
            first.ended().await;
        })
    })
    .set(|engine| engine.on_lease_lost(OnLeaseLost::Cancel))
}
