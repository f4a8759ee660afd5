//! Tests of reproducible groups: sums whose bits depend only on the contributions, not on
//! algorithm, tiles or placement.

mod ranks;

use ranks::arena::perform;
use ranks::case::Case;
use ranks::choices::choices;
use ranks::judge::named;
use ranks::{Ranks, Setup, fresh_seed, numbers};
use weft_kernels::DType;
use weft_runtime::{Op, Tiling, TransportChoice};
use weft_schedule::Collective;

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];

/// Blocks of a multiple of no tile size.
const COUNT: usize = 1013;

/// Placements of ranks: all on one host, all on different hosts, and in between.
fn placements(ranks: u32) -> Vec<Setup> {
    let hosts = |divide: fn(u32) -> u32| (0..ranks).map(divide).collect::<Vec<u32>>();
    let mut setups = vec![
        Setup::from(TransportChoice::Shm),
        Setup::from(TransportChoice::Loopback),
        Setup::from(TransportChoice::Tcp),
    ];
    if ranks > 2 {
        setups.push(Setup::on_hosts(&hosts(|rank| rank / 2)));
        setups.push(Setup::on_hosts(&hosts(|rank| rank % 2)));
        let levels = hosts(|rank| rank / 3);
        setups.push(Setup::from(TransportChoice::Shm).with_levels(&[&levels]));
    }
    for setup in &mut setups {
        setup.terms.policy.reproducible = true;
    }
    setups
}

/// All reproducible algorithms in a group, whole and in small tiles, and the default choice.
fn cases(setup: &Setup, ranks: u32, collective: Collective, seed: u64) -> Vec<Case> {
    let name = collective.name();
    let mut names: Vec<Option<String>> = (choices(setup, ranks).into_iter())
        .filter(|choice| choice.collective == name && choice.requires.reproducible)
        .map(|choice| Some(choice.name))
        .collect();
    assert!(!names.is_empty(), "nothing is reproducible for {name}");
    names.push(None);
    let mut cases = Vec::new();
    for (number, algorithm) in names.into_iter().enumerate() {
        for (index, (dtype, op)) in (FLOATS.into_iter())
            .flat_map(|dtype| [(dtype, Op::Sum), (dtype, Op::Average)])
            .enumerate()
        {
            for tile_bytes in [None, Some(200 + 72 * index as u64)] {
                cases.push(Case {
                    algorithm: algorithm.clone(),
                    tiling: Tiling {
                        tile_bytes,
                        tiles_in_flight: None,
                    },
                    dtype,
                    op,
                    in_place: number.is_multiple_of(2),
                    seed,
                    ..Case::simple(collective, COUNT)
                });
            }
        }
    }
    cases
}

/// The bits of all ranks' results.
fn result(case: &Case, outputs: &[Vec<u8>]) -> Vec<u8> {
    match case.collective {
        Collective::Reduce { root } => outputs[root as usize].clone(),
        Collective::ReduceScatter => outputs.concat(),
        _ => {
            assert!(outputs.iter().all(|output| *output == outputs[0]));
            outputs[0].clone()
        }
    }
}

fn check(ranks: u32, collective: Collective) {
    let seed = fresh_seed();
    let mut known: Vec<(DType, Op, Vec<u8>)> = Vec::new();
    for setup in placements(ranks) {
        let cases = cases(&setup, ranks, collective, seed);
        let outputs = Ranks::run(setup.clone(), ranks, |group| {
            let outputs = cases.iter().map(|case| perform(case, group, None));
            outputs.collect::<Vec<_>>()
        });
        for (number, case) in cases.iter().enumerate() {
            let of_case: Vec<Vec<u8>> = outputs.iter().map(|of| of[number].clone()).collect();
            let what = format!("{ranks} ranks, {setup:?}, {case:?}, seed {seed}");
            named(&what, || {
                let bits = result(case, &of_case);
                let same =
                    |known: &&(DType, Op, Vec<u8>)| (known.0, known.1) == (case.dtype, case.op);
                match known.iter().find(same) {
                    Some((_, _, expected)) => assert!(bits == *expected, "other bits"),
                    None => {
                        check_fold(case, ranks as usize, &bits);
                        known.push((case.dtype, case.op, bits));
                    }
                }
            });
        }
    }
}

/// Checks that the bits are those of a plain sum from rank 0 on, rounded once.
fn check_fold(case: &Case, ranks: usize, bits: &[u8]) {
    if case.op != Op::Sum {
        return;
    }
    let inputs = (0..ranks).map(|rank| numbers::to_floats(case.dtype, &case.input(rank, ranks)));
    let single = case.dtype != DType::F64;
    let sum = inputs.reduce(|mut sum, input| {
        for (sum, x) in sum.iter_mut().zip(input) {
            *sum = match single {
                true => f64::from(*sum as f32 + x as f32),
                false => *sum + x,
            };
        }
        sum
    });
    // Converted back and forth, so that 16-bit types are rounded.
    let expected = numbers::from_floats(case.dtype, &sum.unwrap());
    let expected = numbers::to_floats(case.dtype, &expected);
    let found = numbers::to_floats(case.dtype, bits);
    assert_eq!(expected.len(), found.len());
    for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
        assert!(same, "element {index} is {found}, not {expected}");
    }
}

#[test]
fn all_reduce() {
    (1..=9).for_each(|ranks| check(ranks, Collective::AllReduce));
}

#[test]
fn reduce() {
    (1..=9).for_each(|ranks| check(ranks, Collective::Reduce { root: ranks / 2 }));
}

#[test]
fn reduce_scatter() {
    (1..=9).for_each(|ranks| check(ranks, Collective::ReduceScatter));
}
