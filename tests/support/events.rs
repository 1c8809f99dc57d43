//! An observer that records events, and lets a test wait for them.

use std::sync::{Arc, Mutex, PoisonError};

use idem_runtime::{
    Observer, Reconciled,
    observe::{Event, EventKind},
};
use tokio::sync::Notify;

/// The recorded events, in words: `claimed 1`, `replayed value`, `released`, ….
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: Mutex<Vec<String>>,
    changed: Notify,
}

impl Events {
    pub fn all(&self) -> Vec<String> {
        let seen = self.0.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of events whose words start with this text.
    pub fn count(&self, start: &str) -> usize {
        let seen = self.0.seen.lock();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|event| event.starts_with(start)).count()
    }

    /// Waits until that event has occurred this many times.
    pub async fn wait_for(&self, start: &str, times: usize) {
        loop {
            let changed = self.0.changed.notified();
            if self.count(start) >= times {
                return;
            }
            changed.await;
        }
    }
}

impl Events {
    pub fn words(event: &Event<'_>) -> String {
        match &event.kind {
            EventKind::Claimed { attempt, .. } => format!("claimed {attempt}"),
            EventKind::Replayed {
                outcome,
                waited,
                local,
                ..
            } => {
                let waited = if *waited { " after a wait" } else { "" };
                let local = if *local { " locally" } else { "" };
                format!("replayed {outcome:?}{waited}{local}").to_lowercase()
            }
            EventKind::Refused { error } => format!("refused {:?}", error.kind()),
            EventKind::Completed { outcome, late, .. } => {
                let late = if *late { " late" } else { "" };
                format!("completed {outcome:?}{late}").to_lowercase()
            }
            EventKind::Released { counted: true } => "released and counted".to_owned(),
            EventKind::Released { counted: false } => "released".to_owned(),
            EventKind::Unsaved { reason } => format!("unsaved: {reason}"),
            EventKind::StepKept { step } => format!("step kept: {step}"),
            EventKind::StepReplayed { step } => format!("step replayed: {step}"),
            EventKind::StepUnused { step } => format!("step unused: {step}"),
            EventKind::LeaseLost { reason } => format!("lease lost: {reason}"),
            EventKind::RenewalFailed { reason } => format!("renewal failed: {reason}"),
            EventKind::DeadLetter { reason, .. } => format!("dead letter: {reason}"),
            EventKind::Unsettled { reason } => format!("unsettled: {reason}"),
            EventKind::Consuming { subscription } => format!("consuming {subscription}"),
            EventKind::BrokerLost { reason } => format!("broker lost: {reason}"),
            EventKind::BrokerRegained { after } => format!("broker regained after {after:?}"),
            EventKind::BrokerLeft { after } => format!("broker left after {after:?}"),
            EventKind::SubscriptionLost {
                subscription,
                reason,
                continues,
            } => format!("subscription lost: {subscription}: {continues}: {reason}"),
            EventKind::MessageSkipped { position, reason } => {
                format!("skipped as {reason}: {position}")
            }
            EventKind::Warning { message } => format!("warning: {message}"),
            EventKind::Unprotected { reason } => format!("unprotected: {reason}"),
            EventKind::Reconciling { attempts } => format!("reconciling after {attempts}"),
            EventKind::Reconciled { verdict, why } => match (verdict, why) {
                (Reconciled::Landed(()), _) => "landed".to_owned(),
                (Reconciled::NotLanded, _) => "not landed".to_owned(),
                (Reconciled::Unknown, why) => format!("undecided: {}", why.unwrap_or_default()),
                (other, _) => format!("{other:?}"),
            },
            EventKind::ClockStepped { forward: true, .. } => "clock stepped forward".to_owned(),
            EventKind::ClockStepped { forward: false, .. } => "clock stepped back".to_owned(),
            EventKind::Resolved { outcome: None } => "reset".to_owned(),
            EventKind::Resolved {
                outcome: Some(outcome),
            } => format!("resolved {outcome:?}").to_lowercase(),
            kind => format!("{kind:?}").to_lowercase(),
        }
    }
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let words = Self::words(event);
        let seen = self.0.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).push(words);
        self.0.changed.notify_waiters();
    }
}
