//! The client `mysql_async`: its connections are sessions, and its transactions those of callers.

mod error;
mod message;
mod own;
mod row;

use mysql_async::Transaction;

use self::message::{MySqlAsyncMessage, session};
use super::dialect::Dialect;
use super::session::{SqlSession, sends};
use super::transaction::SqlTransaction;

session!(Transaction<'_>, |tx| tx);

#[diagnostic::do_not_recommend]
impl SqlTransaction for Transaction<'_> {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }

    fn give_up(&mut self) {
        drop(MySqlAsyncMessage::on(self));
    }
}
