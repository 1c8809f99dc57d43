//! Narrowing of floats without loss.

/// The half-precision bits of `value`, if the conversion is exact.
///
/// All NaNs become one, and −0.0 becomes 0.0.
pub(super) fn to_half(value: f32) -> Option<u16> {
    if value.is_nan() {
        return Some(0x7e00);
    }
    if value == 0.0 {
        return Some(0);
    }
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let fraction = bits & 0x007f_ffff;
    let biased = bits >> 23 & 0xff;
    let half = match biased {
        0xff => 0x7c00,
        // Exponents −14 to 15: a normal half, which keeps the upper 10 of 23 fraction bits.
        113..=142 if fraction.trailing_zeros() >= 13 => (biased - 112) << 10 | fraction >> 13,
        // Exponents −24 to −15: a subnormal half, a multiple of 2^−24.
        103..=112 => {
            let significand = fraction | 0x0080_0000;
            let shift = 126 - biased;
            if significand.trailing_zeros() < shift {
                return None;
            }
            significand >> shift
        }
        _ => return None,
    };
    u16::try_from(sign | half).ok()
}

/// `value` in single precision, if the conversion is exact. Every NaN qualifies.
pub(super) fn to_single(value: f64) -> Option<f32> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a loss is what the comparison below finds"
    )]
    let single = value as f32;
    (single.is_nan() || f64::from(single).to_bits() == value.to_bits()).then_some(single)
}

#[cfg(test)]
mod tests {
    use super::{to_half, to_single};

    /// The value of half-precision bits, computed rather than shifted.
    fn half_value(bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(bits >> 10 & 0x1f);
        let fraction = f64::from(bits & 0x3ff);
        sign * match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_half_comes_back_from_its_wider_forms() {
        for bits in 0..=u16::MAX {
            let value = half_value(bits);
            let single = to_single(value).expect("a half fits in a single");
            let expected = match bits {
                0x8000 => 0,
                _ if value.is_nan() => 0x7e00,
                _ => bits,
            };
            assert_eq!(to_half(single), Some(expected), "{bits:#06x}");
        }
    }

    #[test]
    fn neighbours_of_a_half_are_not_halves() {
        for bits in 0..=u16::MAX {
            let value = half_value(bits);
            if value.is_nan() {
                continue;
            }
            let single = to_single(value).expect("a half fits in a single");
            for neighbour in [single.next_up(), single.next_down()] {
                if neighbour.is_finite()
                    && neighbour != 0.0
                    && neighbour.to_bits() != single.to_bits()
                {
                    assert_eq!(to_half(neighbour), None, "{neighbour:e}");
                }
            }
        }
    }
}
