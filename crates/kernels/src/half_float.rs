//! Conversion of 16-bit floats by ordinary arithmetic without branches, in a form that compilers
//! vectorise.

/// The quiet NaN that is written for every NaN.
const F16_NAN: u16 = 0x7e00;
/// The same for bfloat16.
const BF16_NAN: u16 = 0x7fc0;

const F32_INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

/// The number itself, or the one NaN that is written for every NaN.
#[inline(always)]
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// The value of a binary16.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let half = u32::from(half);
    let sign = (half & 0x8000) << 16;
    let shifted = (half & 0x7fff) << 13;
    let exponent = half & 0x7c00;
    let subnormal = f32::from_bits(shifted + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL);
    let bias = if exponent == 0x7c00 {
        224 << 23
    } else {
        112 << 23
    };
    let bits = if exponent == 0 {
        subnormal.to_bits()
    } else {
        shifted + bias
    };
    f32::from_bits(bits | sign)
}

/// The nearest binary16, ties to even.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    const OVERFLOW: u32 = 0x477f_f000; // 65520, half-way between the largest binary16 and the next power of two
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    // The distance of neighbours near 0.5 is that of subnormal binary16 numbers: the addition
    // rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0xfff + odd).wrapping_sub(112 << 23) >> 13;
    let finite = if magnitude < SMALLEST_NORMAL {
        subnormal
    } else {
        normal
    };
    let number = if magnitude < OVERFLOW { finite } else { 0x7c00 };
    let signed = (number | ((bits & SIGN) >> 16)) as u16;
    if magnitude > F32_INFINITY {
        F16_NAN
    } else {
        signed
    }
}

/// The value of a bfloat16.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bfloat16, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    (rounded_bf16(value) >> 16) as u16
}

/// The nearest bfloat16 in the upper half, anything in the lower.
#[inline(always)]
pub(crate) fn rounded_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    if value.is_nan() {
        u32::from(BF16_NAN) << 16
    } else {
        bits.wrapping_add(0x7fff + odd)
    }
}

/// An `f32` that rounds to the same 16-bit float as `value` does: rounding to nearest twice would
/// not.
///
/// It is `value` rounded to odd: cut towards zero, the last bit set if anything was cut.
#[inline(always)]
pub(crate) fn f64_to_f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let away = u32::from(back.abs() > value.abs());
    let odd = nearest.to_bits().wrapping_sub(away) | 1;
    // A NaN differs from itself, and stays NaN with the last bit set.
    if back == value {
        nearest
    } else {
        f32::from_bits(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of floats of every exponent, near every rounding decision.
    fn interesting_f32() -> impl Iterator<Item = u32> {
        let patterns = [
            0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001,
            0x1_8000, 0x7f_ffff,
        ];
        (0..512u32).flat_map(move |top| {
            patterns
                .into_iter()
                .flat_map(move |low| [(top << 23) | low, (top << 23) | (0x7f_ffff ^ low)])
        })
    }

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32_const();
            let widened = f16_to_f32(bits);
            assert!(
                widened.to_bits() == expected.to_bits() || widened.is_nan() && expected.is_nan(),
                "{bits:#x}"
            );
            let narrowed = f32_to_f16(widened);
            assert_eq!(narrowed, if widened.is_nan() { F16_NAN } else { bits });
        }
    }

    #[test]
    fn every_bf16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let widened = bf16_to_f32(bits);
            let narrowed = f32_to_bf16(widened);
            assert_eq!(narrowed, if widened.is_nan() { BF16_NAN } else { bits });
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        for bits in interesting_f32() {
            let value = f32::from_bits(bits);
            if value.is_nan() {
                assert_eq!((f32_to_f16(value), f32_to_bf16(value)), (F16_NAN, BF16_NAN));
                continue;
            }
            assert_eq!(
                f32_to_f16(value),
                half::f16::from_f32_const(value).to_bits(),
                "{bits:#x}"
            );
            assert_eq!(
                f32_to_bf16(value),
                half::bf16::from_f32_const(value).to_bits(),
                "{bits:#x}"
            );
        }
    }
}
