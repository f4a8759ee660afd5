//! Tests of averages of 16-bit floats, or of `f32` with a 16-bit wire format: finite if the
//! contributions are, with no more error than the sum's roundings, by every algorithm.

mod ranks;

use half::{bf16, f16};
use ranks::choices::choices;
use ranks::{Ranks, Rng, Setup, fresh_seed};
use weft_kernels::DType;
use weft_runtime::{Call, Counts, Group, Op, Tiling, TransportChoice, Waited};
use weft_schedule::{Collective, WireFormat};
use weft_transport_testing::strict;

/// A type of 16-bit floats, or `f32` with 16-bit values and wire format.
#[derive(Clone, Copy)]
struct HalfType {
    dtype: DType,
    wire: Option<WireFormat>,
    widen: fn(u16) -> f64,
    narrow: fn(f64) -> u16,
    largest: f64,
    /// The distance of numbers near zero.
    least: f64,
    /// The relative error of one rounding.
    unit: f64,
    /// Patterns of NaN that no computation produces.
    odd_nans: [u16; 3],
}

fn types() -> [HalfType; 3] {
    let f16 = HalfType {
        dtype: DType::F16,
        wire: None,
        widen: |bits| f16::from_bits(bits).to_f64(),
        narrow: |x| f16::from_f64(x).to_bits(),
        largest: 65504.0,
        least: 2_f64.powi(-24),
        unit: 2_f64.powi(-11),
        odd_nans: [0x7c01, 0x7d55, 0xffff],
    };
    let on_the_wire = HalfType {
        dtype: DType::F32,
        wire: Some(WireFormat::Fp16),
        ..f16
    };
    [
        f16,
        on_the_wire,
        HalfType {
            dtype: DType::Bf16,
            wire: None,
            widen: |bits| bf16::from_bits(bits).to_f64(),
            narrow: |x| bf16::from_f64(x).to_bits(),
            largest: bf16::MAX.to_f64(),
            least: 2_f64.powi(-133),
            unit: 2_f64.powi(-8),
            odd_nans: [0x7f81, 0x7fa5, 0xffff],
        },
    ]
}

const KINDS: usize = 7;

/// A rank's contribution: by element, large numbers of one sign and of both, tiny ones, ordinary
/// ones, a mixture, NaNs of one rank, and infinities.
fn contributions(of: HalfType, rank: usize, count: usize, seed: u64) -> Vec<u16> {
    let mut rng = Rng::new(seed ^ (rank as u64 + 1) << 40);
    let mut unit = || f64::from(rng.float());
    let mut element = |index: usize| {
        let large = of.largest * (0.5 + unit().abs().min(1.0) / 2.0);
        let tiny = of.least * (unit() * 40.0).round();
        let value = match index % KINDS {
            0 => large,
            1 => large * unit().signum(),
            2 => tiny,
            3 => unit(),
            4 if (rank + index).is_multiple_of(3) => large,
            4 => tiny,
            5 if rank == index % 2 => return of.odd_nans[index % 3],
            6 if rank == 1 => f64::NEG_INFINITY,
            _ => -large,
        };
        (of.narrow)(value)
    };
    (0..count).map(&mut element).collect()
}

impl HalfType {
    /// The value of a result in memory.
    fn value(self, bits: u32) -> f64 {
        match self.dtype {
            DType::F32 => f32::from_bits(bits).into(),
            _ => (self.widen)(bits as u16),
        }
    }
}

/// The bits of the results.
fn run(
    group: &Group,
    collective: Collective,
    algorithm: &str,
    of: HalfType,
    input: &[u16],
) -> Vec<u32> {
    let ranks = group.size() as usize;
    let count = match collective {
        Collective::ReduceScatter => input.len() / ranks,
        _ => input.len(),
    };
    let wide: Vec<f32> = input.iter().map(|x| (of.widen)(*x) as f32).collect();
    let mut output = vec![0_u16; count];
    let mut wide_output = vec![0_f32; count];
    let is_wide = of.dtype == DType::F32;
    let (from, to): (*const u8, *mut u8) = match is_wide {
        true => (wide.as_ptr().cast(), wide_output.as_mut_ptr().cast()),
        false => (input.as_ptr().cast(), output.as_mut_ptr().cast()),
    };
    let call = Call {
        collective,
        dtype: of.dtype,
        op: Op::Average,
        input: from,
        output: to,
        counts: Counts::Equal(count as u64),
        priority: 0,
        timeout: None,
        algorithm: Some(algorithm.into()),
        tiling: Tiling::default(),
        wire: of.wire,
    };
    // SAFETY: the buffers live until the wait is over.
    let work = unsafe { group.issue(call, false) }.unwrap();
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
    match is_wide {
        true => wide_output.iter().map(|x| x.to_bits()).collect(),
        false => output.into_iter().map(u32::from).collect(),
    }
}

fn check(of: HalfType, inputs: &[Vec<u16>], at: usize, found: u32, what: &str) {
    let ranks = inputs.len() as f64;
    let contributions = || inputs.iter().map(|input| (of.widen)(input[at]));
    let expected = contributions().sum::<f64>() / ranks;
    let result = of.value(found);
    let shown = || {
        let all: Vec<f64> = contributions().collect();
        format!("{what}, element {at}: {result} is no average of {all:?}")
    };
    if !expected.is_finite() {
        let same = result == expected || expected.is_nan() && result.is_nan();
        assert!(same, "{}", shown());
        return;
    }
    // A rounding outside of the range has a larger error than one inside: see the kernels'
    // averages.rs.
    let beyond = 1.0 + ranks.log2();
    let magnitude = contributions().map(f64::abs).sum::<f64>() / ranks;
    let allowed = match at % KINDS {
        2 => 0.0,
        3 => ranks * of.unit * magnitude,
        _ => ranks * beyond * of.unit * magnitude,
    };
    let error = (result - expected).abs();
    let within = error <= allowed + 0.5001 * of.least;
    assert!(within, "{}: {error} instead of {allowed}", shown());
}

fn check_group(setup: &Setup, ranks: u32, count: usize, seed: u64) {
    let collectives = [
        Collective::AllReduce,
        Collective::Reduce { root: 1 },
        Collective::ReduceScatter,
    ];
    let choices = choices(setup, ranks);
    let cases = collectives.into_iter().flat_map(|collective| {
        let able = choices.iter();
        let able = able.filter(move |choice| choice.collective == collective.name());
        let able = able.filter(|choice| !choice.requires.symmetric);
        able.flat_map(move |choice| types().map(|of| (collective, choice.name.clone(), of)))
    });
    let cases: Vec<_> = cases.collect();
    let inputs = |of: HalfType| -> Vec<Vec<u16>> {
        let of_rank = |rank| contributions(of, rank, count * ranks as usize, seed);
        (0..ranks as usize).map(of_rank).collect()
    };
    let results = Ranks::run(setup.clone(), ranks, |group| {
        let run = |(collective, name, of): &(Collective, String, HalfType)| {
            let input = inputs(*of).swap_remove(group.rank() as usize);
            run(group, *collective, name, *of, &input)
        };
        cases.iter().map(run).collect::<Vec<_>>()
    });
    for (index, (collective, name, of)) in cases.iter().enumerate() {
        let inputs = inputs(*of);
        let what = format!(
            "{collective} {name} of {} ({:?}) on {ranks} ranks of {setup:?}",
            of.dtype, of.wire
        );
        let results: Vec<&Vec<u32>> = results.iter().map(|all| &all[index]).collect();
        let whole: Vec<u32> = match collective {
            Collective::AllReduce => {
                assert!(
                    results.windows(2).all(|two| two[0] == two[1]),
                    "{what}: ranks differ"
                );
                results[0].clone()
            }
            Collective::Reduce { root } => results[*root as usize].clone(),
            _ => results
                .iter()
                .flat_map(|block| block.iter().copied())
                .collect(),
        };
        for (at, found) in whole.into_iter().enumerate() {
            check(*of, &inputs, at, found, &what);
        }
    }
}

#[test]
fn averages_are_finite_by_every_algorithm() {
    let seed = fresh_seed();
    println!("seed {seed}");
    for (setup, ranks) in [
        (Setup::from(TransportChoice::Tcp), 3),
        (TransportChoice::Auto.into(), 5),
        (TransportChoice::Custom(strict).into(), 7),
        (Setup::on_hosts(&[0, 0, 0, 1, 1]), 5),
        (Setup::on_hosts(&[0, 1, 1, 2, 2, 2]), 6),
    ] {
        check_group(&setup, ranks, 21, seed);
    }
    check_group(&TransportChoice::Tcp.into(), 4, 2500, seed);
}
