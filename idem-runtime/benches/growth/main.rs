//! How the cost of a call grows with what is stored, with the size of answers, with those who wait and
//! with processes: `cargo bench -p idem-runtime --bench growth -- --help`.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are rounded"
)]

mod child;
mod filler;
mod keys;
mod line;
#[path = "../load/mod.rs"]
mod load;
mod memory;
mod options;
mod payments;
mod processes;
mod server;
mod sizes;
mod waiters;

use self::options::{Growth, Mode};
use self::server::Measured;

fn main() {
    let mut growth = match options::parse() {
        Mode::Child(task) => return child::run(&task),
        Mode::Parent(growth) => growth,
    };
    let mut server = Measured::start(&growth);
    server.limit(&mut growth);
    eprintln!("{}: {}", server.name(), growth.load);
    let parts: [(&str, Part); 5] = [
        ("keys", keys::run),
        ("memory", memory::run),
        ("sizes", sizes::run),
        ("waiters", waiters::run),
        ("processes", processes::run),
    ];
    for (name, part) in parts {
        if growth.wants(name) {
            server.flush();
            part(&growth, &mut server);
        }
    }
}

type Part = fn(&Growth, &mut Measured);
