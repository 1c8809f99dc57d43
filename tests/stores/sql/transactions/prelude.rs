//! What most files of these tests use.

pub(crate) use std::sync::Arc;
pub(crate) use std::task::Poll;
pub(crate) use std::time::Duration;

pub(crate) use idem_runtime::{Engine, ErrorKind, OnRunning, admin::EntryState};
pub(crate) use sqlx::Connection;

pub(crate) use crate::database::*;
pub(crate) use crate::fixture::*;
