//! Ordering and paying, shared by the form and the API.

use idem_runtime::Context;

use super::books::Order;
use super::provider::{Charge, ProviderDown};
use super::shop::{PRICE, Shop};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Purchase<'a> {
    pub(crate) buyer: &'a str,
    pub(crate) quantity: u32,
    pub(crate) card: &'a str,
}

/// Reason why an order is not paid.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotPaid {
    Declined,
    /// The provider did not answer; a retry is safe.
    ProviderDown,
    /// The books cannot be written; a retry is safe.
    Books,
}

impl Shop {
    /// Orders and pays, in the body of an idempotent call.
    ///
    /// All names are derived from the call: an attempt after a crash finds the order and the charge of the
    /// attempt before it. Without another attempt, the order stays `new`, and the card may have been charged:
    /// a real shop queries its provider about such orders from time to time.
    pub(crate) async fn buy(
        &self,
        call: &Context,
        purchase: Purchase<'_>,
    ) -> Result<Order, NotPaid> {
        let Purchase {
            buyer,
            quantity,
            card,
        } = purchase;
        let quantity = i64::from(quantity);
        // The purchase is part of both names, because an expired key may come back with another request.
        let what = format!("{quantity}, paid with {card}");
        let id = order_id(call, &what);
        let amount = quantity * PRICE;
        let begun = self.books.begin_order(&id, buyer, quantity, amount).await;
        begun.map_err(|error| cannot_write(&error))?;

        let payment = call.derive_key(&format!("payment of {what}"));
        let charge = Charge {
            // The same in every attempt of this call, so that the provider recognizes a repeat.
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

/// Order number, the same in every attempt.
fn order_id(call: &Context, what: &str) -> String {
    let name = call.derive_key(&format!("order of {what}"));
    // 96 bits: not guessable, and without collisions.
    format!("ord_{}", name.get(..16).unwrap_or(&name))
}

fn cannot_write(error: &sqlx::Error) -> NotPaid {
    eprintln!("checkout: cannot write an order: {error}");
    NotPaid::Books
}
