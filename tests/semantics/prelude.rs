//! What most files of these tests use.

pub(crate) use std::pin::pin;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use idem_runtime::clock::Clock;
pub(crate) use idem_runtime::store::Store;
pub(crate) use idem_runtime::store::author::ReadReply;
pub(crate) use idem_runtime::store::memory::MemoryStore;
pub(crate) use idem_runtime::{
    CallBuilder, Class, Context, Engine, Error, ErrorKind, OnCancel, OnDuplicate, OnLeaseLost,
    OnOtherType, OnOutage, OnRunning, Reconciled, admin::EntryState, claim::Acquired, idempotent,
};
pub(crate) use idem_tests::faulty::{Fault, StoreOperation};
pub(crate) use idem_tests::fixture::{Classified, Fixture};
pub(crate) use idem_tests::on_every_store;
pub(crate) use idem_tests::payment::{PayError, Receipt, Runs};
pub(crate) use tokio::sync::Semaphore;
pub(crate) use tokio::task::JoinHandle;

pub(crate) use crate::reconciling::{Asking, Counts, LANDED, Says, reconciled};
pub(crate) use crate::support::*;
