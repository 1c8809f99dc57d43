//! Requests and answers of the service.

use serde::{Deserialize, Serialize};

/// Request of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Charge a card and book it.
    Pay(PayRequest),
    /// Refund a payment.
    Refund(RefundRequest),
    /// Send a text message.
    Notify(NotifyRequest),
}

/// One of the three annotated functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// `pay`.
    Pay,
    /// `refund`.
    Refund,
    /// `notify`.
    Notify,
}

impl Operation {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Pay, Self::Refund, Self::Notify];

    /// Name, as in `op = "…"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pay => "payments.pay",
            Self::Refund => "payments.refund",
            Self::Notify => "payments.notify",
        }
    }
}

impl Request {
    /// The function of the request.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Pay(_) => Operation::Pay,
            Self::Refund(_) => Operation::Refund,
            Self::Notify(_) => Operation::Notify,
        }
    }

    /// Identity of the call: the parts of the key.
    #[must_use]
    pub fn id(&self) -> (&str, &str) {
        match self {
            Self::Pay(pay) => (&pay.merchant, &pay.payment),
            Self::Refund(refund) => (&refund.merchant, &refund.refund),
            Self::Notify(notify) => (&notify.to, &notify.text),
        }
    }
}

/// Charge this card once, and book it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PayRequest {
    /// The payee.
    pub merchant: String,
    /// The merchant's number of the payment.
    pub payment: String,
    /// The token of the payer's card.
    pub card: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
}

/// Refund a part of a payment, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RefundRequest {
    /// The merchant that refunds.
    pub merchant: String,
    /// The merchant's number of the refund.
    pub refund: String,
    /// The refunded payment.
    pub payment: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
}

/// Send this text to this phone, once. It has no number: its content identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NotifyRequest {
    /// The phone.
    pub to: String,
    /// The text.
    pub text: String,
}

/// Answer to a payment or a refund; repeats get the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The payment or refund.
    pub id: String,
    /// The provider's number of the movement.
    pub movement: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
    /// Number of the row of our journal.
    pub row: usize,
}

/// Answer to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The gateway's number of the message.
    pub message: String,
}
