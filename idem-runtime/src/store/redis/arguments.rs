//! Arguments of commands and scripts.

use std::time::Duration;

/// A number as text, as Redis takes it.
#[derive(Clone, Copy)]
pub(super) struct Decimal {
    digits: [u8; 20],
    begin: usize,
}

impl Decimal {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.begin..]
    }
}

/// Redis takes numbers as text.
pub(super) fn decimal(mut number: u64) -> Decimal {
    let mut text = Decimal {
        digits: [b'0'; 20],
        begin: 20,
    };
    loop {
        text.begin -= 1;
        text.digits[text.begin] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return text;
        }
    }
}

/// A duration in milliseconds, as Redis takes it. The bounds of the policy keep it far below the limit.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_those_of_the_standard_library() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        for number in powers
            .flat_map(|power| [power - 1, power, power + 1])
            .chain([u64::MAX])
        {
            assert_eq!(decimal(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
