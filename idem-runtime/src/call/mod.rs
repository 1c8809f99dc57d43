//! A call: from its arguments, by admission, claim, body and settlement, to its answer.
//!
//! In the order in which a call goes its way:
//!
//! 1. `description`: identity and settings of a call, and the entry into the engine; `builder`: the same for users.
//! 2. `run`: the future of a call, for one type of body and output, and its state machine, for all types.
//! 3. `admission`: whether the call may run, and its answer where one is at hand.
//! 4. `acquire`: one claim for all callers of a process, which it sends or follows; `remote_wait` polls for a body of
//!    another process.
//! 5. `claim`: a granted claim; `lease`, which `background_thread` renews; `context`: what its body sees; `reconcile`: the
//!    hook before the body; `steps`, `step_log`: its steps, and `step`: the same for users.
//! 6. `settlement`: completes or releases the claim, and finds the answer that counts where another attempt has the key;
//!    `streaming`: the same for an answer that is complete later.
//!
//! Beside that way: `answer` and `refusal`, a reply of the store as the answer or the error of a call; `core`, the state of
//! an engine, and `engine`, its handle; `outage`, `run_limit`, `call_watch`; for operators `inspect` and `entries`.
//!
//! In a transaction, `begin_in_tx` of `within` returns an `InTx`: the answer, or a `TxRun` (a granted call). Its `TxScope`
//! runs the body, and returns a `TxEnd` (the output or the panic), with which `TxRun::finish` stores or undoes. `in_tx` is
//! the same for users, and `step_in_tx` a step. `without_sql` stands for these in builds without a database.

pub(crate) mod acquire;
pub(crate) mod admission;
mod answer;
pub(crate) mod background_thread;
mod builder;
pub(crate) mod call_watch;
pub(crate) mod claim;
#[cfg(feature = "_sql")]
pub(crate) mod claimed_keys;
pub(crate) mod context;
pub(crate) mod core;
mod description;
pub(crate) mod engine;
pub(crate) mod entries;
#[cfg(feature = "_sql")]
mod in_tx;
pub(crate) mod inspect;
pub(crate) mod lease;
pub(crate) mod outage;
pub(crate) mod reconcile;
mod refusal;
pub(crate) mod remote_wait;
#[cfg(feature = "http")]
mod replay_count;
mod run;
pub(crate) mod run_limit;
pub(crate) mod settlement;
mod step;
#[cfg(feature = "_sql")]
mod step_in_tx;
pub(crate) mod step_log;
pub(crate) mod steps;
mod streaming;
#[cfg(feature = "_sql")]
mod within;
#[cfg(not(feature = "_sql"))]
mod without_sql;

pub use self::builder::CallBuilder;
pub use self::description::{Call, arg, entry};
pub use self::engine::{Engine, HasEngine, InstallError};
#[cfg(feature = "_sql")]
pub use self::in_tx::{BorrowedTx, CallInTx, borrow_tx};
#[cfg(feature = "http")]
pub(crate) use self::replay_count::ReplayCount;
#[cfg(feature = "http")]
pub(crate) use self::run::run_in_own_slot;
pub use self::run::{BodySlot, Run, run, run_in_task};
pub use self::step::{Hook, NoHook, Step, StepCall, StepHook, StepName, step};
#[cfg(feature = "_sql")]
pub use self::step_in_tx::step_in_tx;
#[cfg(feature = "_sql")]
pub use self::within::{InTx, TxEnd, TxRun, TxScope, begin_in_tx};
#[cfg(not(feature = "_sql"))]
pub use self::without_sql::{BorrowedTx, InTx, TxEnd, TxRun, TxScope, begin_in_tx, borrow_tx};
