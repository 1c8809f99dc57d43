//! Which order stands behind a number, and what the shop has at first.
//!
//! Everything follows from the number, so that every process that takes an order takes the same one.

use crate::seeded::Seeded;

/// So many orders are possible; more than any test takes.
pub const ORDERS: u64 = 8_000;
/// Orders whose numbers are near each other want the same few items.
const GROUP: u64 = 80;
const ITEMS_OF_A_GROUP: u64 = 4;
/// Less than the 20 orders of each item want.
const STOCK: i64 = 14;
/// Neighbours that may want the same coupon.
const SHARE_A_COUPON: u64 = 4;
const CUSTOMERS: u64 = 7;

/// What has a balance; the name is that of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    Stock,
    /// Whether a coupon can still be used.
    Coupons,
    Points,
}

impl Account {
    pub const ALL: [Self; 3] = [Self::Stock, Self::Coupons, Self::Points];

    pub fn table(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Coupons => "coupons",
            Self::Points => "points",
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Self::Stock => 1,
            Self::Coupons => 2,
            Self::Points => 3,
        }
    }

    /// How many balances there are, and what each begins with.
    pub fn beginning(self) -> (u64, i64) {
        match self {
            Self::Stock => (ORDERS / GROUP * ITEMS_OF_A_GROUP, STOCK),
            Self::Coupons => (ORDERS / SHARE_A_COUPON, 1),
            Self::Points => (CUSTOMERS, 0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub account: Account,
    pub id: i64,
    /// By how much.
    pub by: i64,
}

/// What a customer wants.
#[derive(Clone, Debug)]
pub struct Order {
    pub number: u64,
    /// What it does to balances, in the order in which it is done.
    pub changes: Vec<Change>,
}

impl Order {
    pub fn of(number: u64) -> Self {
        let mut seeded = Seeded::new(number);
        let item = number / GROUP * ITEMS_OF_A_GROUP + number % ITEMS_OF_A_GROUP;
        let mut changes = vec![change(Account::Stock, item, -1)];
        if seeded.percent(40) {
            changes.push(change(Account::Coupons, number / SHARE_A_COUPON, -1));
        }
        let customer = seeded.below(CUSTOMERS);
        let points = 1 + seeded.below(9);
        let points = i64::try_from(points).expect("a few points");
        changes.push(change(Account::Points, customer, points));
        // Two that lock the same rows the other way round are a deadlock now and then.
        if seeded.percent(10) {
            changes.reverse();
        }
        Self { number, changes }
    }
}

fn change(account: Account, id: u64, by: i64) -> Change {
    let id = i64::try_from(id).expect("a small number");
    Change { account, id, by }
}
