//! The services on real ports: their responses and ledger.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod frameworks;
mod mcp;
mod printed;

use std::thread;

use idem_services::Service;
use idem_services::bank::Order;

/// Runs a story on each web framework.
fn on_each_framework(story: impl Fn(Service) + Sync) {
    let story = &story;
    thread::scope(|scope| {
        for service in Service::FRAMEWORKS {
            // A panic names its thread.
            let named = thread::Builder::new().name(format!("{service:?}"));
            named.spawn_scoped(scope, move || story(service)).unwrap();
        }
    });
}

fn order(to: &str, cents: u64) -> Order {
    let to = to.to_owned();
    Order { to, cents }
}
