//! The items of an order. They follow from its number, so that every process that takes an order takes the same one.

use crate::seeded::Seeded;

/// The number of possible orders; more than any test takes.
pub const ORDERS: u64 = 8_000;
/// Orders whose numbers are near each other want the same few items.
pub const GROUP: u64 = 80;
const ITEMS_OF_A_GROUP: u64 = 4;
pub const ITEMS: u64 = ORDERS / GROUP * ITEMS_OF_A_GROUP;
/// The units of each item; less than its group wants.
pub const STOCK: i64 = 20;

/// The items of an order, one unit each, as they are taken.
pub fn items(number: u64) -> Vec<i64> {
    let mut seeded = Seeded::new(number);
    let first = number / GROUP * ITEMS_OF_A_GROUP;
    let always = number % ITEMS_OF_A_GROUP;
    let items = (0..ITEMS_OF_A_GROUP).filter(|item| *item == always || seeded.percent(40));
    let mut items: Vec<_> = items.map(|item| (first + item).cast_signed()).collect();
    // Two that lock the same rows the other way round are a deadlock now and then.
    if seeded.percent(10) {
        items.reverse();
    }
    items
}
