//! What the service is asked for, and what it answers.

use serde::{Deserialize, Serialize};

/// What a delivery asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Charge a card and book it.
    Pay(PayRequest),
    /// Give money back.
    Refund(RefundRequest),
    /// Send a text message.
    Notify(NotifyRequest),
}

/// Which of the three annotated functions.
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

    /// Its name, as in `op = "…"`.
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
    /// The function that it is for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Pay(_) => Operation::Pay,
            Self::Refund(_) => Operation::Refund,
            Self::Notify(_) => Operation::Notify,
        }
    }

    /// What makes it the same call as another one: the parts of the key.
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
    /// Who is paid.
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

/// Give some of a payment back, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RefundRequest {
    /// Who gives it back.
    pub merchant: String,
    /// The merchant's number of the refund.
    pub refund: String,
    /// The payment that it belongs to.
    pub payment: String,
    /// In the smallest unit of the currency.
    pub amount: u64,
    /// Three letters.
    pub currency: String,
}

/// Send this text to this phone, once. It has no number: what it says is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NotifyRequest {
    /// The phone.
    pub to: String,
    /// The text.
    pub text: String,
}

/// What a caller gets for a payment or a refund; repeats get the same one.
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
    /// The row of our journal.
    pub row: usize,
}

/// What a caller gets for a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The gateway's number of the message.
    pub message: String,
}
