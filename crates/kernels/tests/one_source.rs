//! Copies, conversions and scaling against the oracle, at every level of instructions that this
//! processor has.

mod oracle;

use oracle::{GuardedBuffer, OracleNumber, decode, dtypes, elements, encode};
use proptest::prelude::*;
use weft_kernels::{DType, IsaLevel, convert, copy, copy_past_caches, scale};

fn floats() -> impl Strategy<Value = DType> {
    dtypes().prop_filter("a float", |dtype| dtype.is_float())
}

/// Elements of a type, and their distance from an aligned address.
fn placed(dtype: DType) -> impl Strategy<Value = (Vec<u8>, usize)> {
    (0usize..300).prop_flat_map(move |count| (elements(dtype, count), 0usize..64))
}

fn check_convert(from: DType, to: DType, src: &[u8], misalignment: usize, copies: usize) {
    let values = src
        .chunks_exact(from.size())
        .map(|bytes| decode(from, bytes));
    let expected: Vec<u8> = if from == to {
        src.to_vec()
    } else {
        values.flat_map(|number| encode(to, number)).collect()
    };
    for level in IsaLevel::available() {
        let mut source = GuardedBuffer::new(src, misalignment);
        let mut results: Vec<_> = (0..copies)
            .map(|i| GuardedBuffer::new(&vec![0; expected.len()], i))
            .collect();
        let dsts: Vec<*mut u8> = results.iter_mut().map(GuardedBuffer::pointer).collect();
        // SAFETY: as many elements of each type, nothing overlaps, and the level is available.
        unsafe { level.convert(from, to, &dsts, source.pointer(), src.len() / from.size()) };
        assert!(
            results.iter().all(|result| result.bytes() == expected),
            "{from} to {to}, {level}"
        );
        if to.size() <= from.size() {
            let dst = source.pointer();
            // SAFETY: as above; the destination begins where the source does.
            unsafe { level.convert(from, to, &[dst], dst, src.len() / from.size()) };
            assert_eq!(
                &source.bytes()[..expected.len()],
                expected,
                "in place, {from} to {to}, {level}"
            );
        }
    }
}

fn check_scale(dtype: DType, src: &[u8], misalignment: usize, factor: f64) {
    let scaled = |bytes: &[u8]| {
        let number = match decode(dtype, bytes) {
            OracleNumber::Float(value) if dtype == DType::F64 => {
                OracleNumber::Float(value * factor)
            }
            OracleNumber::Float(value) => {
                OracleNumber::Float((value as f32 * factor as f32).into())
            }
            OracleNumber::Integer(value) if dtype == DType::Bool => {
                OracleNumber::Integer(i128::from(value as f64 * factor != 0.0))
            }
            OracleNumber::Integer(value) => limited(dtype, value as f64 * factor),
        };
        encode(dtype, number)
    };
    let expected: Vec<u8> = src.chunks_exact(dtype.size()).flat_map(scaled).collect();
    for level in IsaLevel::available() {
        let mut source = GuardedBuffer::new(src, misalignment);
        let mut result = GuardedBuffer::new(&vec![0; src.len()], 1);
        let from = source.pointer();
        // SAFETY: both of this many elements, and the level is available.
        unsafe {
            level.scale(
                dtype,
                result.pointer(),
                from,
                src.len() / dtype.size(),
                factor,
            )
        };
        assert_eq!(result.bytes(), expected, "{dtype}, {level}");
        // SAFETY: as above; the destination is the source.
        unsafe { level.scale(dtype, from, from, src.len() / dtype.size(), factor) };
        assert_eq!(source.bytes(), expected, "in place, {dtype}, {level}");
    }
}

/// Cuts towards zero, within the range of the type.
fn limited(dtype: DType, value: f64) -> OracleNumber {
    let bits = 8 * dtype.size() as u32;
    let signed = matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8);
    let (least, most) = if signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    OracleNumber::Integer((value as i128).clamp(least, most))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    #[test]
    fn converts_rounding_once(
        ((from, src, misalignment), to, copies) in (
            floats().prop_flat_map(|from| placed(from).prop_map(move |(src, misalignment)| (from, src, misalignment))),
            floats(),
            0usize..4,
        )
    ) {
        check_convert(from, to, &src, misalignment, copies);
    }

    #[test]
    fn scales_as_defined(
        (dtype, src, misalignment) in
            dtypes().prop_flat_map(|dtype| placed(dtype).prop_map(move |(src, misalignment)| (dtype, src, misalignment))),
        factor in prop_oneof![Just(0.0), Just(1.0), Just(1.0 / 3.0), -3.0f64..3.0, Just(1e9)],
    ) {
        check_scale(dtype, &src, misalignment, factor);
    }

    #[test]
    fn copies_to_all(
        bytes in 0usize..40_000,
        misalignment in 0usize..64,
        copies in 0usize..4,
        onto_itself: bool,
        past_caches: bool,
    ) {
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut source = GuardedBuffer::new(&content, misalignment);
        let mut results: Vec<_> = (0..copies).map(|i| GuardedBuffer::new(&vec![0; bytes], i)).collect();
        let mut dsts: Vec<*mut u8> = results.iter_mut().map(GuardedBuffer::pointer).collect();
        let src = source.pointer();
        dsts.extend(onto_itself.then_some(src));
        let copy = if past_caches { copy_past_caches } else { copy };
        // SAFETY: all of this many bytes, and separate, except for the source itself.
        unsafe { copy(&dsts, src, bytes) };
        prop_assert!(results.iter().chain([&source]).all(|memory| memory.bytes() == content));
    }
}

/// Numbers of every size, at and beside the points where the direction of rounding changes.
#[test]
fn converts_numbers_near_rounding_borders() {
    let tops = if cfg!(miri) { 100..102 } else { 0..512u32 };
    let lows = [
        0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0x1_8000,
        0x7f_ffff,
    ];
    let bits = tops.flat_map(|top| {
        lows.into_iter()
            .flat_map(move |low| [low, 0x7f_ffff ^ low].map(|low| top << 23 | low))
    });
    let near: Vec<f32> = bits.map(f32::from_bits).collect();
    let beside = |x: &f32| {
        [
            f64::from(*x),
            f64::from(*x).next_up(),
            f64::from(*x).next_down(),
        ]
    };
    let doubles: Vec<u8> = near
        .iter()
        .flat_map(beside)
        .flat_map(f64::to_le_bytes)
        .collect();
    let singles: Vec<u8> = near.iter().flat_map(|x| x.to_le_bytes()).collect();
    let halves: Vec<u8> = (0..=u16::MAX)
        .step_by(if cfg!(miri) { 997 } else { 1 })
        .flat_map(u16::to_le_bytes)
        .collect();
    for (from, src) in [
        (DType::F64, &doubles),
        (DType::F32, &singles),
        (DType::F16, &halves),
        (DType::Bf16, &halves),
    ] {
        for to in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
            check_convert(from, to, src, 0, 1);
        }
    }
}

#[test]
fn free_functions_take_the_best_level() {
    let (src, mut half, mut back) = ([1.5f32, -2.0, 65536.0], [0u16; 3], [0f32; 3]);
    let half_at = half.as_mut_ptr().cast::<u8>();
    // SAFETY: three elements each.
    unsafe { convert(DType::F32, DType::F16, &[half_at], src.as_ptr().cast(), 3) };
    // SAFETY: three elements each.
    unsafe {
        convert(
            DType::F16,
            DType::F32,
            &[back.as_mut_ptr().cast()],
            half_at,
            3,
        )
    };
    assert_eq!(back, [1.5, -2.0, f32::INFINITY]);
    let at = back.as_mut_ptr().cast::<u8>();
    // SAFETY: two elements each.
    unsafe { scale(DType::F32, at, at, 2, 2.0) };
    assert_eq!(back[..2], [3.0, -4.0]);
}

#[test]
#[should_panic(expected = "no conversion from int32 to float32")]
fn converting_integers_is_refused() {
    // SAFETY: no elements.
    unsafe { convert(DType::I32, DType::F32, &[], std::ptr::null(), 0) };
}
