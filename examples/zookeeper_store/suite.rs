//! The conformance suite against a running server.

use std::fmt;
use std::sync::Arc;

use idem_runtime::conformance::{Case, cases};
use tokio::task::{JoinError, JoinSet};
use zookeeper_client::{Client, Error};

use super::fixture::InZooKeeper;
use super::store::ZooKeeperStore;

/// Number of cases that run concurrently.
const AT_ONCE: usize = 8;

/// The rules of the contract of [`Store`](idem_runtime::store::Store), in a few words each.
const RULES: [&str; 14] = [
    "atomic",
    "owner-checked",
    "repeatable",
    "done is final",
    "leases by the store's clock",
    "the life is part of the write",
    "fences grow",
    "attempts count",
    "fingerprints are kept",
    "what cannot be read is not replaced",
    "keys are separate",
    "a finished answer finds room",
    "unknown stays unknown",
    "who watches is told",
];

/// Results of the cases.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

/// Result of one case.
#[derive(Clone, Debug)]
struct Finding {
    rule: u8,
    name: &'static str,
    /// Message of the failure.
    failure: Option<String>,
}

impl Findings {
    /// Whether every case has passed.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.0.iter().all(|finding| finding.failure.is_none())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.iter().map(|finding| finding.rule).max();
        for rule in 1..=last.unwrap_or_default() {
            let words = RULES.get(usize::from(rule) - 1).unwrap_or(&"");
            let of_rule = self.0.iter().filter(|finding| finding.rule == rule);
            let (failed, passed): (Vec<_>, Vec<_>) =
                of_rule.partition(|finding| finding.failure.is_some());
            write!(f, "{rule:>4}  {words:<36}{:>4} passed", passed.len())?;
            match failed.len() {
                0 => writeln!(f)?,
                failed => writeln!(f, ", {failed} FAILED")?,
            }
        }
        for Finding {
            rule,
            name,
            failure,
        } in &self.0
        {
            if let Some(words) = failure {
                writeln!(f, "\nrule {rule}: {name}\n  {words}")?;
            }
        }
        Ok(())
    }
}

/// Runs every case, each under a root of its own below `root`.
pub async fn run(store: &ZooKeeperStore, client: &Client, root: &str) -> Findings {
    let mut findings = Findings::default();
    let mut running = JoinSet::new();
    for case in cases() {
        if running.len() == AT_ONCE {
            findings.note(running.join_next().await);
        }
        let fixture = InZooKeeper::new(store, client, format!("{root}/{}", case.name));
        running.spawn(async move {
            // In a task of its own, so that its panic becomes the finding.
            let outcome = tokio::spawn((case.run)(Arc::new(fixture))).await;
            (case, outcome)
        });
    }
    while !running.is_empty() {
        findings.note(running.join_next().await);
    }
    findings
}

type Ended = Result<(Case, Result<(), JoinError>), JoinError>;

impl Findings {
    fn note(&mut self, ended: Option<Ended>) {
        let Some(Ok((case, outcome))) = ended else {
            return;
        };
        self.0.push(Finding {
            rule: case.rule,
            name: case.name,
            failure: outcome.err().map(words),
        });
    }
}

/// Message of a failed case.
fn words(panic: JoinError) -> String {
    let Ok(panic) = panic.try_into_panic() else {
        return "it was cancelled".to_owned();
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a word").to_owned()
}

/// Deletes a node and everything below it.
///
/// # Errors
///
/// [`Error`] of the client; earlier deletions remain.
pub async fn remove(client: &Client, root: &str) -> Result<(), Error> {
    let mut left = vec![root.to_owned()];
    while let Some(node) = left.last() {
        match client.delete(node, None).await {
            Ok(()) | Err(Error::NoNode) => {
                left.pop();
            }
            Err(Error::NotEmpty) => {
                let children = client.list_children(node).await?;
                let node = node.clone();
                left.extend(children.iter().map(|name| format!("{node}/{name}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
