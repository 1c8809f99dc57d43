//! Runs a call: from its arguments, around a body, to its answer.
//!
//! - `description`: identity and settings of a call, and the entry into the engine; `builder`: the same for users.
//! - `run`: the future of a call, for one type of body and output; `drive`: its state machine, for all types.
//! - `replay`: a stored answer becomes the output; `replay_count`: counts replayed calls for the HTTP layer.
//! - `overtaken`: the result of a call whose own answer does not count.
//! - `step`: a part of a body whose result outlives a failed attempt; `step_in_tx`: the same in a transaction.
//! - `within`: a call in the caller's transaction; `in_tx`: the same for users; `borrowed_tx`: the transaction that the
//!   body gets. `without_sql` stands for these three in builds without a database.
//!
//! In a transaction, `begin_in_tx` returns an `InTx`: the answer, or a `TxRun` (a granted call). Its `TxScope` runs the
//! body, and returns a `TxEnd` (the output or the panic), with which `TxRun::finish` stores or undoes.

#[cfg(feature = "_sql")]
mod borrowed_tx;
mod builder;
mod description;
mod drive;
#[cfg(feature = "_sql")]
mod in_tx;
mod overtaken;
mod replay;
#[cfg(feature = "http")]
mod replay_count;
mod run;
mod step;
#[cfg(feature = "_sql")]
mod step_in_tx;
#[cfg(feature = "_sql")]
mod within;
#[cfg(not(feature = "_sql"))]
mod without_sql;

#[cfg(feature = "_sql")]
pub use self::borrowed_tx::{BorrowedTx, borrow_tx};
pub use self::builder::CallBuilder;
pub use self::description::{Call, arg, entry};
#[cfg(feature = "_sql")]
pub use self::in_tx::CallInTx;
#[cfg(feature = "http")]
pub(crate) use self::replay_count::ReplayCount;
pub use self::run::{Run, run, run_in_task};
pub use self::step::{Hook, NoHook, Step, StepCall, StepHook, StepName, step};
#[cfg(feature = "_sql")]
pub use self::step_in_tx::step_in_tx;
#[cfg(feature = "_sql")]
pub use self::within::{InTx, TxEnd, TxRun, TxScope, begin_in_tx};
#[cfg(not(feature = "_sql"))]
pub use self::without_sql::{BorrowedTx, InTx, TxEnd, TxRun, TxScope, begin_in_tx, borrow_tx};

#[cfg(test)]
mod tests;
