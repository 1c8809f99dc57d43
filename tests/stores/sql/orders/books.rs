//! The final contents of the database, and a check of them.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::orders::database::Database;
use idem_tests::orders::order::{Account, Order};
use tokio::runtime::Builder;

use super::ledger::Ledger;

/// An account's number, and an id.
type Place = (i64, i64);

/// The rows of an order, and its lines of the journal: each with the change of a balance.
type Rows = (usize, Vec<(Place, i64)>);

/// The tables of a shop.
#[derive(Debug)]
pub(crate) struct Books {
    orders: BTreeMap<u64, Rows>,
    /// Each line with the change and the balance, oldest first.
    journal: Vec<(Place, i64, i64)>,
    balances: BTreeMap<Place, i64>,
    records: u64,
}

impl Books {
    /// Reads the tables.
    pub(crate) fn read<D: Database>(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            let pool = D::pool(url, 1);
            let mut conn = pool.acquire().await.expect("the database is up");
            let mut rows = async |sql: String| {
                let rows = D::rows(&mut conn, sql).await;
                rows.expect("the tables can be read")
            };
            let mut orders = BTreeMap::<u64, Rows>::new();
            for row in rows("SELECT number FROM orders".to_owned()).await {
                orders.entry(row[0].unsigned_abs()).or_default().0 += 1;
            }
            let (columns, mut journal) = ("account, place, change_by, balance, number", Vec::new());
            for row in rows(format!("SELECT {columns} FROM journal ORDER BY id")).await {
                let (place, by) = ((row[0], row[1]), row[2]);
                let order = orders.entry(row[4].unsigned_abs()).or_default();
                order.1.push((place, by));
                journal.push((place, by, row[3]));
            }
            let records = rows("SELECT count(*) FROM idem_records".to_owned()).await;
            let mut balances = BTreeMap::new();
            for account in Account::ALL {
                for row in rows(format!("SELECT id, units FROM {}", account.table())).await {
                    balances.insert((account.number(), row[0]), row[1]);
                }
            }
            Self {
                orders,
                journal,
                balances,
                records: records[0][0].unsigned_abs(),
            }
        })
    }

    /// Every violation of the rules.
    pub(crate) fn violations(&self, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        let expected = self.answers(ledger, &mut wrong);
        // A placed order has one row and its lines of the journal; any other has neither.
        for number in (expected.keys().chain(self.orders.keys())).collect::<BTreeSet<_>>() {
            let (found, expected) = (self.orders.get(number), expected.get(number));
            if found != expected {
                wrong.push(format!("order {number} has {found:?}, not {expected:?}"));
            }
        }
        self.journal(&mut wrong);
        wrong
    }

    /// Every order has one answer and one record, and a refusal is justified. Returns the rows of placed orders.
    fn answers(&self, ledger: &Ledger, wrong: &mut Vec<String>) -> BTreeMap<u64, Rows> {
        let mut placed = BTreeMap::new();
        let count = ledger.orders();
        for number in 0..count {
            let answers = ledger.last().get(&number);
            let answers: Vec<_> = answers.into_iter().flatten().collect();
            let [answer] = answers[..] else {
                wrong.push(format!("order {number} has the answers {answers:?}"));
                continue;
            };
            let changes = Order::of(number).changes;
            let changes = changes.iter();
            let mut changes = changes.map(|one| ((one.account.number(), one.id), one.by));
            let words: Vec<_> = answer.split(' ').collect();
            match words[..] {
                ["placed", _] => drop(placed.insert(number, (1, changes.collect()))),
                ["refused", _, account] => {
                    let account: i64 = account.parse().expect("an account");
                    let change = changes.find(|((of, _), _)| *of == account);
                    let (place, by) = change.expect("it was refused for what it wanted");
                    let left = self.balances[&place];
                    if left + by >= 0 {
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

    /// The lines of the journal lead from each initial balance to the final one.
    fn journal(&self, wrong: &mut Vec<String>) {
        let mut balances = BTreeMap::new();
        for account in Account::ALL {
            let (count, units) = account.beginning();
            let ids = (0..count).map(u64::cast_signed);
            balances.extend(ids.map(|id| ((account.number(), id), units)));
        }
        for (place, by, told) in &self.journal {
            let balance = balances.get_mut(place).expect("a balance of the shop");
            *balance += by;
            if balance != told {
                wrong.push(format!(
                    "the journal of {place:?} comes to {balance}, not {told}"
                ));
            }
        }
        if balances != self.balances {
            wrong.push(format!("{:?}, not {balances:?}", self.balances));
        }
    }
}
