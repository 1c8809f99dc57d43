//! Stripe, API v2: the section on idempotency of its overview.

use std::time::Duration;

use http::Method;

use super::super::change::Change::{Caller, Number};
use super::super::check::Check::{
    AfterRunning, Conflicts, Expires, Ignores, Independent, Keeps, OneEffect, Optional, Protects,
    Released, Repeats, Running,
};
use super::super::check::Kind::{Failing, Usual};
use super::super::refusal::Member::{Is, Text};
use super::super::refusal::{Refusal, refused};
use super::super::row::Level::States;
use super::super::row::Row;

const PAGE: &str = "api-v2-overview";

const REUSED: Refusal = refused(&[400, 409]).members(&[
    ("/error/type", Is("idempotency_error")),
    ("/error/message", Text),
]);

pub(in super::super) const ROWS: &[Row] = &[
    Row::new(
        PAGE,
        States,
        "optional",
        "A key is an addition to a request.",
        Optional,
    ),
    Row::new(
        PAGE,
        States,
        "post",
        "A POST takes a key.",
        Protects(Method::POST),
    ),
    Row::new(
        PAGE,
        States,
        "delete",
        "A DELETE takes a key.",
        Protects(Method::DELETE),
    ),
    Row::new(
        PAGE,
        States,
        "get",
        "A key has no effect on GET.",
        Ignores(Method::GET),
    ),
    Row::new(
        PAGE,
        States,
        "success",
        "A repeat of a success gets its answer.",
        Repeats(Usual),
    ),
    Row::new(
        PAGE,
        States,
        "one_effect",
        "It has no side effect.",
        OneEffect,
    ),
    Row::new(
        PAGE,
        States,
        "failure",
        "A repeat of a failed request is executed, and gets the new answer.",
        Released(Failing),
    ),
    Row::new(
        PAGE,
        States,
        "compared",
        "The key with other parameters is an error.",
        Conflicts(Number, REUSED),
    ),
    Row::new(
        PAGE,
        States,
        "running",
        "Two requests at once are executed once.",
        Running(REUSED),
    ),
    Row::new(
        PAGE,
        States,
        "after_running",
        "Both get the answer of the one that was executed.",
        AfterRunning,
    ),
    Row::new(
        PAGE,
        States,
        "kept",
        "Keys are kept for 30 days.",
        Keeps(Duration::from_secs(30 * 86_400)),
    ),
    Row::new(
        PAGE,
        States,
        "expired",
        "A request under an expired key is a new one.",
        Expires,
    ),
    Row::new(
        PAGE,
        States,
        "account",
        "Accounts and sandboxes do not share keys.",
        Independent(Caller),
    ),
];
