//! The services on real ports: what a client gets, and what the ledger has.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod books;
mod frameworks;
mod mcp;
mod printed;

use idem_services::bank::Order;

fn order(to: &str, cents: u64) -> Order {
    let to = to.to_owned();
    Order { to, cents }
}
