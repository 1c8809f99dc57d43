//! Ordering and paying: what the form and the API have in common.

use idem_runtime::Context;

use super::books::Order;
use super::provider::{Charge, ProviderDown};
use super::shop::{PRICE, Shop};

/// What is to be bought.
#[derive(Clone, Copy, Debug)]
pub struct Purchase<'a> {
    /// Whose order it is.
    pub buyer: &'a str,
    /// How many packets.
    pub quantity: u32,
    /// The card that pays.
    pub card: &'a str,
}

/// Why an order is not paid.
#[derive(Clone, Copy, Debug)]
pub enum NotPaid {
    /// The bank said no.
    Declined,
    /// The provider did not answer; asking again is safe.
    ProviderDown,
    /// The books cannot be written; asking again is safe.
    Books,
}

impl Shop {
    /// Orders and pays, in the body of an idempotent call.
    ///
    /// Everything it does is named by the call: an attempt after a crash finds the order and the charge of the
    /// attempt before it. When nobody makes another attempt, the order stays `new`, and the card may have been charged:
    /// a real shop asks its provider about such orders from time to time.
    ///
    /// # Errors
    ///
    /// [`NotPaid`].
    pub async fn buy(&self, call: &Context, purchase: Purchase<'_>) -> Result<Order, NotPaid> {
        let Purchase {
            buyer,
            quantity,
            card,
        } = purchase;
        let quantity = i64::from(quantity);
        // What is bought is part of both names: when idem has forgotten the key, it may come with another request.
        let what = format!("{quantity}, paid with {card}");
        let id = order_id(call, &what);
        let amount = quantity * PRICE;
        let begun = self.books.begin_order(&id, buyer, quantity, amount).await;
        begun.map_err(|error| cannot_write(&error))?;

        let payment = call.derive_key(&format!("payment of {what}"));
        let charge = Charge {
            // The same in every attempt of this call, so the provider knows a repeat for a repeat.
            name: &format!("{id}/{payment}"),
            amount,
            currency: "eur",
            card,
        };
        let charged = self.provider.charge(charge).await;
        let charged = charged.map_err(|ProviderDown| NotPaid::ProviderDown)?;

        let ended = self.books.end_order(&id, &charged).await;
        ended.map_err(|error| cannot_write(&error))?;
        if !charged.paid {
            return Err(NotPaid::Declined);
        }
        Ok(Order {
            id,
            quantity,
            amount,
            state: "paid".to_owned(),
            charge: charged.id,
        })
    }
}

/// The number of the order, the same in every attempt.
fn order_id(call: &Context, what: &str) -> String {
    let name = call.derive_key(&format!("order of {what}"));
    // 96 bits: nobody guesses them, and no two orders have the same.
    format!("ord_{}", name.get(..16).unwrap_or(&name))
}

fn cannot_write(error: &sqlx::Error) -> NotPaid {
    eprintln!("checkout: cannot write an order: {error}");
    NotPaid::Books
}
