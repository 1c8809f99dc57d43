//! The final contents of the database, and a check of them.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::orders::database::Database;
use idem_tests::orders::order::{Account, Order};
use tokio::runtime::Builder;

use super::ledger::Ledger;

/// A line of the journal.
#[derive(Clone, Copy, Debug)]
struct Line {
    place: (i64, i64),
    by: i64,
    balance: i64,
    number: u64,
}

/// The tables of a shop.
#[derive(Debug)]
pub(crate) struct Books {
    /// The number of each order row.
    orders: Vec<u64>,
    /// Oldest first.
    journal: Vec<Line>,
    /// By an account's number and an id.
    balances: BTreeMap<(i64, i64), i64>,
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
            let orders = rows("SELECT number FROM orders".to_owned()).await;
            let columns = "account, place, change_by, balance, number";
            let journal = rows(format!("SELECT {columns} FROM journal ORDER BY id")).await;
            let records = rows("SELECT count(*) FROM idem_records".to_owned()).await;
            let mut balances = BTreeMap::new();
            for account in Account::ALL {
                for row in rows(format!("SELECT id, units FROM {}", account.table())).await {
                    balances.insert((account.number(), row[0]), row[1]);
                }
            }
            let line = |row: &Vec<i64>| Line {
                place: (row[0], row[1]),
                by: row[2],
                balance: row[3],
                number: row[4].unsigned_abs(),
            };
            Self {
                orders: orders.iter().map(|row| row[0].unsigned_abs()).collect(),
                journal: journal.iter().map(line).collect(),
                balances,
                records: records[0][0].unsigned_abs(),
            }
        })
    }

    /// Every violation of the rules.
    pub(crate) fn violations(&self, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        let placed = self.answers(ledger, &mut wrong);
        self.rows(ledger, &placed, &mut wrong);
        self.journal(&mut wrong);
        wrong
    }

    /// Every order has one answer and one record, and a refusal is justified. Returns the placed orders.
    fn answers(&self, ledger: &Ledger, wrong: &mut Vec<String>) -> BTreeSet<u64> {
        let mut placed = BTreeSet::new();
        let count = ledger.orders();
        for number in 0..count {
            let answers = ledger.last().get(&number);
            let answers: Vec<_> = answers.into_iter().flatten().collect();
            let [answer] = answers[..] else {
                wrong.push(format!("order {number} has the answers {answers:?}"));
                continue;
            };
            let words: Vec<_> = answer.split(' ').collect();
            match words[..] {
                ["placed", _] => drop(placed.insert(number)),
                ["refused", _, account] => {
                    let account: i64 = account.parse().expect("an account");
                    let order = Order::of(number);
                    let change = order
                        .changes
                        .iter()
                        .find(|one| one.account.number() == account);
                    let change = change.expect("it was refused for what it wanted");
                    let left = self.balances[&(account, change.id)];
                    if left + change.by >= 0 {
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

    /// A placed order has one row and its lines of the journal; any other has neither.
    fn rows(&self, ledger: &Ledger, placed: &BTreeSet<u64>, wrong: &mut Vec<String>) {
        let mut rows: BTreeMap<u64, usize> = BTreeMap::new();
        let mut lines: BTreeMap<u64, Vec<(i64, i64, i64)>> = BTreeMap::new();
        for &number in &self.orders {
            *rows.entry(number).or_default() += 1;
        }
        for &Line {
            place: (account, id),
            by,
            number,
            ..
        } in &self.journal
        {
            lines.entry(number).or_default().push((account, id, by));
        }
        let named: BTreeSet<_> = (0..ledger.orders()).collect();
        let found = rows.keys().chain(lines.keys()).copied().collect();
        for &number in named.union(&found) {
            let rows = rows.get(&number).copied().unwrap_or(0);
            let lines = lines.remove(&number).unwrap_or_default();
            let order = Order::of(number);
            let changes = order.changes.iter();
            let changes = changes.map(|one| (one.account.number(), one.id, one.by));
            let expected = if placed.contains(&number) {
                (1, changes.collect())
            } else {
                (0, Vec::new())
            };
            if (rows, &lines) != (expected.0, &expected.1) {
                wrong.push(format!(
                    "order {number} has {rows} rows and the lines {lines:?}, not {expected:?}"
                ));
            }
        }
    }

    /// The lines of the journal lead from each initial balance to the final one.
    fn journal(&self, wrong: &mut Vec<String>) {
        let mut balances = BTreeMap::new();
        for account in Account::ALL {
            let (count, units) = account.beginning();
            let ids = (0..count).map(u64::cast_signed);
            balances.extend(ids.map(|id| ((account.number(), id), units)));
        }
        for line in &self.journal {
            let balance = balances
                .get_mut(&line.place)
                .expect("a balance of the shop");
            *balance += line.by;
            if *balance != line.balance {
                wrong.push(format!("the journal comes to {balance} at {line:?}"));
            }
        }
        for (place, told) in &balances {
            let balance = self.balances[place];
            if balance != *told {
                wrong.push(format!(
                    "{place:?} is {balance}, and its journal comes to {told}"
                ));
            }
        }
    }
}
