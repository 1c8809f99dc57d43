//! The shop: state shared by its pages and its API, and how it is opened.

use std::time::Duration;

use idem_runtime::{Engine, token::TokenIssuer};

use super::args::Args;
use super::books::{Books, Cart, Owner};
use super::live::Live;
use super::provider::Provider;
use super::session::Session;
use crate::kept::{PATIENCE, beside_the_program, cannot, now, sqlite};

/// Price of one packet, in cents.
pub(crate) const PRICE: i64 = 1250;

/// Maximum number of packets in one order.
pub(crate) const MOST: u32 = 20;

/// Operation name of the form. Its tokens are valid for no other.
pub(crate) const SUBMIT: &str = "orders.submit";

/// The shop. Clones share it.
#[derive(Clone, Debug)]
pub struct Shop {
    pub(crate) engine: Engine,
    pub(crate) books: Books,
    pub(crate) provider: Provider,
    pub(crate) live: Live,
    pub(crate) form_life: Duration,
}

impl Shop {
    /// Opens the shop of the arguments, and describes its location in words.
    pub async fn open(args: &Args) -> Result<(Self, String), String> {
        let file = match &args.file {
            Some(file) => file.clone(),
            None => beside_the_program("idem-checkout.db"),
        };
        let (pool, store) = sqlite(&file, 4).await?;
        let books = Books(pool);
        let owner = books.open(args.fresh).await;
        let Owner { prefix, secret } = owner.map_err(cannot("open the books"))?;
        let live = Live::default();
        let engine = Engine::builder(store)
            .prefix(prefix)
            .tokens(TokenIssuer::new(secret).life(args.life))
            .observer(live.clone())
            .claim_deadline(PATIENCE)
            .build()
            .map_err(|error| error.to_string())?;
        let shop = Self {
            engine,
            provider: Provider::new(books.clone(), args),
            books,
            live,
            form_life: args.life,
        };
        Ok((shop, format!("records and books are in {}", file.display())))
    }

    /// This session's cart, with its token. Every tab of the cart gets the same token, until it is ordered or the token
    /// expires; so two tabs are one order.
    pub(crate) async fn cart(&self, session: &Session) -> Result<Cart, String> {
        let new = self.engine.issue_token(SUBMIT, session);
        let new = new.map_err(|error| error.to_string())?;
        // Not before the token's own expiry, which is counted in whole seconds too: so a cart never has two
        // valid tokens.
        let ends = now() + 1 + self.form_life.as_secs();
        let cart = self.books.cart(session.as_str(), &new, ends).await;
        cart.map_err(cannot("ask for a cart"))
    }
}
