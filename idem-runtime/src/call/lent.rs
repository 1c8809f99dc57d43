//! A transaction passed from the caller to the body.

use std::fmt;

use crate::store::sql::{SqlConnection, SqlTransaction};

/// A transaction of any type, with access to its connection.
pub struct Lent<'t, T: ?Sized> {
    tx: &'t mut T,
    connection: fn(&mut T) -> SqlConnection<'_>,
    give_up: fn(&mut T),
    most: fn(&T) -> usize,
}

/// Wraps a transaction. An expansion requires the trait only here, so that an unsuitable type produces a single
/// compiler error.
pub fn lend<T: SqlTransaction + ?Sized>(tx: &mut T) -> Lent<'_, T> {
    Lent {
        tx,
        connection: T::connection,
        give_up: T::give_up,
        most: T::most,
    }
}

impl<T: ?Sized> Lent<'_, T> {
    /// The transaction, for the body.
    pub fn tx(&mut self) -> &mut T {
        self.tx
    }
}

impl<T: ?Sized + Send> SqlTransaction for Lent<'_, T> {
    fn connection(&mut self) -> SqlConnection<'_> {
        (self.connection)(self.tx)
    }

    fn give_up(&mut self) {
        (self.give_up)(self.tx);
    }

    fn most(&self) -> usize {
        (self.most)(self.tx)
    }
}

impl<T: ?Sized> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}
