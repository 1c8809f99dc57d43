//! Limits on concurrent bodies, of an engine and of an HTTP layer. Also the quota of a layer.
//!
//! A body that outlives its caller escapes every limit that counts connections or futures of callers. Here the body
//! itself is counted, by a guard that lives from before its claim until its call has ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::env::lock::Lock;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;

/// Retry delay of a call that was refused at a limit. The end of a body cannot be predicted; 1 s is the smallest delay
/// that is not "at once" (RFC 9110, section 10.2.3).
const SOON: Duration = Duration::from_secs(1);

/// How many bodies may run at once, and how many do.
#[derive(Debug)]
pub(crate) struct RunLimit {
    max: usize,
    running: AtomicUsize,
}

impl RunLimit {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            running: AtomicUsize::new(0),
        })
    }

    fn enter(self: &Arc<Self>) -> Option<Counted> {
        let one_more = |running: usize| (running < self.max).then(|| running + 1);
        let (order, count) = (Ordering::Relaxed, &self.running);
        count.fetch_update(order, order, one_more).ok()?;
        Some(Counted(Arc::clone(self)))
    }

    /// Counts one more body, also beyond the limit.
    fn exceed(self: &Arc<Self>) -> Counted {
        self.running.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }
}

/// Counts one body until it is dropped.
#[derive(Debug)]
struct Counted(Arc<RunLimit>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limit of running bodies per scope, and their counts.
///
/// A scope without a running body has no entry, so that the map is no larger than the number of running bodies.
#[cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "only a layer has scopes")
)]
pub(crate) struct ScopeLimit {
    max: usize,
    running: Lock<HashMap<Arc<str>, usize>>,
}

#[cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "only a layer has scopes")
)]
impl ScopeLimit {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            running: Lock::default(),
        })
    }

    fn enter(self: &Arc<Self>, scope: &Arc<str>) -> Option<CountedInScope> {
        let mut running = self.running.lock();
        let count = running.get(scope).copied().unwrap_or_default();
        if count >= self.max {
            return None;
        }
        running.insert(Arc::clone(scope), count + 1);
        Some(CountedInScope(Arc::clone(self), Arc::clone(scope)))
    }
}

// Scopes name users.
debug_fields!(ScopeLimit { max });

/// Counts one body in its scope until it is dropped.
struct CountedInScope(Arc<ScopeLimit>, Arc<str>);

impl Drop for CountedInScope {
    fn drop(&mut self) {
        let Self(limit, scope) = self;
        let mut running = limit.running.lock();
        if let Some(count) = running.get_mut(scope) {
            *count -= 1;
            if *count == 0 {
                running.remove(scope);
            }
        }
    }
}

/// Whether one more record may be written; if not, the delay before a retry.
pub(crate) type Quota = dyn Fn() -> Result<(), Duration> + Send + Sync;

/// Limits before a call's claim, besides those of its engine.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) running: Option<Arc<RunLimit>>,
    pub(crate) in_scope: Option<(Arc<ScopeLimit>, Arc<str>)>,
    pub(crate) quota: Option<Box<Quota>>,
}

debug_fields!(Gate {});

/// The permit of one running body, until it is dropped.
#[derive(Default)]
pub(crate) struct RunPermit {
    _engine: Option<Counted>,
    _layer: Option<Counted>,
    _scope: Option<CountedInScope>,
}

debug_fields!(RunPermit {});

/// A limit that is reached.
#[derive(Debug)]
pub(crate) struct Full {
    setting: &'static str,
    max: usize,
}

impl Full {
    /// The refusal of a call at this limit.
    pub(crate) fn error(&self, operation: &Operation) -> Error {
        let Self { setting, max } = self;
        operation
            .error(ErrorKind::TooManyRunning)
            .detail(format!("`{setting}` is {max}"))
            .worth_repeating(Some(SOON))
    }
}

/// The refusal of a call whose quota is used up.
pub(crate) fn over_quota(operation: &Operation, retry_after: Duration) -> Error {
    operation
        .error(ErrorKind::QuotaExceeded)
        .worth_repeating(Some(retry_after))
}

impl RunPermit {
    /// Takes a permit for one more body. `None`: nothing limits it.
    ///
    /// `is_inner`: a body of this engine makes the call. It gets a permit beyond the limit of its `engine`: a refusal
    /// would fail the calling body, and a call that is not counted would escape the limit where it outlives that body.
    pub(crate) fn take(
        engine: Option<&Arc<RunLimit>>,
        is_inner: impl FnOnce() -> bool,
        gate: Option<&Gate>,
    ) -> Result<Option<Box<Self>>, Full> {
        let layer = gate.and_then(|gate| gate.running.as_ref());
        let in_scope = gate.and_then(|gate| gate.in_scope.as_ref());
        if engine.is_none() && layer.is_none() && in_scope.is_none() {
            return Ok(None);
        }
        let enter = |limit: Option<&Arc<RunLimit>>, setting| match limit {
            Some(limit) => {
                let max = limit.max;
                limit.enter().map(Some).ok_or(Full { setting, max })
            }
            None => Ok(None),
        };
        let scope = match in_scope {
            Some((limit, scope)) => {
                let (setting, max) = ("IdempotencyLayer::max_running_per_scope", limit.max);
                Some(limit.enter(scope).ok_or(Full { setting, max })?)
            }
            None => None,
        };
        let engine = match engine {
            Some(limit) if is_inner() => Some(limit.exceed()),
            limit => enter(limit, "EngineBuilder::max_running")?,
        };
        Ok(Some(Box::new(Self {
            _engine: engine,
            _layer: enter(layer, "IdempotencyLayer::max_running")?,
            _scope: scope,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_without_a_running_body_has_no_entry() {
        let limit = ScopeLimit::new(1);
        let scopes: Vec<Arc<str>> = (0..1_000).map(|scope| scope.to_string().into()).collect();
        let places: Vec<_> = scopes.iter().map(|scope| limit.enter(scope)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(limit.enter(&scopes[0]).is_none());
        assert_eq!(limit.running.lock().len(), scopes.len());
        drop(places);
        assert_eq!(limit.running.lock().len(), 0);
        assert!(limit.enter(&scopes[0]).is_some());
        let none = ScopeLimit::new(0);
        assert!(none.enter(&"acme".into()).is_none() && none.running.lock().is_empty());
    }
}
