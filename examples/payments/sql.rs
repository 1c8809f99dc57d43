//! The tables of the books, and the differences of the three databases.

use sqlx::AssertSqlSafe;

/// SQL dialect of one database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// Type of an auto-increment column.
    counter: &'static str,
    /// Text after a table's columns.
    table: &'static str,
    /// End of an `INSERT` that adds to an existing balance.
    add: &'static str,
    /// Whether parameters are `$1, $2` and not `?, ?`.
    numbered: bool,
}

pub(super) const SQLITE: Dialect = Dialect {
    counter: "INTEGER PRIMARY KEY",
    table: "",
    add: "ON CONFLICT (account, currency) DO UPDATE SET balance = balance + excluded.balance",
    numbered: false,
};

pub(super) const POSTGRES: Dialect = Dialect {
    counter: "BIGSERIAL PRIMARY KEY",
    table: "",
    add: "ON CONFLICT (account, currency) \
          DO UPDATE SET balance = payments_sums.balance + excluded.balance",
    numbered: true,
};

pub(super) const MYSQL: Dialect = Dialect {
    counter: "BIGINT AUTO_INCREMENT PRIMARY KEY",
    table: "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    add: "ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance)",
    numbered: false,
};

/// The tables: the run of the books, the journal, the balances, and the refusals.
const TABLES: [&str; 4] = [
    "payments_runs (prefix VARCHAR(100) NOT NULL, begun_s BIGINT NOT NULL)",
    "payments_rows (position {counter}, kind VARCHAR(10) NOT NULL, merchant VARCHAR(100) NOT NULL, \
     id VARCHAR(100) NOT NULL, number VARCHAR(100) NOT NULL, charge VARCHAR(100) NOT NULL, \
     card VARCHAR(100) NOT NULL, amount BIGINT NOT NULL, currency VARCHAR(10) NOT NULL)",
    "payments_sums (account VARCHAR(100) NOT NULL, currency VARCHAR(10) NOT NULL, \
     balance BIGINT NOT NULL, PRIMARY KEY (account, currency))",
    "payments_refusals (merchant VARCHAR(100) NOT NULL, payment VARCHAR(100) NOT NULL)",
];

pub(super) const ROW: &str = "INSERT INTO payments_rows (kind, merchant, id, number, charge, card, amount, currency) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
pub(super) const NUMBER: &str = "SELECT max(position) FROM payments_rows WHERE number = ?";
pub(super) const ADD: &str =
    "INSERT INTO payments_sums (account, currency, balance) VALUES (?, ?, ?) {add}";
pub(super) const REFUSE: &str = "INSERT INTO payments_refusals (merchant, payment) VALUES (?, ?)";
pub(super) const PAID: &str =
    "SELECT number FROM payments_rows WHERE kind = 'payment' AND merchant = ? AND id = ?";
pub(super) const REFUSED: &str =
    "SELECT count(*) FROM payments_refusals WHERE merchant = ? AND payment = ?";
pub(super) const JOURNAL: &str = "SELECT kind, merchant, id, number, charge, card, amount, currency \
     FROM payments_rows ORDER BY position";
pub(super) const BALANCES: &str = "SELECT account, currency, balance FROM payments_sums";
pub(super) const ROWS: &str = "SELECT count(*) FROM payments_rows";
pub(super) const RUN: &str = "SELECT prefix, begun_s FROM payments_runs";
pub(super) const BEGIN_RUN: &str = "INSERT INTO payments_runs (prefix, begun_s) VALUES (?, ?)";

impl Dialect {
    /// Statements that create missing tables.
    pub(super) fn create(self) -> impl Iterator<Item = AssertSqlSafe<String>> {
        let table = TABLES
            .into_iter()
            .map(|table| table.replace("{counter}", self.counter));
        table.map(move |table| {
            AssertSqlSafe(format!("CREATE TABLE IF NOT EXISTS {table} {}", self.table))
        })
    }

    /// Statements that drop the tables.
    pub(super) fn drop() -> impl Iterator<Item = AssertSqlSafe<String>> {
        let names = TABLES
            .into_iter()
            .map(|table| table.split(' ').next().unwrap_or(table));
        names.map(|name| AssertSqlSafe(format!("DROP TABLE IF EXISTS {name}")))
    }

    /// One of the statements above in this dialect. No value is ever part of the text.
    pub(super) fn sql(self, text: &str) -> AssertSqlSafe<String> {
        let mut text = text.replace("{add}", self.add);
        if self.numbered {
            let mut number = 0;
            while text.contains('?') {
                number += 1;
                text = text.replacen('?', &format!("${number}"), 1);
            }
        }
        AssertSqlSafe(text)
    }
}
