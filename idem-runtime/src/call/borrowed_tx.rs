//! A transaction passed from the caller to the body.

use crate::store::sql::{SqlConnection, SqlTransaction};

/// A transaction of any type, with access to its connection.
pub struct BorrowedTx<'t, T: ?Sized> {
    tx: &'t mut T,
    connection: fn(&mut T) -> SqlConnection<'_>,
    give_up: fn(&mut T),
    most: fn(&T) -> usize,
}

/// Wraps a transaction. An expansion requires the trait only here, so that an unsuitable type produces a single
/// compiler error.
pub fn borrow_tx<T: SqlTransaction + ?Sized>(tx: &mut T) -> BorrowedTx<'_, T> {
    BorrowedTx {
        tx,
        connection: T::connection,
        give_up: T::give_up,
        most: T::most,
    }
}

impl<T: ?Sized> BorrowedTx<'_, T> {
    /// The transaction, for the body.
    pub fn tx(&mut self) -> &mut T {
        self.tx
    }
}

impl<T: ?Sized + Send> SqlTransaction for BorrowedTx<'_, T> {
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

debug_fields!([T: ?Sized] BorrowedTx<'_, T> {});
