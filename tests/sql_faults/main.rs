//! What goes wrong around a SQL database, one fault a test: the error is clear, the body does not run
//! twice, and no answer is lost.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod busy;
mod company;
mod connections;
mod counts;
mod crowd;
mod files;
mod forever;
mod groups;
mod home;
mod load;
mod notices;
mod outages;
mod overload;
mod purging;
mod read_only;
mod setup;
mod sizes;
mod till;
