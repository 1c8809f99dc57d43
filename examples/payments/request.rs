//! Requests and answers of the service, and the log of its webhooks.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

const DELIVERIES: &[u8] = include_bytes!("deliveries.jsonl");

/// Request of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(tag = "event", content = "data")]
pub(crate) enum Request {
    #[serde(rename = "payment.authorized")]
    Pay(PayRequest),
    #[serde(rename = "refund.requested")]
    Refund(RefundRequest),
    #[serde(rename = "notification.due")]
    Notify(NotifyRequest),
}

/// One of the three annotated functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operation {
    Pay,
    Refund,
    Notify,
}

impl Operation {
    pub(crate) const ALL: [Self; 3] = [Self::Pay, Self::Refund, Self::Notify];

    /// Name, as in `op = "…"`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pay => "payments.pay",
            Self::Refund => "payments.refund",
            Self::Notify => "payments.notify",
        }
    }
}

impl Request {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Pay(_) => Operation::Pay,
            Self::Refund(_) => Operation::Refund,
            Self::Notify(_) => Operation::Notify,
        }
    }

    /// Identity of the call: the parts of the key.
    pub(crate) fn id(&self) -> (&str, &str) {
        match self {
            Self::Pay(pay) => (&pay.merchant, &pay.payment),
            Self::Refund(refund) => (&refund.merchant, &refund.refund),
            Self::Notify(notify) => (&notify.to, &notify.text),
        }
    }
}

/// Charge this card once, and book it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PayRequest {
    pub(crate) merchant: String,
    pub(crate) payment: String,
    /// The token of the payer's card.
    pub(crate) card: String,
    #[serde(deserialize_with = "amount")]
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// Refund a part of a payment, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RefundRequest {
    pub(crate) merchant: String,
    pub(crate) refund: String,
    pub(crate) payment: String,
    #[serde(deserialize_with = "amount")]
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// Send this text to this phone, once. It has no number: its content identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NotifyRequest {
    pub(crate) to: String,
    pub(crate) text: String,
}

/// Answer to a payment or a refund; repeats get the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) id: String,
    /// The provider's number of the movement.
    pub(crate) movement: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
    /// Number of the row of our journal.
    pub(crate) row: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) message: String,
}

/// One delivery of one event: a line of the log. The provider delivers at least once, in any order.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Delivery {
    /// Line number in the log, counted from 1.
    #[serde(skip)]
    pub(crate) line: usize,
    /// Its own id: every attempt of the provider has another.
    #[serde(rename = "delivery")]
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) request: Request,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) deliveries: Vec<Delivery>,
    /// The lines that are no deliveries: numbers from 1, with the defects.
    pub(crate) bad: Vec<(usize, String)>,
}

impl Log {
    pub(crate) fn read() -> Self {
        let mut log = Self::default();
        let body = DELIVERIES.strip_suffix(b"\n").unwrap_or(DELIVERIES);
        for (line, text) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            match serde_json::from_slice(text) {
                Ok(delivery) => log.deliveries.push(Delivery { line, ..delivery }),
                Err(error) => log.bad.push((line, error.to_string())),
            }
        }
        log
    }

    /// Number of ids that were sent with more than one content.
    fn conflicts(&self) -> usize {
        let contents: HashSet<_> = self.requests().collect();
        let ids: HashSet<_> = self.requests().map(|r| (r.operation(), r.id())).collect();
        contents.len() - ids.len()
    }

    fn requests(&self) -> impl Iterator<Item = &Request> + Clone {
        self.deliveries.iter().map(|delivery| &delivery.request)
    }
}

/// A summary, in a few lines.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (good, bad) = (self.deliveries.len(), self.bad.len());
        writeln!(f, "  {good} deliveries, {bad} bad lines")?;
        let names = ["payments", "refunds", "messages"];
        for (name, operation) in names.into_iter().zip(Operation::ALL) {
            let of = self.requests().filter(|it| it.operation() == operation);
            let ids: HashSet<_> = of.clone().map(Request::id).collect();
            let (ids, deliveries) = (ids.len(), of.count());
            writeln!(f, "  {ids:>5} {name:<8} in {deliveries:>5} deliveries")?;
        }
        let conflicts = self.conflicts();
        writeln!(
            f,
            "  {conflicts:>5} ids come with two contents, as the same payment with another amount"
        )?;
        for (line, defect) in &self.bad {
            writeln!(f, "  line {line} is skipped: {defect}")?;
        }
        Ok(())
    }
}

/// An amount below the largest number that every JSON reader keeps exactly. Sums cannot overflow.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        amount @ 1..=1_000_000_000_000 => Ok(amount),
        _ => Err(de::Error::custom("`amount` must be 1 to 1,000,000,000,000")),
    }
}
