//! The shop's books in a database: carts, orders, and what the payment provider has charged.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sqlx::Connection as _;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
};

use super::random::random_text;
use super::sql;

/// The books, and how to reach them. Clones are the same books.
#[derive(Clone, Debug)]
pub enum Books {
    /// In a file, or in this process.
    Sqlite(SqlitePool),
    /// In PostgreSQL.
    Postgres(PgPool),
}

/// Who these books belong to.
#[derive(Clone)]
pub struct Owner {
    /// The name of idem's records that go with them.
    pub prefix: String,
    /// What the tokens of the form are signed with. It stays, so that a form outlives a restart.
    pub secret: String,
}

impl fmt::Debug for Cart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cart")
            .field("tried", &self.tried)
            .field("quantity", &self.quantity)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A cart.
#[derive(Clone)]
pub struct Cart {
    /// What its form can be submitted with.
    pub token: String,
    /// Whether that was tried, and failed so that another attempt may be made.
    pub tried: bool,
    /// How many packets were asked for.
    pub quantity: i64,
    /// With which card; empty before the first time.
    pub card: String,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Its number.
    pub id: String,
    /// How many packets.
    pub quantity: i64,
    /// What they cost, in cents.
    pub amount: i64,
    /// `new` while it is being paid, then `paid` or `declined`.
    pub state: String,
    /// The provider's number of the charge, empty without one.
    pub charge: String,
}

/// What a charge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Its number.
    pub id: String,
    /// Whether the bank paid.
    pub paid: bool,
}

/// What is in the books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sold {
    /// Orders that are paid.
    pub paid: u64,
    /// Orders whose card was declined.
    pub declined: u64,
    /// Orders that are being paid, or whose payment broke off.
    pub open: u64,
    /// Paid charges that a paid order names. As many as there are paid orders, or something was paid twice.
    pub of_paid: u64,
    /// Paid charges of other orders: those not paid yet.
    pub of_other: u64,
    /// Paid charges that were asked for without an order, at `/v1/charges`.
    pub of_no_order: u64,
}

/// Does the same with the pool of each database; each has types of its own.
macro_rules! each {
    ($books:expr, $pool:ident => $work:expr) => {
        match $books {
            Books::Sqlite($pool) => $work,
            Books::Postgres($pool) => $work,
        }
    };
}

type Columns = (String, i64, i64, String, String);

impl Books {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn file(path: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            // As the store has it: readers do not wait for the one who writes.
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(4);
        Ok(Self::Sqlite(pool.connect_with(options).await?))
    }

    /// Books that end with the process.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn memory() -> Result<Self, sqlx::Error> {
        let options: SqliteConnectOptions = "sqlite::memory:".parse()?;
        // They end with their last connection, and the pool gives up its own when a visitor leaves in the middle of a
        // query. So there is one more that nobody uses, for as long as there is the pool.
        let open = Mutex::new(SqliteConnection::connect_with(&options).await?);
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .after_connect(move |_, _| {
                let _ = &open;
                Box::pin(async { Ok(()) })
            });
        Ok(Self::Sqlite(pool.connect_with(options).await?))
    }

    /// Connects to PostgreSQL.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn postgres(url: &str) -> Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(8);
        Ok(Self::Postgres(pool.connect(url).await?))
    }

    /// Makes the tables that are not there, after removing them all with `fresh`; whose they are.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn open(&self, fresh: bool) -> Result<Owner, sqlx::Error> {
        let forget = if fresh { &sql::FORGET[..] } else { &[] };
        for statement in forget.iter().chain(&sql::TABLES) {
            each!(self, pool => sqlx::query(*statement).execute(pool).await.map(drop))?;
        }
        let (prefix, secret): (String, String) = each!(self, pool => {
            let open = sqlx::query_as(sql::OPEN);
            let open = open.bind(format!("checkout-{}", random_text(4))).bind(random_text(32));
            open.fetch_one(pool).await
        })?;
        Ok(Owner { prefix, secret })
    }

    /// This session's cart. It gets the token `new`, which ends then, only if it has none that is still good.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn cart(&self, session: &str, new: &str, ends_s: u64) -> Result<Cart, sqlx::Error> {
        let (token, tried, quantity, card): (_, i64, _, _) = each!(self, pool => {
            let cart = sqlx::query_as(sql::CART).bind(session).bind(new);
            let cart = cart.bind(ends_s.cast_signed()).bind(now().cast_signed());
            cart.fetch_one(pool).await
        })?;
        Ok(Cart {
            token,
            tried: tried != 0,
            quantity,
            card,
        })
    }

    /// Notes what was sent with the token of the cart: as long as nobody knows what came of it, it is all that this
    /// token may send.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn try_cart(
        &self,
        session: &str,
        token: &str,
        quantity: i64,
        card: &str,
    ) -> Result<(), sqlx::Error> {
        each!(self, pool => {
            let tried = sqlx::query(sql::TRY_CART).bind(session).bind(token);
            tried.bind(quantity).bind(card).execute(pool).await.map(drop)
        })
    }

    /// Takes the token from the cart: the next form has a new one.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn close_cart(&self, session: &str, token: &str) -> Result<(), sqlx::Error> {
        each!(self, pool => {
            let close = sqlx::query(sql::CLOSE_CART).bind(session).bind(token);
            close.execute(pool).await.map(drop)
        })
    }

    /// Writes an order that is not yet paid. Once: the same number again changes nothing.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn begin_order(
        &self,
        id: &str,
        buyer: &str,
        quantity: i64,
        amount: i64,
    ) -> Result<(), sqlx::Error> {
        each!(self, pool => {
            let order = sqlx::query(sql::ORDER).bind(id).bind(buyer).bind(quantity);
            let order = order.bind(amount).bind(now().cast_signed());
            order.execute(pool).await.map(drop)
        })
    }

    /// Writes how the order ended. Once: what has ended stays as it is.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn end_order(&self, id: &str, charged: &Charged) -> Result<(), sqlx::Error> {
        let state = state(charged.paid);
        each!(self, pool => {
            let end = sqlx::query(sql::ORDER_ENDS).bind(id).bind(state).bind(&charged.id);
            end.execute(pool).await.map(drop)
        })
    }

    /// This buyer's order of this number.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn order(&self, id: &str, buyer: &str) -> Result<Option<Order>, sqlx::Error> {
        let found: Option<Columns> = each!(self, pool => {
            let find = sqlx::query_as(sql::FIND_ORDER).bind(id).bind(buyer);
            find.fetch_optional(pool).await
        })?;
        Ok(found.map(Order::from))
    }

    /// What this buyer ordered last.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn orders_of(&self, buyer: &str) -> Result<Vec<Order>, sqlx::Error> {
        let found: Vec<Columns> = each!(self, pool => {
            sqlx::query_as(sql::ORDERS_OF).bind(buyer).fetch_all(pool).await
        })?;
        Ok(found.into_iter().map(Order::from).collect())
    }

    /// Writes a charge, or finds the one of this name: the provider's half.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn charge(
        &self,
        name: &str,
        amount: i64,
        currency: &str,
        paid: bool,
    ) -> Result<Charged, sqlx::Error> {
        let (id, state): (String, String) = each!(self, pool => {
            let charge = sqlx::query_as(sql::CHARGE).bind(name);
            let charge = charge.bind(format!("ch_{}", random_text(12))).bind(amount);
            charge.bind(currency).bind(state(paid)).fetch_one(pool).await
        })?;
        Ok(Charged {
            id,
            paid: state == "paid",
        })
    }

    /// How many orders and charges there are.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn sold(&self) -> Result<Sold, sqlx::Error> {
        let (orders, paid, declined): (i64, i64, i64) =
            each!(self, pool => sqlx::query_as(sql::ORDERS).fetch_one(pool).await)?;
        let (charges, of_paid, of_other): (i64, i64, i64) =
            each!(self, pool => sqlx::query_as(sql::CHARGES).fetch_one(pool).await)?;
        // None is negative.
        let count = |count: i64| count.cast_unsigned();
        Ok(Sold {
            paid: count(paid),
            declined: count(declined),
            open: count(orders - paid - declined),
            of_paid: count(of_paid),
            of_other: count(of_other),
            of_no_order: count(charges - of_paid - of_other),
        })
    }
}

impl From<Columns> for Order {
    fn from((id, quantity, amount, state, charge): Columns) -> Self {
        Self {
            id,
            quantity,
            amount,
            state,
            charge,
        }
    }
}

fn state(paid: bool) -> &'static str {
    if paid { "paid" } else { "declined" }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
