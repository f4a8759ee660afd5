//! Reference results of reductions: exact for integers, within the rounding error bound for floats.

use weft_kernels::DType;
use weft_runtime::Op;

use super::Rng;

/// The factors of PremulSum, by rank.
const FACTORS: [f64; 9] = [0.5, -1.25, 2.0, 1.0, -0.3, 3.0, 0.1, -2.0, 0.75];

pub(crate) fn factor(rank: usize) -> f64 {
    FACTORS[rank % FACTORS.len()]
}

/// The operations that are defined for elements of a type on this many ranks.
pub(crate) fn ops(dtype: DType, ranks: u32) -> Vec<Op> {
    let all = [
        Op::Sum,
        Op::Average,
        Op::AverageOf(6),
        Op::Product,
        Op::Min,
        Op::Max,
        Op::BitAnd,
        Op::BitOr,
        Op::BitXor,
        Op::PremulSum(1.0),
    ];
    let defined =
        |op: &Op| op.refusal(dtype).is_none() && (ranks > 1 || !matches!(op, Op::AverageOf(_)));
    all.into_iter().filter(defined).collect()
}

/// The divisor of the sum of this many contributions.
fn divisor(op: Op, ranks: usize) -> u32 {
    match op {
        Op::Average => ranks as u32,
        Op::AverageOf(contributions) => contributions,
        _ => 1,
    }
}

/// Elements to reduce. Sums and products of a few floats stay in range; some are special values.
pub(crate) fn elements(dtype: DType, op: Op, count: usize, rng: &mut Rng) -> Vec<u8> {
    const SPECIAL: [f64; 5] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    if dtype == DType::Bool {
        return (0..count).map(|_| (rng.next() >> 63) as u8).collect();
    }
    if !dtype.is_float() {
        return any_bytes(count * dtype.size(), rng);
    }
    let mut element = || match rng.below(32) {
        0 => *rng.one_of(&SPECIAL),
        _ => {
            let x = f64::from(rng.float());
            // Products: between 1/2 and 2.
            if op == Op::Product {
                x.signum() * 2f64.powf(x)
            } else {
                x
            }
        }
    };
    from_floats(dtype, &(0..count).map(|_| element()).collect::<Vec<f64>>())
}

pub(crate) fn any_bytes(count: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let (words, rest) = bytes.as_chunks_mut();
    words
        .iter_mut()
        .for_each(|word| *word = rng.next().to_le_bytes());
    rest.copy_from_slice(&rng.next().to_le_bytes()[..rest.len()]);
    bytes
}

/// Elements of a type, rounded.
pub(crate) fn from_floats(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * dtype.size()];
    let (dst, src) = (bytes.as_mut_ptr(), values.as_ptr().cast());
    // SAFETY: both have this length.
    unsafe { weft_kernels::convert(DType::F64, dtype, &[dst], src, values.len()) };
    bytes
}

/// The exact values.
pub(crate) fn to_floats(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0_f64; bytes.len() / dtype.size()];
    let (dst, src) = (values.as_mut_ptr().cast(), bytes.as_ptr());
    // SAFETY: both have this length.
    unsafe { weft_kernels::convert(dtype, DType::F64, &[dst], src, values.len()) };
    values
}

fn to_integers(dtype: DType, bytes: &[u8]) -> Vec<i128> {
    fn widened<const N: usize>(bytes: &[u8], widen: impl Fn([u8; N]) -> i128) -> Vec<i128> {
        bytes.as_chunks().0.iter().map(|one| widen(*one)).collect()
    }
    match dtype {
        DType::I64 => widened(bytes, |one| i64::from_le_bytes(one).into()),
        DType::I32 => widened(bytes, |one| i32::from_le_bytes(one).into()),
        DType::I16 => widened(bytes, |one| i16::from_le_bytes(one).into()),
        DType::I8 => widened(bytes, |one| i8::from_le_bytes(one).into()),
        DType::U64 => widened(bytes, |one| u64::from_le_bytes(one).into()),
        DType::U32 => widened(bytes, |one| u32::from_le_bytes(one).into()),
        DType::U16 => widened(bytes, |one| u16::from_le_bytes(one).into()),
        _ => widened(bytes, |[one]| one.into()),
    }
}

/// Wraps to the range of a type.
fn fit(dtype: DType, value: i128) -> i128 {
    let unused = 128 - 8 * dtype.size() as u32;
    match dtype {
        DType::I64 | DType::I32 | DType::I16 | DType::I8 => value << unused >> unused,
        _ => ((value as u128) << unused >> unused) as i128,
    }
}

/// Panics unless `found` is a reduction of the contributions.
pub(crate) fn check(dtype: DType, op: Op, contributions: &[Vec<u8>], found: &[u8]) {
    if dtype.is_float() {
        check_floats(dtype, op, contributions, &to_floats(dtype, found));
    } else {
        check_integers(dtype, op, contributions, &to_integers(dtype, found));
    }
}

fn check_integers(dtype: DType, op: Op, contributions: &[Vec<u8>], found: &[i128]) {
    let mut expected: Vec<i128> = Vec::new();
    for (rank, bytes) in contributions.iter().enumerate() {
        let mut values = to_integers(dtype, bytes);
        if matches!(op, Op::PremulSum(_)) {
            values
                .iter_mut()
                .for_each(|x| *x = scaled(dtype, *x, factor(rank)));
        }
        if rank == 0 {
            expected = values;
            continue;
        }
        for (a, b) in expected.iter_mut().zip(values) {
            *a = fit(dtype, combined(dtype, op, *a, b));
        }
    }
    let divisor = i128::from(divisor(op, contributions.len()));
    if divisor > 1 {
        expected.iter_mut().for_each(|x| *x /= divisor);
    }
    assert_eq!(found.len(), expected.len());
    if let Some(i) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        panic!("element {i} is {} instead of {}", found[i], expected[i]);
    }
}

fn combined(dtype: DType, op: Op, a: i128, b: i128) -> i128 {
    match op {
        Op::Sum | Op::PremulSum(_) if dtype == DType::Bool => a | b,
        Op::Sum | Op::Average | Op::AverageOf(_) | Op::PremulSum(_) => a + b,
        // Modulo 2^128 suffices for at most 64 bits.
        Op::Product => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::BitAnd => a & b,
        Op::BitOr => a | b,
        Op::BitXor => a ^ b,
    }
}

/// Multiplied as `f64`, truncated towards zero, limited to the range of the type.
fn scaled(dtype: DType, value: i128, factor: f64) -> i128 {
    let product = value as f64 * factor;
    match dtype {
        DType::Bool => i128::from(product != 0.0),
        DType::I64 => (product as i64).into(),
        DType::I32 => (product as i32).into(),
        DType::I16 => (product as i16).into(),
        DType::I8 => (product as i8).into(),
        DType::U64 => (product as u64).into(),
        DType::U32 => (product as u32).into(),
        DType::U16 => (product as u16).into(),
        _ => (product as u8).into(),
    }
}

fn check_floats(dtype: DType, op: Op, contributions: &[Vec<u8>], found: &[f64]) {
    let ranks = contributions.len();
    let mut values: Vec<Vec<f64>> = contributions.iter().map(|c| to_floats(dtype, c)).collect();
    if matches!(op, Op::PremulSum(_)) {
        for (rank, values) in values.iter_mut().enumerate() {
            values.iter_mut().for_each(|x| *x *= factor(rank));
        }
    }
    let (relative, absolute) = roundings(dtype, ranks);
    for (i, found) in found.iter().enumerate() {
        let column = || values.iter().map(|values| values[i]);
        let (expected, scale) = match op {
            Op::Product => {
                let product: f64 = column().product();
                (product, product.abs())
            }
            Op::Min => (smallest(column()), 0.0),
            Op::Max => (-smallest(column().map(|x| -x)), 0.0),
            _ => {
                let share = 1.0 / f64::from(divisor(op, ranks));
                let magnitudes: f64 = column().map(f64::abs).sum();
                (column().sum::<f64>() * share, magnitudes * share)
            }
        };
        let exact = matches!(op, Op::Min | Op::Max) || !expected.is_finite();
        let bound = if exact {
            0.0
        } else {
            scale * relative + absolute
        };
        let right = (found.is_nan() && expected.is_nan())
            || *found == expected
            || (found - expected).abs() <= bound;
        assert!(
            right,
            "element {i} is {found} instead of {expected} +- {bound}"
        );
    }
}

/// The smallest, or NaN if there is one.
fn smallest(column: impl Iterator<Item = f64>) -> f64 {
    column.fold(
        f64::INFINITY,
        |a, b| if b.is_nan() || b < a { b } else { a },
    )
}

/// A bound of the rounding error, relative to the sum of magnitudes (or to the product), and
/// absolute.
///
/// An element is rounded once when it is scaled, at most once for every further rank in any order
/// of summation, and twice for an average. Below the normal range, the error of a rounding is at
/// most half the smallest number.
fn roundings(dtype: DType, ranks: usize) -> (f64, f64) {
    let (unit, smallest) = match dtype {
        // The reference has the same error.
        DType::F64 => (2f64.powi(-52), 0.0),
        DType::F32 => (2f64.powi(-24), 2f64.powi(-149)),
        DType::F16 => (2f64.powi(-11), 2f64.powi(-24)),
        _ => (2f64.powi(-8), 2f64.powi(-133)),
    };
    let count = ranks as f64 + 3.0;
    (count * unit / (1.0 - count * unit), count * smallest)
}
