//! The methods of a session, for each connection of diesel-async.

/// A macro, because no type has all connections of diesel-async.
macro_rules! session {
    ($Connection:ty) => {
        impl SqlSession for $Connection {
            fn dialect(&self) -> &'static Dialect {
                Self::DIALECT
            }

            sends! {|conn, message, receive|
                send: message::send(conn, message, receive),
                script: message::script(conn, message, receive),
            }

            fn depth(&mut self) -> usize {
                transaction::depth(self)
            }

            fn begin(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(transaction::begin(self))
            }

            fn commit(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(transaction::commit(self))
            }

            fn rollback(&mut self) -> SqlFuture<'_, ()> {
                Box::pin(transaction::rollback(self))
            }

            fn start_rollback(&mut self) {
                self.undo();
            }

            fn in_step(&mut self, _: usize) -> SqlFuture<'_, bool> {
                Box::pin(transaction::in_step(self))
            }
        }

        #[diagnostic::do_not_recommend]
        impl SqlTransaction for $Connection {
            fn session(&mut self) -> &mut dyn SqlSession {
                self
            }

            fn give_up(&mut self) {
                self.undo();
            }
        }
    };
}

pub(super) use session;
