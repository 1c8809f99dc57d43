//! What most files of these tests use.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use idem_harness::RedisServer;
pub(crate) use idem_runtime::store::Store;
pub(crate) use idem_runtime::store::layered::{LayeredStoreBuilder, LazyStore};
pub(crate) use idem_runtime::store::memory::MemoryStore;
pub(crate) use idem_runtime::testing::Faulty;
pub(crate) use idem_tests::payment::{PayError, Receipt};

pub(crate) use crate::fixture::{Fixture, asked, memory, patient};
