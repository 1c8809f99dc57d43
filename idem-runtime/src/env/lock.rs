//! A mutex that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex that stays usable after a panic under its lock.
///
/// No code of this crate panics between two parts of a change under a lock: after a panic, which can only come from
/// the allocator, the value is still whole.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// A lock that is open.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks it, as soon as it is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, unless it is locked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(guard) => Some(guard),
        }
    }
}
