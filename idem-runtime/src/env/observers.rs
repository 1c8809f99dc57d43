//! Several observers of one engine.

use std::sync::Arc;

use super::observer::{Event, Observer, contained};

/// Both observers, in this order. A panic of one does not keep an event from the other.
///
/// ```
/// use idem_runtime::{Engine, Observer, observe::{Event, StderrObserver}, store::memory::MemoryStore};
///
/// #[derive(Debug)]
/// struct Mine;
///
/// impl Observer for Mine {
///     fn observe(&self, event: &Event<'_>) {
///         let _ = event;
///     }
/// }
///
/// let engine = Engine::builder(MemoryStore::new()).observer((StderrObserver, Mine)).build()?;
/// # Ok::<_, idem_runtime::Error>(())
/// ```
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn observe(&self, event: &Event<'_>) {
        contained(&self.0, event);
        contained(&self.1, event);
    }

    fn wants_calls(&self) -> bool {
        self.0.wants_calls() || self.1.wants_calls()
    }

    fn wants_spans(&self) -> bool {
        self.0.wants_spans() || self.1.wants_spans()
    }
}

/// All three, as two.
impl<A: Observer, B: Observer, C: Observer> Observer for (A, B, C) {
    fn observe(&self, event: &Event<'_>) {
        contained(&self.0, event);
        contained(&self.1, event);
        contained(&self.2, event);
    }

    fn wants_calls(&self) -> bool {
        self.0.wants_calls() || self.1.wants_calls() || self.2.wants_calls()
    }

    fn wants_spans(&self) -> bool {
        self.0.wants_spans() || self.1.wants_spans() || self.2.wants_spans()
    }
}

/// All of a list that is made at run time, in its order. An empty one observes nothing.
impl Observer for Vec<Arc<dyn Observer>> {
    fn observe(&self, event: &Event<'_>) {
        for observer in self {
            contained(observer, event);
        }
    }

    fn wants_calls(&self) -> bool {
        self.iter().any(Observer::wants_calls)
    }

    fn wants_spans(&self) -> bool {
        self.iter().any(Observer::wants_spans)
    }
}
