//! The delivery log: one webhook delivery a line; a bad line does not affect the others.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::request::{NotifyRequest, Operation, PayRequest, RefundRequest, Request};

/// One delivery of one event. The provider delivers at least once, in any order.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Line number in the log, counted from 1.
    pub line: usize,
    /// Its own id: every attempt of the provider has another.
    pub id: String,
    /// Time of sending, as text that sorts by time.
    pub sent_at: String,
    /// The request.
    pub request: Request,
}

/// A line that is no delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number in the log, counted from 1.
    pub line: usize,
    /// The defect. Quotes nothing but numbers and short words of the line.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Contents of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The deliveries, in the order of the log.
    pub deliveries: Vec<Delivery>,
    /// The lines that are no deliveries.
    pub bad: Vec<BadLine>,
}

/// A line as written. The generator writes the format that the reader reads.
#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "a delivery")]
pub(crate) struct Line {
    pub(crate) delivery: String,
    pub(crate) attempt: u32,
    pub(crate) sent_at: String,
    pub(crate) event: String,
    pub(crate) data: Data,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Data {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merchant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refund: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) card: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) amount: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) currency: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl Log {
    /// Reads a log. A line that is no delivery is recorded and the next one is read.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut log = Self::default();
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if body.is_empty() {
            return log;
        }
        for (line, text) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            match Delivery::read(line, text) {
                Ok(delivery) => log.deliveries.push(delivery),
                Err(reason) => log.bad.push(BadLine { line, reason }),
            }
        }
        log
    }

    /// Number of lines, good and bad.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.deliveries.len() + self.bad.len()
    }

    /// Number of distinct requests of this operation.
    #[must_use]
    pub fn distinct(&self, operation: Operation) -> usize {
        self.of(operation)
            .map(Request::id)
            .collect::<HashSet<_>>()
            .len()
    }

    /// Number of deliveries of this operation.
    #[must_use]
    pub fn count(&self, operation: Operation) -> usize {
        self.of(operation).count()
    }

    /// Number of deliveries sent before the one that precedes them in the log.
    #[must_use]
    pub fn out_of_order(&self) -> usize {
        let pairs = self.deliveries.windows(2);
        pairs
            .filter(|pair| pair[1].sent_at < pair[0].sent_at)
            .count()
    }

    /// Number of ids that were sent with more than one content.
    #[must_use]
    pub fn conflicts(&self) -> usize {
        let requests = || self.deliveries.iter().map(|delivery| &delivery.request);
        let asked: HashSet<&Request> = requests().collect();
        let ids: HashSet<_> = requests().map(|r| (r.operation(), r.id())).collect();
        asked.len() - ids.len()
    }

    fn of(&self, operation: Operation) -> impl Iterator<Item = &Request> {
        let requests = self.deliveries.iter().map(|delivery| &delivery.request);
        requests.filter(move |request| request.operation() == operation)
    }
}

impl Delivery {
    fn read(line: usize, text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("not UTF-8 after byte {}", error.valid_up_to()))?;
        if text.trim().is_empty() {
            return Err("empty".to_owned());
        }
        let read: Line = serde_json::from_str(text).map_err(|error| reason(&error))?;
        let request = read.data.request(&read.event)?;
        Ok(Self {
            line,
            id: read.delivery,
            sent_at: read.sent_at,
            request,
        })
    }
}

/// serde's message without its line number, which is always the first; the column is kept.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(what) => format!("{what} (column {})", error.column()),
        None => message,
    }
}

impl Data {
    fn request(self, event: &str) -> Result<Request, String> {
        Ok(match event {
            "payment.authorized" => Request::Pay(PayRequest {
                merchant: given(self.merchant, "merchant")?,
                payment: given(self.payment, "payment")?,
                card: given(self.card, "card")?,
                amount: amount(self.amount)?,
                currency: given(self.currency, "currency")?,
            }),
            "refund.requested" => Request::Refund(RefundRequest {
                merchant: given(self.merchant, "merchant")?,
                refund: given(self.refund, "refund")?,
                payment: given(self.payment, "payment")?,
                amount: amount(self.amount)?,
                currency: given(self.currency, "currency")?,
            }),
            "notification.due" => Request::Notify(NotifyRequest {
                to: given(self.to, "to")?,
                text: given(self.text, "text")?,
            }),
            _ => return Err(format!("unknown event {event:?}")),
        })
    }
}

fn given(field: Option<String>, name: &str) -> Result<String, String> {
    field
        .filter(|text| !text.is_empty())
        .ok_or_else(|| format!("`data.{name}` is missing"))
}

fn amount(field: Option<u64>) -> Result<u64, String> {
    // Below the largest number that every JSON reader keeps exactly, so that sums cannot overflow.
    match field {
        Some(amount @ 1..=1_000_000_000_000) => Ok(amount),
        Some(_) => Err("`data.amount` must be 1 to 1,000,000,000,000".to_owned()),
        None => Err("`data.amount` is missing".to_owned()),
    }
}
