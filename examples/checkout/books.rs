//! The shop's books in SQLite: carts, orders, and the charges of the payment provider.

use serde::Serialize;
use sqlx::sqlite::SqlitePool;

use super::random::random_text;
use super::sql;
use crate::kept::now;

/// The books in a file. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Books(pub(crate) SqlitePool);

/// Identity of the books.
#[derive(Clone)]
pub(crate) struct Owner {
    /// Prefix of idem's records that belong to the books.
    pub(crate) prefix: String,
    /// Secret that signs the form's tokens. It is stored, so that a form outlives a restart.
    pub(crate) secret: String,
}

#[derive(Clone)]
pub(crate) struct Cart {
    /// Token that the form is submitted with.
    pub(crate) token: String,
    /// Whether the form was submitted, and failed but may be retried.
    pub(crate) tried: bool,
    pub(crate) quantity: i64,
    /// Card in the form; empty before the first submission.
    pub(crate) card: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) quantity: i64,
    /// Price, in cents.
    pub(crate) amount: i64,
    /// `new` while it is being paid, then `paid` or `declined`.
    pub(crate) state: String,
    /// The provider's number of the charge; empty without one.
    pub(crate) charge: String,
}

/// Outcome of a charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) id: String,
    pub(crate) paid: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sold {
    pub(crate) paid: u64,
    pub(crate) declined: u64,
    /// Orders that are being paid, or whose payment was interrupted.
    pub(crate) open: u64,
    /// Paid charges: as many as paid orders, and those of orders not paid yet.
    pub(crate) charges: u64,
}

type Columns = (String, i64, i64, String, String);

impl Books {
    /// Creates missing tables, with `fresh` after dropping all of them; returns the owner of the books.
    pub(crate) async fn open(&self, fresh: bool) -> Result<Owner, sqlx::Error> {
        if fresh {
            sqlx::raw_sql(sql::FORGET).execute(&self.0).await?;
        }
        sqlx::raw_sql(sql::TABLES).execute(&self.0).await?;
        let open = sqlx::query_as(sql::OPEN).bind(format!("checkout-{}", random_text(4)));
        let open = open.bind(random_text(32)).fetch_one(&self.0);
        let (prefix, secret) = open.await?;
        Ok(Owner { prefix, secret })
    }

    /// This session's cart. It gets the token `new`, which ends at `ends_s`, only if it has no valid token.
    pub(crate) async fn cart(
        &self,
        session: &str,
        new: &str,
        ends_s: u64,
    ) -> Result<Cart, sqlx::Error> {
        let found = sqlx::query_as(sql::CART).bind(session).bind(new);
        let found = found.bind(ends_s.cast_signed()).bind(now().cast_signed());
        let (token, tried, quantity, card): (_, i64, _, _) = found.fetch_one(&self.0).await?;
        Ok(Cart {
            token,
            tried: tried != 0,
            quantity,
            card,
        })
    }

    /// Stores the form submitted with the token of the cart: until its outcome is known, the token may send
    /// nothing else.
    pub(crate) async fn try_cart(
        &self,
        session: &str,
        token: &str,
        quantity: i64,
        card: &str,
    ) -> Result<(), sqlx::Error> {
        let tried = sqlx::query(sql::TRY_CART).bind(session).bind(token);
        tried.bind(quantity).bind(card).execute(&self.0).await?;
        Ok(())
    }

    /// Removes the token from the cart: the next form has a new one.
    pub(crate) async fn close_cart(&self, session: &str, token: &str) -> Result<(), sqlx::Error> {
        let close = sqlx::query(sql::CLOSE_CART).bind(session).bind(token);
        close.execute(&self.0).await?;
        Ok(())
    }

    /// Inserts an order that is not yet paid. Repeats with the same number change nothing.
    pub(crate) async fn begin_order(
        &self,
        id: &str,
        buyer: &str,
        quantity: i64,
        amount: i64,
    ) -> Result<(), sqlx::Error> {
        let order = sqlx::query(sql::ORDER).bind(id).bind(buyer).bind(quantity);
        let order = order.bind(amount).bind(now().cast_signed());
        order.execute(&self.0).await?;
        Ok(())
    }

    /// Writes the final state of the order. Once: a final state never changes.
    pub(crate) async fn end_order(&self, id: &str, charged: &Charged) -> Result<(), sqlx::Error> {
        let end = sqlx::query(sql::ORDER_ENDS).bind(id);
        let end = end.bind(state(charged.paid)).bind(&charged.id);
        end.execute(&self.0).await?;
        Ok(())
    }

    pub(crate) async fn order(&self, id: &str, buyer: &str) -> Result<Option<Order>, sqlx::Error> {
        let find = sqlx::query_as::<_, Columns>(sql::FIND_ORDER).bind(id);
        let found = find.bind(buyer).fetch_optional(&self.0).await?;
        Ok(found.map(Order::from))
    }

    pub(crate) async fn orders_of(&self, buyer: &str) -> Result<Vec<Order>, sqlx::Error> {
        let find = sqlx::query_as::<_, Columns>(sql::ORDERS_OF).bind(buyer);
        let found = find.fetch_all(&self.0).await?;
        Ok(found.into_iter().map(Order::from).collect())
    }

    /// Inserts a charge, or finds the one of this name: the provider's half.
    pub(crate) async fn charge(
        &self,
        name: &str,
        amount: i64,
        currency: &str,
        paid: bool,
    ) -> Result<Charged, sqlx::Error> {
        let charge = sqlx::query_as(sql::CHARGE).bind(name);
        let charge = charge.bind(format!("ch_{}", random_text(12))).bind(amount);
        let charge = charge.bind(currency).bind(state(paid));
        let (id, state): (_, String) = charge.fetch_one(&self.0).await?;
        Ok(Charged {
            id,
            paid: state == "paid",
        })
    }

    pub(crate) async fn sold(&self) -> Result<Sold, sqlx::Error> {
        let orders = sqlx::query_as(sql::ORDERS).fetch_one(&self.0);
        let (orders, paid, declined): (i64, i64, i64) = orders.await?;
        let charges = sqlx::query_scalar(sql::CHARGES).fetch_one(&self.0);
        let charges: i64 = charges.await?;
        // Counts are never negative.
        let count = |count: i64| count.cast_unsigned();
        Ok(Sold {
            paid: count(paid),
            declined: count(declined),
            open: count(orders - paid - declined),
            charges: count(charges),
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
