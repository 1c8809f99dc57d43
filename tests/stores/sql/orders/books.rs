//! The final contents of the database, and a check of them.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::orders::database::Database;
use idem_tests::orders::order::{ITEMS, STOCK, items};
use tokio::runtime::Builder;

use super::ledger::Ledger;

/// The tables of a shop.
#[derive(Debug)]
pub(crate) struct Books {
    /// The items of each order, sorted.
    orders: BTreeMap<u64, Vec<i64>>,
    /// The units left of each item.
    stock: BTreeMap<i64, i64>,
    records: u64,
}

impl Books {
    /// Reads the tables.
    pub(crate) fn read<D: Database>(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            let pool = D::pool(url, 1);
            let mut conn = pool.acquire().await.expect("the database is up");
            let mut rows = async |sql: &str| {
                let rows = D::rows(&mut conn, sql.to_owned()).await;
                rows.expect("the tables can be read")
            };
            let mut orders = BTreeMap::<_, Vec<_>>::new();
            for row in rows("SELECT number, item FROM orders ORDER BY item").await {
                let items = orders.entry(row[0].unsigned_abs()).or_default();
                items.push(row[1]);
            }
            let stock = rows("SELECT item, units FROM stock").await;
            let stock = stock.iter().map(|row| (row[0], row[1])).collect();
            let records = rows("SELECT count(*) FROM idem_records").await[0][0].unsigned_abs();
            Self {
                orders,
                stock,
                records,
            }
        })
    }

    /// Every violation of the rules.
    pub(crate) fn violations(&self, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        let expected = self.answers(ledger, &mut wrong);
        // A placed order has a row for each item; any other has none.
        for number in (expected.keys().chain(self.orders.keys())).collect::<BTreeSet<_>>() {
            let (found, expected) = (self.orders.get(number), expected.get(number));
            if found != expected {
                wrong.push(format!("order {number} has {found:?}, not {expected:?}"));
            }
        }
        // Each row took a unit.
        let mut stock: BTreeMap<_, _> =
            (0..ITEMS.cast_signed()).map(|item| (item, STOCK)).collect();
        for item in self.orders.values().flatten() {
            *stock.get_mut(item).expect("an item of the shop") -= 1;
        }
        if stock != self.stock {
            wrong.push(format!("{:?} are left, not {stock:?}", self.stock));
        }
        wrong
    }

    /// Each order has one answer, one record and a justified refusal. Returns the items of placed orders.
    fn answers(&self, ledger: &Ledger, wrong: &mut Vec<String>) -> BTreeMap<u64, Vec<i64>> {
        let mut placed = BTreeMap::new();
        let count = ledger.orders();
        for number in 0..count {
            let answers = ledger.last().get(&number);
            let answers: Vec<_> = answers.into_iter().flatten().collect();
            let [answer] = answers[..] else {
                wrong.push(format!("order {number} has the answers {answers:?}"));
                continue;
            };
            let mut items = items(number);
            items.sort_unstable();
            let words: Vec<_> = answer.split(' ').collect();
            match words[..] {
                ["placed", _] => drop(placed.insert(number, items)),
                ["refused", _, item] => {
                    let item = item.parse().expect("an item");
                    let left = self.stock[&item];
                    if left > 0 || !items.contains(&item) {
                        wrong.push(format!("order {number} is refused, and {left} are left"));
                    }
                }
                _ => panic!("not an answer: {answer}"),
            }
        }
        if self.records != count {
            wrong.push(format!("{} records of {count} orders", self.records));
        }
        placed
    }
}
