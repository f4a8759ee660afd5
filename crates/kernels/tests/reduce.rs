//! Reductions against the oracle, at every level of instructions that this processor has.

mod oracle;

use oracle::{GuardedBuffer, OracleNumber, decode, dtypes, elements, reduced};
use proptest::prelude::*;
use weft_kernels::{DType, Finish, IsaLevel, ReduceOp, supports, supports_average};

/// A reduction to try.
#[derive(Clone, Debug)]
struct ReduceCase {
    dtype: DType,
    op: ReduceOp,
    finish: Finish,
    srcs: Vec<Vec<u8>>,
    /// Per destination: the source that it is, if any.
    dsts: Vec<Option<usize>>,
    misalignment: usize,
}

/// Runs the case at this level; returns the content of each destination.
fn run(case: &ReduceCase, level: IsaLevel) -> Vec<Vec<u8>> {
    let mut sources: Vec<_> = case
        .srcs
        .iter()
        .map(|src| GuardedBuffer::new(src, case.misalignment))
        .collect();
    let blank = vec![0xee; case.srcs[0].len()];
    let mut separate: Vec<_> = (0..case.dsts.len())
        .map(|i| GuardedBuffer::new(&blank, i + case.misalignment / 2))
        .collect();
    let pointers: Vec<*mut u8> = sources.iter_mut().map(GuardedBuffer::pointer).collect();
    let dsts: Vec<*mut u8> = case
        .dsts
        .iter()
        .zip(&mut separate)
        .map(|(alias, own)| alias.map_or_else(|| own.pointer(), |i| pointers[i]))
        .collect();
    let srcs: Vec<*const u8> = pointers
        .iter()
        .map(|pointer| pointer.cast_const())
        .collect();
    let count = blank.len() / case.dtype.size();
    // SAFETY: all of the same length; destinations are sources or separate, and the level is
    // available.
    unsafe { level.reduce(case.dtype, case.op, &dsts, &srcs, count, case.finish) };
    for (i, (source, before)) in sources.iter().zip(&case.srcs).enumerate() {
        let unchanged = source.bytes() == before;
        assert!(
            unchanged || case.dsts.contains(&Some(i)),
            "source {i} was written"
        );
    }
    let holds = |(alias, own): (&Option<usize>, &GuardedBuffer)| {
        alias.map_or(own, |i| &sources[i]).bytes().to_vec()
    };
    case.dsts.iter().zip(&separate).map(holds).collect()
}

fn check(case: &ReduceCase) {
    let expected = reduced(case.dtype, case.op, &case.srcs, case.finish);
    for level in IsaLevel::available() {
        for (i, result) in run(case, *level).iter().enumerate() {
            assert_eq!(result, &expected, "{level}, destination {i}");
        }
    }
}

fn finishes(dtype: DType, op: ReduceOp) -> BoxedStrategy<Finish> {
    if op == ReduceOp::Sum && supports_average(dtype) {
        prop_oneof![Just(Finish::Keep), (1u32..40).prop_map(Finish::Average)].boxed()
    } else {
        Just(Finish::Keep).boxed()
    }
}

/// Distinct destinations: some of them sources, in any order.
fn destinations(srcs: usize) -> impl Strategy<Value = Vec<Option<usize>>> {
    let order = Just((0..srcs).collect::<Vec<_>>()).prop_shuffle();
    (order, prop::collection::vec(any::<bool>(), 0..5)).prop_map(|(order, aliased)| {
        let mut order = order.into_iter();
        aliased
            .into_iter()
            .map(|alias| if alias { order.next() } else { None })
            .collect()
    })
}

fn cases() -> impl Strategy<Value = ReduceCase> {
    let operation = (dtypes(), prop::sample::select(ReduceOp::ALL.to_vec()));
    let operation = operation.prop_filter("supported", |(dtype, op)| supports(*dtype, *op));
    (operation, 1usize..8, 0usize..700).prop_flat_map(|((dtype, op), srcs, count)| {
        let contents = prop::collection::vec(elements(dtype, count), srcs);
        (
            finishes(dtype, op),
            contents,
            destinations(srcs),
            0usize..64,
        )
            .prop_map(move |(finish, srcs, dsts, misalignment)| ReduceCase {
                dtype,
                op,
                finish,
                srcs,
                dsts,
                misalignment,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    #[test]
    fn reduces_as_defined(case in cases()) {
        check(&case);
    }
}

#[test]
fn every_type_and_operation_at_every_length() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| supports(dtype, *op)) {
            for count in (0..20)
                .chain([63, 64, 65, 255, 256, 257, 300])
                .filter(|count| !cfg!(miri) || count % 64 == 1)
            {
                let bytes = count * dtype.size();
                let pattern = |seed: usize| {
                    (0..bytes)
                        .map(|i| (i * 37 + seed * 101 + i / 7) as u8)
                        .collect()
                };
                let srcs: Vec<Vec<u8>> = (0..3).map(pattern).collect();
                let dsts = vec![Some(1), None];
                check(&ReduceCase {
                    dtype,
                    op,
                    finish: Finish::Keep,
                    srcs,
                    dsts,
                    misalignment: 1,
                });
            }
        }
    }
}

/// The difference to exact arithmetic stays within the bound of rounding.
#[test]
fn sums_are_close_to_exact_sums() {
    for (dtype, sum_epsilon, result_epsilon) in [
        (DType::F64, f64::EPSILON, 0.0),
        (DType::F32, f32::EPSILON.into(), 0.0),
        (DType::F16, f32::EPSILON.into(), 2f64.powi(-11)),
        (DType::Bf16, f32::EPSILON.into(), 2f64.powi(-8)),
    ] {
        let value =
            |rank: usize, i: usize| ((rank * 7919 + i * 104_729) % 2003) as f64 / 64.0 - 15.0;
        let ranks = 33;
        let encoded = |rank| {
            (0..500)
                .flat_map(|i| oracle::encode(dtype, OracleNumber::Float(value(rank, i))))
                .collect()
        };
        let srcs: Vec<Vec<u8>> = (0..ranks).map(encoded).collect();
        let case = ReduceCase {
            dtype,
            op: ReduceOp::Sum,
            finish: Finish::Keep,
            srcs,
            dsts: vec![None],
            misalignment: 0,
        };
        let result = &run(&case, IsaLevel::best())[0];
        for i in 0..500 {
            let at = i * dtype.size()..(i + 1) * dtype.size();
            let float = |bytes: &[u8]| match decode(dtype, bytes) {
                OracleNumber::Float(value) => value,
                OracleNumber::Integer(_) => unreachable!("a float"),
            };
            let exact: f64 = case.srcs.iter().map(|src| float(&src[at.clone()])).sum();
            let magnitude: f64 = case
                .srcs
                .iter()
                .map(|src| float(&src[at.clone()]).abs())
                .sum();
            let bound =
                f64::from(ranks as u32) * sum_epsilon * magnitude + result_epsilon * exact.abs();
            assert!(
                (float(&result[at]) - exact).abs() <= bound,
                "{dtype}, element {i}"
            );
        }
    }
}

#[test]
fn sixteen_bit_sums_round_once() {
    // Rounding to binary16 after every addition would lose all the ones.
    let ones: Vec<u8> = half::f16::from_f32(1.0).to_le_bytes().to_vec();
    let large: Vec<u8> = half::f16::from_f32(2048.0).to_le_bytes().to_vec();
    let srcs = vec![large, ones.clone(), ones.clone(), ones.clone(), ones];
    let case = ReduceCase {
        dtype: DType::F16,
        op: ReduceOp::Sum,
        finish: Finish::Keep,
        srcs,
        dsts: vec![None],
        misalignment: 0,
    };
    let expected = half::f16::from_f32(2052.0).to_le_bytes().to_vec();
    assert_eq!(run(&case, IsaLevel::best()), [expected]);
}

#[test]
#[should_panic(expected = "bitxor is not for float32")]
fn bitwise_floats_are_refused() {
    let case = ReduceCase {
        dtype: DType::F32,
        op: ReduceOp::BitXor,
        finish: Finish::Keep,
        srcs: vec![vec![0; 4]; 2],
        dsts: vec![None],
        misalignment: 0,
    };
    run(&case, IsaLevel::Portable);
}

/// Programs may have set the processor to flush subnormal numbers to zero.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn subnormal_numbers_count_though_the_thread_flushes_them() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let subnormals: Vec<u8> = (1..100)
            .flat_map(|i: u64| i.to_le_bytes()[..dtype.size()].to_vec())
            .collect();
        let srcs = vec![subnormals; 3];
        let case = ReduceCase {
            dtype,
            op: ReduceOp::Sum,
            finish: Finish::Keep,
            srcs,
            dsts: vec![None],
            misalignment: 0,
        };
        let expected = reduced(dtype, case.op, &case.srcs, case.finish);
        let flush_and_run = || {
            let control = 0x9fc0u32;
            // SAFETY: sets flags of this thread's arithmetic; it does none before it ends.
            unsafe {
                std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack))
            };
            IsaLevel::available()
                .iter()
                .map(|level| run(&case, *level))
                .collect::<Vec<_>>()
        };
        let results =
            std::thread::scope(|scope| scope.spawn(flush_and_run).join().expect("no panic"));
        assert!(
            results.iter().all(|result| result[0] == expected),
            "{dtype}"
        );
    }
}
