//! Switching idem off: for tests of business code, and for nothing else.

use std::sync::OnceLock;

use super::Engine;
use crate::store::memory::MemoryStore;

/// Switches every engine of a process off.
const VARIABLE: &str = "IDEM_DISABLED";
/// What the variable must say in a release build: nobody writes this by accident.
const WORD: &str = "unprotected";

/// Whether an engine does what it is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    On,
    /// Every call runs its body. Why, for a person.
    Off(String),
    /// It was to be switched off where that takes the word: every call is refused.
    Refused,
}

/// What the environment says, with a warning where it does not have the effect that was meant. It
/// is read once.
pub(super) fn by_environment() -> (Protection, Option<&'static str>) {
    static READ: OnceLock<(Protection, Option<&'static str>)> = OnceLock::new();
    let read = || match std::env::var_os(VARIABLE) {
        Some(value) => decide(value.to_str().unwrap_or("?"), cfg!(debug_assertions)),
        None => (Protection::On, None),
    };
    READ.get_or_init(read).clone()
}

/// What a value of the variable means.
fn decide(value: &str, debug_build: bool) -> (Protection, Option<&'static str>) {
    match (value, debug_build) {
        (WORD, _) => (Protection::Off(format!("{VARIABLE}={WORD}")), None),
        ("1" | "true", true) => (
            Protection::Off(format!("{VARIABLE}={value} in a debug build")),
            None,
        ),
        ("" | "0" | "false", _) => (Protection::On, None),
        ("1" | "true", false) => (
            Protection::On,
            Some(
                "IDEM_DISABLED=1 has no effect in a release build; it takes the word `unprotected`",
            ),
        ),
        _ => (
            Protection::On,
            Some(
                "IDEM_DISABLED has a value without a meaning, and no effect; write 1 or remove it",
            ),
        ),
    }
}

impl Engine {
    /// An engine that protects nothing: every call runs its body, nothing is stored and nothing is
    /// replayed. For tests of business code that have no use for keys.
    ///
    /// `IDEM_DISABLED=1` in the environment does the same to every engine of a process, and to calls
    /// that find none. Either is told to the observer at the start and at every call.
    ///
    /// In a release build both take `IDEM_DISABLED=unprotected`: without it, this engine refuses every
    /// call with [`ErrorKind::NoEngine`](crate::ErrorKind::NoEngine).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error};
    ///
    /// let engine = Engine::disabled();
    /// let run = |n| engine.operation("pay").key(&7).run(move |_| async move { Ok::<_, Error>(n) });
    /// # if cfg!(debug_assertions) {
    /// assert_eq!((run(1).await?, run(2).await?), (1, 2));
    /// # }
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Never: the defaults are within their bounds.
    #[must_use]
    pub fn disabled() -> Self {
        let protection = match by_environment().0 {
            Protection::On if cfg!(debug_assertions) => {
                Protection::Off("`Engine::disabled` in a debug build".to_owned())
            }
            Protection::On => Protection::Refused,
            off => off,
        };
        Self::builder(MemoryStore::new())
            .protection(protection)
            .build()
            .expect("the defaults are within their bounds")
    }

    /// The engine of a call that finds none, where the environment has switched idem off.
    pub(super) fn in_disabled_environment() -> Option<Self> {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        match by_environment().0 {
            Protection::Off(_) => Some(ENGINE.get_or_init(Self::disabled).clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_build_needs_the_word() {
        let off = |value, debug_build| matches!(decide(value, debug_build).0, Protection::Off(_));
        for value in ["", "0", "false", "no", "?"] {
            assert!(!off(value, true) && !off(value, false), "{value}");
        }
        for value in ["1", "true"] {
            assert!(off(value, true) && !off(value, false), "{value}");
        }
        assert!(off("unprotected", true) && off("unprotected", false));
    }

    #[test]
    fn a_value_without_its_effect_is_told() {
        assert!(decide("1", false).1.is_some());
        assert!(decide("yes", true).1.is_some());
        assert!(decide("0", false).1.is_none() && decide("1", true).1.is_none());
    }
}
