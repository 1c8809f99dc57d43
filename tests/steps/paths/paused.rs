//! The first process is paused for longer than its lease, and another one takes its key over.

use idem_runtime::OnLeaseLost;

use crate::history::Ending;
use crate::stage::LEASE;
use crate::sweep::Path;

pub(crate) fn a_paused_process_that_ends_after_its_successor() -> Path {
    Path::new(&["Value"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().make();
            first.started().await;
            stage.pause(LEASE);
            stage.far().make().ended().await;
            first.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_ends_before_its_successor() -> Path {
    Path::new(&["Value"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().make();
            first.started().await;
            stage.pause(LEASE);
            let second = stage.far().paused().make();
            second.started().await;
            first.open();
            stage.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_whose_successor_fails() -> Path {
    Path::new(&["Value"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().make();
            first.started().await;
            stage.pause(LEASE);
            let second = stage.far().paused().ends(Ending::System).make();
            second.started().await;
            first.open();
            stage.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_whose_successor_vanishes() -> Path {
    Path::new(&["Value"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().make();
            first.started().await;
            stage.pause(LEASE);
            let second = stage.far().paused().make();
            second.started().await;
            second.go_away();
            first.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_fails_beside_its_successor() -> Path {
    Path::new(&["Value", "Business"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().ends(Ending::Business).make();
            first.started().await;
            stage.pause(LEASE);
            let second = stage.far().paused().make();
            second.started().await;
            first.open();
            stage.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_fails_beside_a_paused_successor() -> Path {
    Path::new(&["Value", "Business"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().ends(Ending::Business).make();
            first.started().await;
            stage.pause(LEASE);
            let second = stage.far().paused().make();
            second.started().await;
            stage.pause(LEASE);
            first.open();
            stage.quiet().await;
            second.open();
            first.ended().await;
        })
    })
}

pub(crate) fn a_paused_process_that_is_cancelled() -> Path {
    Path::new(&["Value"], |stage| {
        Box::pin(async move {
            let first = stage.call().paused().make();
            first.started().await;
            stage.pause(LEASE);
            stage.far().make().ended().await;
            // The next renewal tells it.
            first.ended().await;
        })
    })
    .set(|engine| engine.on_lease_lost(OnLeaseLost::Cancel))
}
