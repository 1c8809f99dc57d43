//! What a record takes in the server's memory, beside a bare string.

use tokio::runtime::Runtime;

use super::filler;
use super::line::Line;
use super::load::driver;
use super::load::order::{Order, merchant};
use super::load::shop::Gate;
use super::options::Growth;
use super::payments::{Payments, name};
use super::server::Measured;

const VALUE_BYTES: usize = 200;
/// What others name a record by: 128 bits in base64.
const BARE_NAME: usize = 22;

pub(crate) fn run(growth: &Growth, server: &mut Measured) {
    let keys = growth.pick(1_000_000, 50_000);
    let runtime = driver::current_thread();
    let payments = Payments::new(server.engine(&runtime), VALUE_BYTES);
    let merchant = merchant();
    let order = Order::of(merchant);
    let running = claim(server, &runtime, &payments, &order);
    let done = server.get(&name(merchant, 0)).unwrap();
    let named = |number| name(merchant, number);
    let bare = vec![b'.'; VALUE_BYTES];
    let bare_name = |number: u64| format!("raw:{number:0width$}", width = BARE_NAME - 4);

    let cases = [
        (
            "bare",
            BARE_NAME,
            &bare,
            bytes(server, keys, &bare, bare_name),
        ),
        (
            "finished",
            named(0).len(),
            &done,
            bytes(server, keys, &done, named),
        ),
        (
            "running",
            named(0).len(),
            &running,
            bytes(server, keys, &running, named),
        ),
    ];
    let [(.., of_bare), ..] = cases;
    for (what, name_bytes, value, bytes) in cases {
        Line::new(growth, "memory")
            .word("case", what)
            .count("keys", keys)
            .count("name_bytes", name_bytes as u64)
            .count("value_bytes", value.len() as u64)
            .figure("bytes_per_key", Some(bytes), 1)
            .figure("ratio_to_bare", Some(bytes / of_bare), 3)
            .print();
    }
}

/// The record of a call that runs. When this returns it has finished.
fn claim(server: &mut Measured, runtime: &Runtime, payments: &Payments, order: &Order) -> Vec<u8> {
    let gate = Gate::default();
    runtime.block_on(async {
        let look = async {
            gate.entered.notified().await;
            let record = server.get(&name(order.merchant, order.number));
            gate.open.notify_one();
            record
        };
        let (paid, record) = tokio::join!(payments.pay(order, Some(&gate)), look);
        paid.unwrap();
        record.expect("the name of a record is known")
    })
}

/// Of memory, for each of so many keys.
fn bytes(server: &mut Measured, keys: u64, value: &[u8], name: impl Fn(u64) -> String) -> f64 {
    server.flush();
    let before = server.used_memory();
    filler::fill(server, 0..keys, value, name);
    (server.used_memory() - before) as f64 / keys as f64
}
