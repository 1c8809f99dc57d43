//! Calls: from the arguments to the answer, around a body.

mod builder;
mod description;
mod drive;
#[cfg(feature = "_sql")]
mod in_tx;
#[cfg(feature = "_sql")]
mod lent;
mod overtaken;
mod replay;
#[cfg(feature = "http")]
mod replays;
mod run;
#[cfg(feature = "_sql")]
mod within;
#[cfg(not(feature = "_sql"))]
mod without_sql;

pub use self::builder::CallBuilder;
pub use self::description::{Call, arg, entry};
#[cfg(feature = "_sql")]
pub use self::in_tx::CallInTx;
#[cfg(feature = "_sql")]
pub use self::lent::{Lent, lend};
#[cfg(feature = "http")]
pub(crate) use self::replays::Replays;
pub use self::run::{Run, finish, run};
#[cfg(feature = "_sql")]
pub use self::within::{InTx, TxEnd, TxScope, TxTurn, begin_in_tx};
#[cfg(not(feature = "_sql"))]
pub use self::without_sql::{InTx, Lent, TxEnd, TxScope, TxTurn, begin_in_tx, lend};

#[cfg(test)]
mod tests;
