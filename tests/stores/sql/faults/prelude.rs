//! What most files of these tests use.

pub(crate) use std::future::poll_fn;
pub(crate) use std::sync::Arc;
pub(crate) use std::task::Poll;
pub(crate) use std::time::Duration;

pub(crate) use idem_harness::TcpProxy;
pub(crate) use idem_runtime::store::StoreErrorKind::{Refused, Unavailable};
pub(crate) use idem_runtime::store::author::{ClaimReply, Owner, ReadReply};
pub(crate) use idem_runtime::store::sql::{
    MySql, Postgres, PostgresStore, Purge, SqlStore, SqlStoreBuilder, Sqlite, SqliteStore,
};
pub(crate) use idem_runtime::store::{RecordKey, Store, StoreError};
pub(crate) use idem_runtime::{Engine, Error, ErrorKind};
pub(crate) use idem_tests::shop::{Failure, PATIENCE, asks, patiently, until};
pub(crate) use sqlx::Connection;
pub(crate) use tokio::task::JoinSet;

pub(crate) use super::fixture::*;
pub(crate) use crate::database::{Database, Served, Server, TestDatabase};
