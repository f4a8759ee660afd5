//! Conversion between representations, and reduction over several, at every level of instructions
//! that this processor has.

use proptest::prelude::*;
use weft_kernels::{
    DType, Finish, Float8, IsaLevel, ReduceOp, Representation, Represented, SCALED_BLOCK,
};

const PLAIN: Representation = Representation::Plain(DType::F32);
const CONTRIBUTIONS: u32 = 8;
const OTHERS: [Representation; 5] = [
    Representation::Plain(DType::F16),
    Representation::AveragedF16(CONTRIBUTIONS),
    Representation::Plain(DType::Bf16),
    Representation::Scaled(Float8::E4m3),
    Representation::Scaled(Float8::E5m2),
];

fn represented<P>(address: P, representation: Representation) -> Represented<P> {
    Represented {
        address,
        representation,
    }
}

fn encode(level: IsaLevel, to: Representation, elements: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xee; to.bytes(elements.len())];
    let dst = represented(bytes.as_mut_ptr(), to);
    let src = represented(elements.as_ptr().cast(), PLAIN);
    // SAFETY: both have the length of the elements, and the level is available.
    unsafe { level.represent(dst, src, elements.len()) };
    bytes
}

fn decode(level: IsaLevel, from: Representation, bytes: &[u8], elements: usize) -> Vec<f32> {
    let mut decoded = vec![-1.0_f32; elements];
    let dst = represented(decoded.as_mut_ptr().cast(), PLAIN);
    let src = represented(bytes.as_ptr(), from);
    // SAFETY: both have the length of the elements, and the level is available.
    unsafe { level.represent(dst, src, elements) };
    decoded
}

/// As every level encodes and decodes.
fn rounded(representation: Representation, elements: &[f32]) -> Vec<f32> {
    let at = |level: IsaLevel| {
        let bytes = encode(level, representation, elements);
        (decode(level, representation, &bytes, elements.len()), bytes)
    };
    let (decoded, bytes) = at(IsaLevel::Portable);
    for level in IsaLevel::available() {
        let (others, other_bytes) = at(*level);
        assert_eq!(other_bytes, bytes, "{level}");
        assert_eq!(bits(&others), bits(&decoded), "{level}");
    }
    decoded
}

fn bits(elements: &[f32]) -> Vec<u32> {
    elements.iter().map(|x| x.to_bits()).collect()
}

/// The error of one rounding, relative to the element, and at least, where `largest` is the
/// largest magnitude of its block.
fn bound(representation: Representation, element: f32, largest: f32) -> f64 {
    let (relative, least) = match representation {
        Representation::AveragedF16(of) if element.abs() >= 65520.0 => {
            ((f64::from(of).log2() + 1.0) / 1022.0, 0.0)
        }
        Representation::AveragedF16(_) | Representation::Plain(DType::F16) => {
            (2_f64.powi(-11), 2_f64.powi(-25))
        }
        Representation::Plain(_) => (2_f64.powi(-8), 2_f64.powi(-134)),
        Representation::Scaled(Float8::E4m3) => {
            (2_f64.powi(-4), f64::from(largest) * 2_f64.powi(-17))
        }
        Representation::Scaled(Float8::E5m2) => {
            (2_f64.powi(-3), f64::from(largest) * 2_f64.powi(-31))
        }
    };
    let least = least.max(2_f64.powi(-136));
    (f64::from(element).abs() * relative).max(least)
}

/// Numbers of every magnitude that the narrowest exponent has, and some beyond.
fn element() -> impl Strategy<Value = f32> {
    let wide = (-140_i32..100, -1.0_f32..1.0).prop_map(|(exponent, x)| x * 2_f32.powi(exponent));
    let beyond_f16 = -6e5_f32..6e5;
    prop_oneof![4 => wide, 4 => -4.0_f32..4.0, 1 => beyond_f16, 1 => Just(0.0_f32), 1 => Just(-0.0_f32)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rounds_once_within_bound_then_no_more(
        elements in prop::collection::vec(element(), 0..700),
        which in 0..OTHERS.len(),
    ) {
        let representation = OTHERS[which];
        let once = rounded(representation, &elements);
        prop_assert_eq!(bits(&rounded(representation, &once)), bits(&once));
        for (block, (given, found)) in elements.chunks(SCALED_BLOCK).zip(once.chunks(SCALED_BLOCK)).enumerate() {
            let largest = given.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (x, y) in given.iter().zip(found) {
                let overflows = match representation {
                    Representation::Plain(DType::F16) => x.abs() >= 65520.0,
                    Representation::AveragedF16(of) => x.abs() > 65536.0 * of as f32,
                    _ => false,
                };
                let error = (f64::from(*x) - f64::from(*y)).abs();
                let allowed = bound(representation, *x, largest);
                prop_assert!(
                    if overflows { y.is_infinite() } else { error <= allowed },
                    "{representation:?}, block {block}: {x:e} became {y:e}, more than {allowed:e} away"
                );
            }
        }
    }

    #[test]
    fn reduces_as_if_everything_were_converted_before(
        elements in 1_usize..1500,
        kinds in prop::collection::vec(0..=OTHERS.len(), 1..20),
        to in prop::collection::vec(0..=OTHERS.len(), 1..3),
        average in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let kind = |which: usize| OTHERS.get(which).copied().unwrap_or(PLAIN);
        let value = |source: usize, i: usize| {
            let mixed = (seed as usize + source * 7919 + i * 104_729) % 10_007;
            (mixed as f32 - 5003.0) / 97.0
        };
        let vectors: Vec<Vec<f32>> = (0..kinds.len())
            .map(|source| (0..elements).map(|i| value(source, i)).collect())
            .collect();
        let finish = if average { Finish::Average(kinds.len() as u32) } else { Finish::Keep };
        for level in IsaLevel::available() {
            let encoded: Vec<Vec<u8>> =
                kinds.iter().zip(&vectors).map(|(which, v)| encode(*level, kind(*which), v)).collect();
            let decoded: Vec<Vec<f32>> =
                kinds.iter().zip(&encoded).map(|(which, b)| decode(*level, kind(*which), b, elements)).collect();
            let mut expected = vec![0.0_f32; elements];
            let pointers: Vec<*const u8> = decoded.iter().map(|v| v.as_ptr().cast()).collect();
            // SAFETY: all have this length, and the level is available.
            unsafe {
                level.reduce(DType::F32, ReduceOp::Sum, &[expected.as_mut_ptr().cast()], &pointers, elements, finish);
            }
            let mut outputs: Vec<Vec<u8>> = to.iter().map(|which| vec![0xee; kind(*which).bytes(elements)]).collect();
            let dsts: Vec<_> =
                outputs.iter_mut().zip(&to).map(|(o, which)| represented(o.as_mut_ptr(), kind(*which))).collect();
            let srcs: Vec<_> =
                encoded.iter().zip(&kinds).map(|(b, which)| represented(b.as_ptr(), kind(*which))).collect();
            // SAFETY: all have this length, and the level is available.
            unsafe { level.reduce_represented(DType::F32, ReduceOp::Sum, &dsts, &srcs, elements, finish) };
            for (output, which) in outputs.iter().zip(&to) {
                prop_assert_eq!(output, &encode(*level, kind(*which), &expected), "{}", level);
            }
        }
    }
}

#[test]
fn infinities_and_nan_stay_apart_from_their_block() {
    for representation in OTHERS {
        let mut elements = vec![1.5_f32; 200];
        (elements[3], elements[5], elements[7]) = (f32::INFINITY, f32::NEG_INFINITY, -f32::NAN);
        let found = rounded(representation, &elements);
        let infinite = representation != Representation::Scaled(Float8::E4m3);
        for (place, sign) in [(3, 1.0), (5, -1.0)] {
            let kept = found[place] == f32::INFINITY * sign;
            assert!(
                if infinite {
                    kept
                } else {
                    found[place].is_nan()
                },
                "{representation:?}"
            );
        }
        assert_eq!(found[7].to_bits(), f32::NAN.to_bits(), "{representation:?}");
        let others = (0..200).filter(|i| ![3, 5, 7].contains(i));
        assert!(
            others.map(|i| found[i]).all(|x| x == 1.5),
            "{representation:?}"
        );
    }
}
