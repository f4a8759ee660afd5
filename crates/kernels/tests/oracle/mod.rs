//! Oracle of the kernel tests: reference results, computed element by element, and guarded memory
//! for them.

#![allow(dead_code, reason = "each test file uses its part")]

use half::{bf16, f16};
use proptest::prelude::*;
use weft_kernels::{DType, Finish, ReduceOp};

/// An element's value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum OracleNumber {
    /// Of a floating-point type.
    Float(f64),
    /// Of an integer type or a boolean.
    Integer(i128),
}

pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> OracleNumber {
    let bits = bytes
        .iter()
        .rev()
        .fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    match dtype {
        DType::F64 => OracleNumber::Float(f64::from_bits(bits)),
        DType::F32 => OracleNumber::Float(f32::from_bits(bits as u32).into()),
        DType::F16 => OracleNumber::Float(f16::from_bits(bits as u16).to_f64_const()),
        DType::Bf16 => OracleNumber::Float(bf16::from_bits(bits as u16).to_f64_const()),
        DType::I64 => OracleNumber::Integer((bits as i64).into()),
        DType::I32 => OracleNumber::Integer((bits as i32).into()),
        DType::I16 => OracleNumber::Integer((bits as i16).into()),
        DType::I8 => OracleNumber::Integer((bits as i8).into()),
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => OracleNumber::Integer(bits.into()),
        DType::Bool => OracleNumber::Integer((bits != 0).into()),
    }
}

/// Rounds once, wraps, and makes every NaN the same.
pub(crate) fn encode(dtype: DType, number: OracleNumber) -> Vec<u8> {
    let bytes = match number {
        OracleNumber::Integer(value) => value.to_le_bytes().to_vec(),
        OracleNumber::Float(value) => match dtype {
            DType::F64 if value.is_nan() => 0x7ff8_0000_0000_0000u64.to_le_bytes().to_vec(),
            DType::F32 if value.is_nan() => 0x7fc0_0000u32.to_le_bytes().to_vec(),
            DType::F16 if value.is_nan() => 0x7e00u16.to_le_bytes().to_vec(),
            DType::Bf16 if value.is_nan() => 0x7fc0u16.to_le_bytes().to_vec(),
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F16 => nearest(value, |bits| f16::from_bits(bits).to_f64_const(), 0x7c00)
                .to_le_bytes()
                .to_vec(),
            _ => nearest(value, |bits| bf16::from_bits(bits).to_f64_const(), 0x7f80)
                .to_le_bytes()
                .to_vec(),
        },
    };
    bytes[..dtype.size()].to_vec()
}

/// The nearest 16-bit float, ties to even, found by bisection.
fn nearest(value: f64, widen: fn(u16) -> f64, infinity: u16) -> u16 {
    let magnitude = value.abs();
    let (mut below, mut above) = (0, infinity);
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        let fits = widen(middle) <= magnitude;
        (below, above) = if fits {
            (middle, above)
        } else {
            (below, middle)
        };
    }
    // Infinity stands for the power of two that would follow.
    let step = if above == infinity {
        widen(below) - widen(below - 1)
    } else {
        widen(above) - widen(below)
    };
    let half_way = widen(below) + step / 2.0;
    let up = magnitude > half_way || magnitude == half_way && below % 2 == 1;
    u16::from(value.is_sign_negative()) << 15 | if up { above } else { below }
}

/// Rounds to the type that elements are combined in.
fn settle(dtype: DType, number: OracleNumber) -> OracleNumber {
    match number {
        OracleNumber::Float(value) if dtype != DType::F64 => {
            OracleNumber::Float((value as f32).into())
        }
        OracleNumber::Float(_) => number,
        OracleNumber::Integer(_) => decode(dtype, &encode(dtype, number)),
    }
}

fn combine(dtype: DType, op: ReduceOp, a: OracleNumber, b: OracleNumber) -> OracleNumber {
    let combined = match (a, b) {
        (OracleNumber::Float(a), OracleNumber::Float(b)) => OracleNumber::Float(match op {
            // Sums and products of two f32 are exact in f64, or round in it without changing the
            // f32.
            ReduceOp::Sum => a + b,
            ReduceOp::Product => a * b,
            _ if a.is_nan() || b.is_nan() => f64::NAN,
            ReduceOp::Min => [a, b][usize::from(b < a)],
            ReduceOp::Max => [a, b][usize::from(b > a)],
            _ => unreachable!("bitwise operations are not for floats"),
        }),
        (OracleNumber::Integer(a), OracleNumber::Integer(b)) => OracleNumber::Integer(match op {
            ReduceOp::Sum if dtype == DType::Bool => a | b,
            ReduceOp::Sum => a + b,
            // Modulo 2^128 is enough for at most 64 bits.
            ReduceOp::Product => a.wrapping_mul(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
            ReduceOp::BitAnd => a & b,
            ReduceOp::BitOr => a | b,
            ReduceOp::BitXor => a ^ b,
        }),
        _ => unreachable!("elements of one type"),
    };
    settle(dtype, combined)
}

fn finished(dtype: DType, number: OracleNumber, finish: Finish) -> OracleNumber {
    let Finish::Average(contributions) = finish else {
        return number;
    };
    match number {
        OracleNumber::Integer(sum) => OracleNumber::Integer(sum / i128::from(contributions)),
        OracleNumber::Float(sum) => {
            let OracleNumber::Float(share) =
                settle(dtype, OracleNumber::Float(1.0 / f64::from(contributions)))
            else {
                unreachable!("a float")
            };
            settle(dtype, OracleNumber::Float(sum * share))
        }
    }
}

/// The expected result of a reduction.
pub(crate) fn reduced(dtype: DType, op: ReduceOp, srcs: &[Vec<u8>], finish: Finish) -> Vec<u8> {
    if srcs.len() == 1 && finish == Finish::Keep {
        return srcs[0].clone();
    }
    let size = dtype.size();
    let element = |i: usize| {
        let mut numbers = srcs
            .iter()
            .map(|src| decode(dtype, &src[i * size..][..size]));
        let first = numbers.next().expect("a source");
        let sum = numbers.fold(first, |a, b| combine(dtype, op, a, b));
        encode(dtype, finished(dtype, sum, finish))
    };
    (0..srcs[0].len() / size).flat_map(element).collect()
}

/// Bytes at an address of any alignment, with untouched bytes around them.
pub(crate) struct GuardedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl GuardedBuffer {
    const GUARD: u8 = 0xa5;

    /// A copy of `bytes`, this far from an aligned address.
    pub(crate) fn new(bytes: &[u8], misalignment: usize) -> GuardedBuffer {
        let mut memory = vec![Self::GUARD; bytes.len() + 256];
        let start = memory.as_ptr().align_offset(64) + 64 + misalignment;
        memory[start..][..bytes.len()].copy_from_slice(bytes);
        GuardedBuffer {
            memory,
            start,
            length: bytes.len(),
        }
    }

    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    /// Returns the bytes, after a check that nothing was written around them.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (before, rest) = self.memory.split_at(self.start);
        let (bytes, after) = rest.split_at(self.length);
        let untouched = before.iter().chain(after).all(|byte| *byte == Self::GUARD);
        assert!(untouched, "written out of bounds");
        bytes
    }
}

/// Elements that matter: any bits, small whole numbers, and extremes.
pub(crate) fn elements(dtype: DType, count: usize) -> BoxedStrategy<Vec<u8>> {
    let any_bits = any::<u64>().prop_map(move |bits| bits.to_le_bytes()[..dtype.size()].to_vec());
    let small = (-9i8..10).prop_map(move |value| {
        let number = if dtype.is_float() {
            OracleNumber::Float(value.into())
        } else {
            OracleNumber::Integer(value.into())
        };
        encode(dtype, number)
    });
    let extremes = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e-40,
        6e-8,
        65519.9,
        3e38,
    ];
    let extreme = prop::sample::select(extremes.to_vec()).prop_map(move |value| {
        let number = if dtype.is_float() {
            OracleNumber::Float(value)
        } else {
            OracleNumber::Integer(value as i128)
        };
        encode(dtype, number)
    });
    let element = prop_oneof![3 => any_bits, 3 => small, 1 => extreme];
    prop::collection::vec(element, count)
        .prop_map(|elements| elements.concat())
        .boxed()
}

pub(crate) fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL.to_vec())
}
