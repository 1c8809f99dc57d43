//! Calls once more for every acknowledged answer of a store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_runtime::store::Store;
use idem_runtime::{Engine, Error, OnRunning};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::journal::Run;
use super::load::OPERATION;

/// The answer of a body that runs in an audit. Runs of the load count from 1.
const RAN: u32 = 0;

/// Callers of the audit at a time.
const CALLERS: usize = 64;

/// How long a store may take to answer for all keys: an unrenewed claim lapses after 30 s.
const PATIENCE: Duration = Duration::from_mins(3);

/// The fate of acknowledged answers.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Audit {
    /// How many were called again.
    pub(crate) audited: u64,
    /// The body ran again, or another answer came.
    pub(crate) lost: u64,
    /// Of the lost ones: another answer came, and no body ran.
    pub(crate) differing: u64,
    /// The store gave no answer at all.
    pub(crate) unanswered: u64,
}

/// A fresh engine on this store calls for each of these keys.
pub(crate) async fn audit(store: Arc<dyn Store>, acknowledged: Vec<Run>) -> Audit {
    let engine = Engine::builder(store).on_running(OnRunning::Reject);
    let engine = engine.build().unwrap();
    let began = Instant::now();
    let mut audit = Audit {
        audited: acknowledged.len() as u64,
        ..Audit::default()
    };
    let mut rest = acknowledged;
    loop {
        rest = round(&engine, rest, &mut audit).await;
        if rest.is_empty() || began.elapsed() > PATIENCE {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    audit.unanswered = rest.len() as u64;
    audit
}

/// Calls for each of them once, and gives those back that are to be called again.
async fn round(engine: &Engine, runs: Vec<Run>, audit: &mut Audit) -> Vec<Run> {
    let mut callers = JoinSet::new();
    let share = runs.len().div_ceil(CALLERS).max(1);
    for runs in runs.chunks(share) {
        let (engine, runs) = (engine.clone(), runs.to_vec());
        callers.spawn(async move {
            let mut said = Vec::with_capacity(runs.len());
            for run in runs {
                let call = engine.operation(OPERATION).key(&run.key);
                said.push((run, call.run(|_| async { Ok::<_, Error>(RAN) }).await));
            }
            said
        });
    }
    let mut rest = Vec::new();
    for (run, said) in callers.join_all().await.into_iter().flatten() {
        match said {
            Ok(answer) if answer == run.answer => {}
            Ok(answer) => {
                audit.lost += 1;
                audit.differing += u64::from(answer != RAN);
            }
            Err(error) if error.is_retryable() => rest.push(run),
            // Nothing of the kind can be stored for these calls: it is another answer.
            Err(_) => {
                audit.lost += 1;
                audit.differing += 1;
            }
        }
    }
    rest
}
