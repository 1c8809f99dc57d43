//! Generates the delivery log: the same bytes for the same seed.

use super::delivery::{Data, Line};
use super::random::Random;

/// The seed of the log that is committed.
pub const SEED: u64 = 20_260_302;

const PAYMENTS: u64 = 640;
const MERCHANTS: [(&str, &str); 6] = [
    ("alder-books", "EUR"),
    ("birch-coffee", "EUR"),
    ("cedar-tickets", "EUR"),
    ("dogwood-cycles", "EUR"),
    ("elm-records", "GBP"),
    ("fir-outdoor", "GBP"),
];

/// One minute, in milliseconds.
const MINUTE: u64 = 60_000;

/// A line, and its time of arrival.
struct Arrival {
    at: u64,
    sent: u64,
    attempt: u32,
    event: &'static str,
    data: Data,
}

/// The log of this seed: one JSON object a line, some lines damaged.
#[must_use]
pub fn generate(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut arrivals = Vec::new();
    for number in 0..PAYMENTS {
        payment(&mut random, &mut arrivals, number);
    }
    // Stable, so that equal times keep the order in which they were drawn.
    arrivals.sort_by_key(|arrival| arrival.at);
    let lines: Vec<String> = (1..).zip(&arrivals).map(|(n, a)| a.write(n)).collect();
    let every = lines.len() / (DAMAGES.len() + 1);
    let mut log = Vec::new();
    let mut damages = DAMAGES.iter().enumerate().peekable();
    for (i, line) in lines.iter().enumerate() {
        // A damaged copy of a payment comes first and the provider sends it again, so that no payment
        // is lost.
        if let Some((_, damage)) = damages
            .next_if(|(nth, _)| i >= (nth + 1) * every && line.contains("payment.authorized"))
        {
            log.extend_from_slice(&damage(line));
            log.push(b'\n');
        }
        log.extend_from_slice(line.as_bytes());
        log.push(b'\n');
    }
    log
}

/// A payment with its repeats and the requests that follow from it.
fn payment(random: &mut Random, arrivals: &mut Vec<Arrival>, number: u64) {
    let (merchant, currency) = MERCHANTS[index(random, MERCHANTS.len())];
    let id = format!("pay_{:04}", number + 1);
    let kind = match random.between(0, 100) {
        0..5 => "declined",
        5..12 => "low",
        12..16 => "timeout",
        16..18 => "down",
        _ => "good",
    };
    let cards = if kind == "good" { 120 } else { 9 };
    let amount = match kind {
        "low" => random.between(1_500, 4_000),
        _ => random.between(300, 25_000),
    };
    let data = Data {
        merchant: Some(merchant.to_owned()),
        payment: Some(id.clone()),
        card: Some(format!("card_{kind}_{:03}", random.between(1, cards))),
        amount: Some(amount),
        currency: Some(currency.to_owned()),
        ..Data::default()
    };
    let sent = number * 1_500 + random.between(0, 1_500);
    let event = "payment.authorized";
    let times = copies(random);
    let first = deliver(random, arrivals, event, &data, sent, times);
    if random.chance(6) {
        // The same id with another amount: a bug of the merchant's shop. It is sent after the
        // genuine one, which need not be the one that is processed first.
        let other = Data {
            amount: Some(amount + random.between(1, 900)),
            ..data.clone()
        };
        let again = 1 + random.between(0, 3);
        deliver_from(
            random,
            arrivals,
            event,
            &other,
            sent + 400,
            first + 1,
            again,
        );
    }
    if random.chance(23) {
        refund(random, arrivals, &data, sent);
    }
    if random.chance(36) {
        let data = Data {
            to: Some(format!("+44 7700 900{:03}", random.between(0, 1_000))),
            text: Some(format!("{merchant}: thank you, we received {id}.")),
            ..Data::default()
        };
        let sent = sent + random.between(1_000, MINUTE);
        let times = copies(random);
        deliver(random, arrivals, "notification.due", &data, sent, times);
    }
}

fn refund(random: &mut Random, arrivals: &mut Vec<Arrival>, paid: &Data, sent: u64) {
    let amount = paid.amount.unwrap_or_default();
    let part = match random.between(0, 100) {
        0..55 => amount,
        55..88 => 1 + amount / random.between(2, 5),
        _ => amount * 2,
    };
    let id = paid.payment.as_deref().unwrap_or_default();
    let data = Data {
        refund: Some(id.replace("pay", "ref")),
        amount: Some(part),
        card: None,
        ..paid.clone()
    };
    // Some refunds are sent so soon that they overtake their payment.
    let soon = random.chance(15);
    let sent = sent + random.between(50, if soon { 300 } else { 5 * MINUTE });
    let event = "refund.requested";
    let times = copies(random);
    let first = deliver(random, arrivals, event, &data, sent, times);
    if random.chance(5) {
        let other = Data {
            amount: Some(part + 100),
            ..data
        };
        deliver_from(random, arrivals, event, &other, sent + 900, first + 1, 1);
    }
}

/// Number of deliveries of an event: mostly once or twice, rarely eight times.
fn copies(random: &mut Random) -> u64 {
    match random.between(0, 100) {
        0..28 => 1,
        28..60 => 2,
        60..80 => 3,
        80..91 => 4,
        91..97 => 5,
        _ => 8,
    }
}

/// Delivers an event `copies` times, and returns the arrival of the first copy.
fn deliver(
    random: &mut Random,
    arrivals: &mut Vec<Arrival>,
    event: &'static str,
    data: &Data,
    sent: u64,
    copies: u64,
) -> u64 {
    let late = random.chance(8);
    let first = sent + random.between(20, if late { 2 * MINUTE } else { 900 });
    deliver_from(random, arrivals, event, data, sent, first, copies);
    first
}

fn deliver_from(
    random: &mut Random,
    arrivals: &mut Vec<Arrival>,
    event: &'static str,
    data: &Data,
    sent: u64,
    first: u64,
    copies: u64,
) {
    for copy in 0..copies {
        // A repeat comes at once (a proxy that retries), soon (the provider does), or much later.
        let wait = match random.between(0, 100) {
            _ if copy == 0 => 0,
            0..45 => random.between(0, 30),
            45..80 => random.between(1_000, 15_000),
            _ => random.between(MINUTE, 6 * MINUTE),
        };
        arrivals.push(Arrival {
            at: first + wait,
            sent: sent + wait,
            attempt: u32::try_from(copy + 1).expect("at most eight copies"),
            event,
            data: data.clone(),
        });
    }
}

fn index(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.between(0, length as u64)).expect("smaller than the length")
}

impl Arrival {
    fn write(&self, number: usize) -> String {
        let line = Line {
            delivery: format!("dlv_{number:05}"),
            attempt: self.attempt,
            sent_at: time(self.sent),
            event: self.event.to_owned(),
            data: self.data.clone(),
        };
        serde_json::to_string(&line).expect("a line has only strings and numbers")
    }
}

/// Milliseconds after nine o'clock on the day of the log.
fn time(ms: u64) -> String {
    let (s, ms) = (ms / 1_000, ms % 1_000);
    let (h, m, s) = (9 + s / 3_600, s / 60 % 60, s % 60);
    format!("2026-03-02T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

/// The line with this text in place of its amount.
fn with_amount(line: &str, amount: &str) -> Vec<u8> {
    let (before, rest) = line
        .split_once("\"amount\":")
        .expect("only payments are damaged");
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}\"amount\":{amount}{after}").into_bytes()
}

/// Kinds of damage to a line.
const DAMAGES: [fn(&str) -> Vec<u8>; 14] = [
    // Cut off.
    |line| line.as_bytes()[..line.len() * 2 / 3].to_vec(),
    |line| with_amount(line, "\"12.50\""),
    // Empty.
    |_| Vec::new(),
    // Invalid UTF-8.
    |line| {
        let mut bytes = line.as_bytes().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] = 0xff;
        bytes
    },
    // A number that no integer type holds.
    |line| with_amount(line, "98765432109876543210"),
    |line| with_amount(line, "-1250"),
    |line| with_amount(line, "12.50"),
    |line| with_amount(line, "null"),
    // A field is missing.
    |line| line.replacen("\"delivery\"", "\"dlvry\"", 1).into_bytes(),
    // An unknown event.
    |line| line.replacen(".authorized", ".paused", 1).into_bytes(),
    // Two lines without a line break.
    |line| format!("{line}{line}").into_bytes(),
    // Blanks.
    |_| b"   \t".to_vec(),
    // Not JSON at all.
    |_| b"<html>502 Bad Gateway</html>".to_vec(),
    |line| with_amount(line, "0"),
];
