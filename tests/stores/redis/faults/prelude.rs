//! What most files of these tests use.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use idem_harness::{Edition, RedisServer, Reply, TcpProxy};
pub(crate) use idem_runtime::key::Operation;
pub(crate) use idem_runtime::store::author::{ClaimRequest, Owner};
pub(crate) use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
pub(crate) use idem_runtime::store::{RecordKey, Store, StoreErrorKind};
pub(crate) use idem_tests::shop::{
    Failure, PASSWORD, Shop, asks, assert_unavailable, connect, happened, patient, persistent,
    refused, until,
};

pub(crate) use crate::access::{DOCUMENTED, with_user};
