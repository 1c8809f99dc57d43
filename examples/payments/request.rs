//! Requests and answers of the service, and the log of webhooks that brings them.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The log of this example.
pub const DELIVERIES: &[u8] = include_bytes!("deliveries.jsonl");

/// Request of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum Request {
    /// Charge a card and book it.
    #[serde(rename = "payment.authorized")]
    Pay(PayRequest),
    /// Refund a payment.
    #[serde(rename = "refund.requested")]
    Refund(RefundRequest),
    /// Send a text message.
    #[serde(rename = "notification.due")]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PayRequest {
    /// The payee.
    pub merchant: String,
    /// The merchant's number of the payment.
    pub payment: String,
    /// The token of the payer's card.
    pub card: String,
    /// In the smallest unit of the currency.
    #[serde(deserialize_with = "amount")]
    pub amount: u64,
    /// Three letters.
    pub currency: String,
}

/// Refund a part of a payment, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefundRequest {
    /// The merchant that refunds.
    pub merchant: String,
    /// The merchant's number of the refund.
    pub refund: String,
    /// The refunded payment.
    pub payment: String,
    /// In the smallest unit of the currency.
    #[serde(deserialize_with = "amount")]
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

/// One delivery of one event: a line of the log. The provider delivers at least once, in any order.
#[derive(Clone, Debug, Deserialize)]
pub struct Delivery {
    /// Line number in the log, counted from 1.
    #[serde(skip)]
    pub line: usize,
    /// Its own id: every attempt of the provider has another.
    #[serde(rename = "delivery")]
    pub id: String,
    /// Time of sending, as text that sorts by time.
    pub sent_at: String,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// Contents of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The deliveries, in the order of the log.
    pub deliveries: Vec<Delivery>,
    /// The numbers of the lines that are no deliveries, from 1, and the defect of each.
    pub bad: Vec<(usize, String)>,
}

impl Log {
    /// Reads a log. A line that is no delivery is recorded and the next one is read.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut log = Self::default();
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        for (line, text) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            match serde_json::from_slice(text) {
                Ok(delivery) => log.deliveries.push(Delivery { line, ..delivery }),
                Err(error) => log.bad.push((line, error.to_string())),
            }
        }
        log
    }

    /// Number of deliveries of this operation, and of their distinct ids.
    #[must_use]
    pub fn count(&self, operation: Operation) -> (usize, usize) {
        let of = |request: &&Request| request.operation() == operation;
        let ids: HashSet<_> = self.requests().filter(of).map(Request::id).collect();
        (self.requests().filter(of).count(), ids.len())
    }

    /// Number of deliveries sent before the one that precedes them in the log.
    #[must_use]
    pub fn out_of_order(&self) -> usize {
        let pairs = self.deliveries.windows(2);
        let older = pairs.filter(|pair| pair[1].sent_at < pair[0].sent_at);
        older.count()
    }

    /// Number of ids that were sent with more than one content.
    #[must_use]
    pub fn conflicts(&self) -> usize {
        let contents: HashSet<_> = self.requests().collect();
        let ids: HashSet<_> = self.requests().map(|r| (r.operation(), r.id())).collect();
        contents.len() - ids.len()
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.deliveries.iter().map(|delivery| &delivery.request)
    }
}

/// An amount below the largest number that every JSON reader keeps exactly, so that sums cannot overflow.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        amount @ 1..=1_000_000_000_000 => Ok(amount),
        _ => Err(de::Error::custom("`amount` must be 1 to 1,000,000,000,000")),
    }
}
