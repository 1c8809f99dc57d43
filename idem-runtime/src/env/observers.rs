//! Several observers of one engine.

use std::sync::Arc;

use super::observer::{Event, Observer, contained};

macro_rules! each_of {
    ($(#[$doc:meta])* $($observer:ident $place:tt),+) => {
        $(#[$doc])*
        impl<$($observer: Observer),+> Observer for ($($observer),+) {
            fn observe(&self, event: &Event<'_>) {
                $(contained(&self.$place, event);)+
            }

            fn wants_calls(&self) -> bool {
                [$(self.$place.wants_calls()),+].contains(&true)
            }

            fn wants_spans(&self) -> bool {
                [$(self.$place.wants_spans()),+].contains(&true)
            }
        }
    };
}

each_of! {
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
    A 0, B 1
}

each_of! {
    /// All three, in this order.
    A 0, B 1, C 2
}

/// All observers of the list, in its order; with an empty one, none.
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
