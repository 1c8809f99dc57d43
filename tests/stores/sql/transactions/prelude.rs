//! What most files of these tests use.

pub(crate) use std::sync::Arc;
pub(crate) use std::task::Poll;
pub(crate) use std::time::Duration;

pub(crate) use idem_runtime::store::OutcomeKind;
pub(crate) use idem_runtime::store::sql::{SqlTransaction, Sqlite};
pub(crate) use idem_runtime::{CallBuilder, Engine, ErrorKind, OnRunning, admin::EntryState};
pub(crate) use idem_tests::fixture::Classified;
pub(crate) use idem_tests::shop::{PATIENCE, patiently};
pub(crate) use sqlx::Connection;

pub(crate) use super::clients::*;
pub(crate) use super::fixture::*;
pub(crate) use crate::database::{Database, Server, Sql};
