//! SQL statements of the books.

/// The shop itself, the carts, the orders; and the charges of the payment provider, which a real shop would not have.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS checkout_shop (one BIGINT NOT NULL PRIMARY KEY, prefix TEXT NOT NULL, secret TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkout_carts (session TEXT NOT NULL PRIMARY KEY, token TEXT NOT NULL,
    ends_s BIGINT NOT NULL, tried BIGINT NOT NULL, quantity BIGINT NOT NULL, card TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkout_orders (id TEXT NOT NULL PRIMARY KEY, buyer TEXT NOT NULL,
    quantity BIGINT NOT NULL, amount BIGINT NOT NULL, state TEXT NOT NULL, charge TEXT NOT NULL, made_s BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS checkout_charges (name TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL,
    amount BIGINT NOT NULL, currency TEXT NOT NULL, state TEXT NOT NULL)";

pub(super) const FORGET: &str = "
DROP TABLE IF EXISTS checkout_shop;
DROP TABLE IF EXISTS checkout_carts;
DROP TABLE IF EXISTS checkout_orders;
DROP TABLE IF EXISTS checkout_charges";

/// The first process to open new books names them; every other process reads that row.
pub(super) const OPEN: &str = "INSERT INTO checkout_shop (one, prefix, secret) VALUES (1, $1, $2) \
     ON CONFLICT (one) DO UPDATE SET one = 1 RETURNING prefix, secret";

/// The cart, with the new token unless its own is fresh: in one statement, so that two tabs that open at the
/// same moment get the same token.
pub(super) const CART: &str = "INSERT INTO checkout_carts (session, token, ends_s, tried, quantity, card) \
     VALUES ($1, $2, $3, 0, 1, '') ON CONFLICT (session) DO UPDATE SET \
     token = CASE WHEN checkout_carts.ends_s > $4 THEN checkout_carts.token ELSE excluded.token END, \
     tried = CASE WHEN checkout_carts.ends_s > $4 THEN checkout_carts.tried ELSE 0 END, \
     ends_s = CASE WHEN checkout_carts.ends_s > $4 THEN checkout_carts.ends_s ELSE excluded.ends_s END \
     RETURNING token, tried, quantity, card";
pub(super) const TRY_CART: &str = "UPDATE checkout_carts SET tried = 1, quantity = $3, card = $4 \
     WHERE session = $1 AND token = $2";
pub(super) const CLOSE_CART: &str = "DELETE FROM checkout_carts WHERE session = $1 AND token = $2";

/// A second attempt finds the row of the first.
pub(super) const ORDER: &str = "INSERT INTO checkout_orders (id, buyer, quantity, amount, state, charge, made_s) \
     VALUES ($1, $2, $3, $4, 'new', '', $5) ON CONFLICT (id) DO NOTHING";
pub(super) const ORDER_ENDS: &str =
    "UPDATE checkout_orders SET state = $2, charge = $3 WHERE id = $1 AND state = 'new'";
pub(super) const FIND_ORDER: &str =
    "SELECT id, quantity, amount, state, charge FROM checkout_orders WHERE id = $1 AND buyer = $2";
pub(super) const ORDERS_OF: &str = "SELECT id, quantity, amount, state, charge FROM checkout_orders \
     WHERE buyer = $1 AND state <> 'new' ORDER BY made_s DESC, id LIMIT 10";
pub(super) const ORDERS: &str = "SELECT count(*), count(CASE WHEN state = 'paid' THEN 1 END), \
     count(CASE WHEN state = 'declined' THEN 1 END) FROM checkout_orders";

/// The provider recognizes a repeat by the caller's name for the charge.
pub(super) const CHARGE: &str = "INSERT INTO checkout_charges (name, id, amount, currency, state) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE SET name = excluded.name \
     RETURNING id, state";

pub(super) const CHARGES: &str = "SELECT count(*) FROM checkout_charges WHERE state = 'paid'";
