//! What goes wrong around a SQL database, one fault a test: the error is clear, the body does not run
//! twice, and no answer is lost.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod connections;
mod files;
mod home;
mod outages;
mod read_only;
mod setup;
mod till;
