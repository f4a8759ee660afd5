//! Tests of the verifier on correct schedules: acceptance, costs, and results.

mod samples;

use samples::Sample;
use weft_schedule::{
    Collective, Encoding, Fraction, Grid, Mapped, Report, Schedule, Share, Step, VerifyOptions,
    verify,
};

fn report(schedules: &[Schedule], mapped: Mapped) -> Report {
    match verify(schedules, &VerifyOptions::mapped(mapped)) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn samples_are_right() {
    for ranks in [2, 3, 4, 5, 8, 17] {
        for Sample {
            name,
            schedules,
            options,
        } in samples::all(ranks)
        {
            let options = match ranks {
                ..=8 => options,
                _ => options.one_tile(),
            };
            if let Err(error) = verify(&schedules, &options) {
                panic!("{name} at {ranks} ranks: {error}");
            }
        }
    }
}

#[test]
fn one_tile_costs_as_much_as_any() {
    for Sample {
        name,
        schedules,
        options,
    } in samples::all(3)
    {
        let all = verify(&schedules, &options).unwrap();
        let one = verify(&schedules, &options.one_tile()).unwrap();
        assert_eq!(all, one, "{name}");
    }
}

#[test]
fn one_rank_may_do_nothing() {
    let collectives = [
        Collective::AllReduce,
        Collective::Reduce { root: 0 },
        Collective::Broadcast { root: 0 },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Gather { root: 0 },
        Collective::Scatter { root: 0 },
        Collective::Barrier,
    ];
    for collective in collectives {
        let alone = samples::SampleProgram::new(collective, 1, 0, Grid::Equal(1)).schedule;
        let report = report(&[alone], Mapped::None);
        assert_eq!((report.latency_steps, report.trees), (0, vec![]));
    }
}

#[test]
fn ring_costs() {
    let schedules = samples::ring(5);
    let report = report(&schedules, Mapped::None);
    assert_eq!(report.latency_steps, 8);
    for (sent, read) in report.sent.iter().zip(&report.read) {
        assert_eq!(sent.share(&schedules[0].grid), Some(Share::new(8, 5)));
        assert_eq!(read.chunks(), 0);
    }
    let sent: Option<u64> = report
        .sent
        .iter()
        .map(|sent| sent.bytes(&schedules[0].grid, 17, 4))
        .sum();
    assert_eq!(
        sent,
        Some(2 * 4 * 17 * 4),
        "every chunk travels 2 (P - 1) times"
    );
    assert_eq!(report.trees[0], "final((((0 + 1) + 2) + 3) + 4)");
    assert_eq!(report.trees[2], "final((((2 + 3) + 4) + 0) + 1)");
}

#[test]
fn direct_costs() {
    let schedules = samples::direct(4, Encoding::Bf16);
    let report = report(&schedules, Mapped::None);
    assert_eq!(report.latency_steps, 1);
    assert_eq!(
        report.sent[3].share(&schedules[0].grid),
        Some(Share::new(3, 1))
    );
    assert_eq!(
        report.sent[3].bytes(&schedules[0].grid, 10, 4),
        Some(3 * 10 * 2)
    );
    assert_eq!(
        report.trees,
        ["final(bf16(0) + bf16(1) + bf16(2) + bf16(3))"]
    );
}

#[test]
fn slice_reduce_costs() {
    let schedules = samples::slice_reduce(3, false);
    let report = report(&schedules, Mapped::All);
    assert_eq!(report.latency_steps, 2);
    assert_eq!(
        report.sent[1].share(&schedules[0].grid),
        Some(Share::new(2, 3))
    );
    assert_eq!(
        report.read[1].share(&schedules[0].grid),
        Some(Share::new(2, 3))
    );
    assert_eq!(report.trees, ["final(0 + 1 + 2)"; 3]);
}

#[test]
fn shares_of_uneven_cuts_are_exact() {
    let cut = |numerator, denominator| Fraction {
        numerator,
        denominator,
    };
    let grid = Grid::Cuts(vec![cut(0, 1), cut(1, 5), cut(1, 3), cut(1, 1)]);
    let mut schedules = samples::broadcast(2, 0);
    for schedule in &mut schedules {
        schedule.grid = grid.clone();
        schedule.receive = vec![3];
        schedule.steps.iter_mut().for_each(take_last_two_chunks);
    }
    // The first chunk is not sent, so the verifier must miss it at rank 1.
    let error = verify(&schedules, &VerifyOptions::default()).unwrap_err();
    assert_eq!((error.rank, error.chunk), (Some(1), Some(0)));
    schedules
        .iter_mut()
        .for_each(|schedule| schedule.steps.iter_mut().for_each(take_all_chunks));
    let sent = &report(&schedules, Mapped::None).sent[0];
    assert_eq!(sent.share(&grid), Some(Share::new(1, 1)));
    assert_eq!(sent.bytes(&grid, 100, 2), Some(200));
}

fn take_last_two_chunks(step: &mut Step) {
    take_chunks(step, 1..3);
}

fn take_all_chunks(step: &mut Step) {
    take_chunks(step, 0..3);
}

fn take_chunks(step: &mut Step, chunks: std::ops::Range<u32>) {
    if let Step::Copy { dsts, src, .. } = step {
        for slice in dsts.iter_mut().chain([src]) {
            slice.chunks = chunks.clone();
        }
    }
}

#[test]
fn latency_counts_chains_of_signals() {
    let steps = |ranks| report(&samples::barrier(ranks), Mapped::None).latency_steps;
    assert_eq!([2, 3, 4, 5, 8, 9].map(steps), [1, 2, 2, 3, 3, 4]);
}
