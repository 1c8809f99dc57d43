//! Amounts, formatted for people.

use std::collections::BTreeMap;
use std::fmt;

/// Sums, one for each currency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<String, i64>);

impl Sums {
    pub(crate) fn add(&mut self, currency: &str, amount: i64) {
        *self.0.entry(currency.to_owned()).or_default() += amount;
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.values().all(|amount| *amount == 0)
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, (currency, amount)) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { " + " };
            let sign = if *amount < 0 { "-" } else { "" };
            let (whole, rest) = (amount.unsigned_abs() / 100, amount.unsigned_abs() % 100);
            write!(
                f,
                "{separator}{sign}{}.{rest:02} {currency}",
                thousands(whole)
            )?;
        }
        Ok(())
    }
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
