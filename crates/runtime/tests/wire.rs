//! Tests of wire formats: errors within the documented bounds, the same bits on all ranks, and
//! refused calls.

mod ranks;

use ranks::choices::choices;
use ranks::{Ranks, Rng, Setup, fresh_seed};
use weft_kernels::DType;
use weft_runtime::{Call, Counts, Error, Group, Op, Tiling, TransportChoice, Waited};
use weft_schedule::{Collective, WireFormat};
use weft_transport_testing::strict;

const FORMATS: [WireFormat; 4] = [
    WireFormat::Fp16,
    WireFormat::Bf16,
    WireFormat::Fp8E4m3,
    WireFormat::Fp8E5m2,
];

/// A call of `float32`.
#[derive(Clone, Debug)]
struct WireCall {
    collective: Collective,
    op: Op,
    algorithm: Option<String>,
    tile_bytes: Option<u64>,
    wire: Option<WireFormat>,
    in_place: bool,
}

impl WireCall {
    fn all_reduce(wire: WireFormat) -> Self {
        WireCall {
            collective: Collective::AllReduce,
            op: Op::Sum,
            algorithm: None,
            tile_bytes: None,
            wire: Some(wire),
            in_place: false,
        }
    }

    fn has_blocks(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllGather | Collective::ReduceScatter
        )
    }

    /// This rank's result.
    fn run(&self, group: &Group, input: &[f32]) -> Result<Vec<f32>, Error> {
        let ranks = group.size() as usize;
        let (mut input, mut output) = (
            input.to_vec(),
            match self.collective {
                Collective::AllGather => vec![-1.0; input.len() * ranks],
                Collective::ReduceScatter => vec![-1.0; input.len() / ranks],
                _ => vec![-1.0; input.len()],
            },
        );
        let in_place = self.in_place && !self.has_blocks();
        let count = match self.collective {
            Collective::ReduceScatter => output.len(),
            _ => input.len(),
        };
        let target = if in_place { &mut input } else { &mut output };
        let target = target.as_mut_ptr();
        let call = Call {
            collective: self.collective,
            dtype: DType::F32,
            op: self.op,
            input: if in_place {
                target.cast()
            } else {
                input.as_ptr().cast()
            },
            output: target.cast(),
            counts: Counts::Equal(count as u64),
            priority: 0,
            timeout: None,
            algorithm: self.algorithm.clone(),
            tiling: Tiling {
                tile_bytes: self.tile_bytes,
                tiles_in_flight: None,
            },
            wire: self.wire,
        };
        // SAFETY: the buffers live until the wait is over.
        let work = unsafe { group.issue(call, false) }?;
        assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
        Ok(if in_place { input } else { output })
    }
}

/// The error of one rounding: relative to the number, relative to the largest of its block, and
/// absolute.
fn rounding(wire: WireFormat) -> (f64, f64, f64) {
    match wire {
        WireFormat::Full => (0.0, 0.0, 0.0),
        WireFormat::Fp16 => (2_f64.powi(-11), 0.0, 2_f64.powi(-25)),
        WireFormat::Bf16 => (2_f64.powi(-8), 0.0, 2_f64.powi(-134)),
        WireFormat::Fp8E4m3 => (2_f64.powi(-4), 2_f64.powi(-17), 2_f64.powi(-136)),
        WireFormat::Fp8E5m2 => (2_f64.powi(-3), 2_f64.powi(-31), 2_f64.powi(-136)),
    }
}

/// The bound of docs/how-to/wire.md for element `at` of a sum of `ranks` numbers; `sums` are the
/// sums of magnitudes.
fn bound(wire: WireFormat, ranks: usize, sums: &[f64], at: usize) -> f64 {
    let (relative, of_block, least) = rounding(wire);
    // Covers the element's block for any beginning of blocks.
    let near = at.saturating_sub(127)..(at + 128).min(sums.len());
    let largest = sums[near].iter().fold(0.0_f64, |most, x| most.max(*x));
    let growth = (1.0 + relative).powi(ranks as i32);
    let accumulation = ranks as f64 * 2_f64.powi(-23);
    (growth - 1.0 + accumulation) * sums[at]
        + ranks as f64 * growth * (of_block * largest + least)
        + f64::from(f32::MIN_POSITIVE)
}

/// Numbers of many magnitudes whose sums do not overflow binary16.
fn elements(rank: usize, count: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed ^ (rank as u64 + 1) << 48);
    let mut number = || match rng.below(8) {
        0 => 0.0,
        1 => rng.float() * 1e-30,
        2 => rng.float() * 2_f32.powi(-24),
        3 => rng.float() * 4000.0,
        _ => rng.float(),
    };
    (0..count).map(|_| number()).collect()
}

/// A rank's exact result.
fn defined(call: &WireCall, inputs: &[Vec<f32>], rank: usize) -> Vec<f64> {
    let wide = |from: &[Vec<f32>]| from.iter().flatten().map(|x| f64::from(*x)).collect();
    let (ranks, elements) = (inputs.len(), inputs[0].len());
    let block = elements / ranks;
    let mine = match call.collective {
        Collective::AllGather => return wide(inputs),
        Collective::Broadcast { root } => return wide(&inputs[root as usize..=root as usize]),
        Collective::ReduceScatter => rank * block..(rank + 1) * block,
        _ => 0..elements,
    };
    let divisor = match call.op {
        Op::Average => ranks as f64,
        _ => 1.0,
    };
    let sum = |i: usize| inputs.iter().map(|input| f64::from(input[i])).sum::<f64>();
    mine.map(|i| sum(i) / divisor).collect()
}

fn check(call: &WireCall, setup: &Setup, ranks: u32, inputs: &[Vec<f32>], results: &[Vec<f32>]) {
    let what = format!("{call:?} on {:?} with {ranks} ranks", setup.transport);
    let wire = call.wire.unwrap_or_default();
    let magnitudes = |input: &Vec<f32>| input.iter().map(|x| x.abs()).collect();
    let magnitudes: Vec<Vec<f32>> = inputs.iter().map(magnitudes).collect();
    for (rank, result) in results.iter().enumerate() {
        if matches!(call.collective, Collective::Reduce { root } if root as usize != rank) {
            continue;
        }
        let expected = defined(call, inputs, rank);
        let sums = defined(call, &magnitudes, rank);
        for (at, (found, expected)) in result.iter().zip(&expected).enumerate() {
            let (error, allowed) = (
                (f64::from(*found) - expected).abs(),
                bound(wire, ranks as usize, &sums, at),
            );
            assert!(
                error <= allowed,
                "{what}: rank {rank}, element {at}: {found} instead of {expected}, {error:e} away, not {allowed:e}"
            );
        }
        let everywhere = !matches!(
            call.collective,
            Collective::ReduceScatter | Collective::Reduce { .. }
        );
        assert!(
            !everywhere || bits(result) == bits(&results[0]),
            "{what}: rank {rank} differs"
        );
    }
}

fn bits(elements: &[f32]) -> Vec<u32> {
    elements.iter().map(|x| x.to_bits()).collect()
}

/// Groups with some ranks that share no memory.
fn groups() -> Vec<(Setup, u32)> {
    vec![
        (TransportChoice::Tcp.into(), 2),
        (TransportChoice::Tcp.into(), 3),
        (TransportChoice::Custom(strict).into(), 4),
        (Setup::on_hosts(&[0, 0, 1, 1]), 4),
        (Setup::on_hosts(&[0, 1, 1, 0, 2]), 5),
    ]
}

/// Every algorithm that supports wire formats, and the default choice, in a 16-bit and an 8-bit
/// format.
fn calls(setup: &Setup, ranks: u32, seed: u64) -> Vec<WireCall> {
    let collectives = [
        Collective::AllReduce,
        Collective::Reduce { root: 1 },
        Collective::Broadcast { root: 1 },
        Collective::AllGather,
        Collective::ReduceScatter,
    ];
    let mut rng = Rng::new(seed);
    let mut calls = Vec::new();
    for collective in collectives {
        let named = (choices(setup, ranks).into_iter())
            .filter(|choice| choice.collective == collective.name())
            .map(|choice| Some(choice.name));
        for algorithm in named.chain([None]) {
            let [short, shorter] = [0, 2].map(|first| FORMATS[first + rng.below(2)]);
            for wire in [short, shorter] {
                calls.push(WireCall {
                    collective,
                    op: *rng.one_of(&[Op::Sum, Op::Average]),
                    algorithm: algorithm.clone(),
                    tile_bytes: *rng.one_of(&[None, Some(3000)]),
                    in_place: rng.below(2) == 0,
                    wire: Some(wire),
                });
            }
        }
    }
    calls
}

#[test]
fn errors_are_bounded_and_all_ranks_get_equal_bits() {
    let seed = fresh_seed();
    println!("seed {seed}");
    for (setup, ranks) in groups() {
        let calls = calls(&setup, ranks, seed);
        let count = |index: usize| [1, 130, 1003, 4001][index % 4] * ranks as usize;
        let inputs = |index: usize| -> Vec<Vec<f32>> {
            let of = |rank| elements(rank, count(index), seed + index as u64);
            (0..ranks as usize).map(of).collect()
        };
        let results = Ranks::run(setup.clone(), ranks, |group| {
            let run = |(index, call): (usize, &WireCall)| {
                let input = inputs(index).swap_remove(group.rank() as usize);
                call.run(group, &input)
                    .unwrap_or_else(|error| panic!("{call:?}: {error}"))
            };
            calls.iter().enumerate().map(run).collect::<Vec<Vec<f32>>>()
        });
        for (index, call) in calls.iter().enumerate() {
            let of_ranks: Vec<Vec<f32>> = results.iter().map(|all| all[index].clone()).collect();
            check(call, &setup, ranks, &inputs(index), &of_ranks);
        }
    }
}

#[test]
fn blocks_of_scaled_formats_do_not_depend_on_tiles() {
    let input = |rank: u32| elements(rank as usize, 20_011, 5);
    for wire in [WireFormat::Fp8E4m3, WireFormat::Fp8E5m2] {
        let results = Ranks::run(TransportChoice::Tcp, 3, |group| {
            let run = |tile_bytes| {
                let call = WireCall {
                    algorithm: Some("two-shot".into()),
                    tile_bytes,
                    ..WireCall::all_reduce(wire)
                };
                bits(&call.run(group, &input(group.rank())).unwrap())
            };
            let whole = run(None);
            [1, 1000, 5000].map(|tile_bytes| run(Some(tile_bytes)) == whole)
        });
        assert_eq!(results, [[true; 3]; 3], "{wire}");
    }
}

#[test]
fn infinities_nan_and_overflow_are_the_same_on_all_ranks() {
    for wire in FORMATS {
        let results = Ranks::run(TransportChoice::Tcp, 4, |group| {
            let mut input = vec![1.0_f32; 300];
            match group.rank() {
                1 => input[10] = f32::INFINITY,
                2 => (input[20], input[30]) = (f32::NAN, f32::NEG_INFINITY),
                _ => {}
            }
            input[200] = 60_000.0;
            WireCall::all_reduce(wire).run(group, &input).unwrap()
        });
        for result in &results {
            assert_eq!(bits(result), bits(&results[0]), "{wire}");
            let infinite = wire != WireFormat::Fp8E4m3;
            for (at, sign) in [(10, 1.0), (30, -1.0)] {
                let kept = result[at] == f32::INFINITY * sign;
                assert!(
                    if infinite { kept } else { result[at].is_nan() },
                    "{wire}: {}",
                    result[at]
                );
            }
            assert!(result[20].is_nan(), "{wire}");
            assert_eq!(
                result[200].is_infinite(),
                wire == WireFormat::Fp16,
                "{wire}"
            );
            assert_eq!(result[50], 4.0, "{wire}");
        }
    }
}

#[test]
fn wire_format_of_a_group_applies_to_its_sums() {
    let mut setup = Setup::from(TransportChoice::Tcp);
    setup.terms.policy.wire = WireFormat::Bf16;
    let third = |group: &Group| vec![1.0_f32 / (3.0 + group.rank() as f32); 100];
    Ranks::run(setup, 2, |group| {
        let sum = WireCall {
            wire: None,
            ..WireCall::all_reduce(WireFormat::Full)
        };
        let is_bf16 = |result: &[f32]| result.iter().all(|x| x.to_bits().trailing_zeros() >= 16);
        let run = |call: &WireCall| call.run(group, &third(group)).unwrap();
        assert!(is_bf16(&run(&sum)));
        assert!(!is_bf16(&run(&WireCall::all_reduce(WireFormat::Full))));
        for unrounded in [
            WireCall {
                op: Op::Max,
                ..sum.clone()
            },
            WireCall {
                collective: Collective::Broadcast { root: 0 },
                ..sum.clone()
            },
            WireCall {
                collective: Collective::AllGather,
                ..sum.clone()
            },
        ] {
            assert!(!is_bf16(&run(&unrounded)), "{unrounded:?}");
        }
        let child = group
            .split(&[1, 0], "child", Default::default())
            .unwrap()
            .unwrap();
        assert!(is_bf16(&sum.run(&child, &third(group)).unwrap()));
    });
}

#[test]
fn ranks_that_share_memory_use_full_precision() {
    let results = Ranks::run(TransportChoice::Shm, 3, |group| {
        let input = elements(group.rank() as usize, 5000, 3);
        let [full, bf16] = [WireFormat::Full, WireFormat::Bf16]
            .map(|wire| bits(&WireCall::all_reduce(wire).run(group, &input).unwrap()));
        full == bf16
    });
    assert_eq!(results, [true; 3]);
}

#[test]
fn unsupported_wire_formats_are_refused_by_name() {
    let reduced = WireCall::all_reduce(WireFormat::Fp16);
    let cases = [
        (
            WireCall {
                op: Op::Max,
                ..reduced.clone()
            },
            "wire=\"fp16\" is for sum, avg and premul_sum, not for max",
        ),
        (
            WireCall {
                collective: Collective::AllToAll,
                ..reduced.clone()
            },
            "wire=\"fp16\" is not for all-to-all: it is for all-reduce, reduce, reduce-scatter",
        ),
    ];
    Ranks::run(TransportChoice::Tcp, 2, |group| {
        for (call, expected) in &cases {
            let error = call.run(group, &[1.0; 2]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        reduced.run(group, &[1.0; 2]).unwrap();
    });
    let mut setup = Setup::from(TransportChoice::Tcp);
    setup.terms.policy.reproducible = true;
    Ranks::run(setup, 2, |group| {
        let error = reduced.run(group, &[1.0; 2]).unwrap_err().to_string();
        assert!(
            error.contains("with reproducible=True everything travels"),
            "{error}"
        );
    });
}
