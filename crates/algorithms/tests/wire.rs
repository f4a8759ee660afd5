//! Verification of every algorithm in wire formats: all ranks end with the same rounded values, and
//! only encoded elements are put.

mod family;

use family::{collectives, flat, options, request};
use weft_algorithms::{MemoryClass, Reach, ScheduleRequest, Selection, Sizes, Topology, on_wire};
use weft_schedule::{
    Buffer, Grid, Mapped, Rank, Schedule, Step, VerifyOptions, WireFormat, verify,
};

const FORMAT: WireFormat = WireFormat::Bf16;
const COLLECTIVES: [&str; 5] = [
    "all-reduce",
    "reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
];

/// Checks a schedule on the wire, and that it sends half of the bytes of the one that is not.
fn check(native: &[Schedule], options: &VerifyOptions, what: &str) {
    let encoded: Vec<Schedule> = native
        .iter()
        .cloned()
        .map(|one| on_wire(one, FORMAT))
        .collect();
    let report = verify(&encoded, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let full = verify(native, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(report.latency_steps, full.latency_steps, "{what}");
    let grid = &native[0].grid;
    if options.mapped == Mapped::None && !matches!(grid, Grid::Blocks(_)) {
        let bytes = |report: &weft_schedule::Report, rank: usize| {
            report.sent[rank].bytes(grid, 64 * u64::from(grid.chunks()), 4)
        };
        for rank in 0..native.len() {
            assert_eq!(
                bytes(&report, rank).map(|half| 2 * half),
                bytes(&full, rank),
                "{what}"
            );
        }
    }
}

fn check_flat(ranks: impl Iterator<Item = u32> + Clone, roots: usize) {
    let on_networks = |algorithm: &&weft_algorithms::Algorithm| {
        COLLECTIVES.contains(&algorithm.collective) && algorithm.requires.mapped == Reach::None
    };
    for algorithm in flat().filter(on_networks) {
        for ranks in ranks.clone() {
            let topology = Topology::flat(ranks);
            let all = collectives(algorithm.collective, ranks);
            let apart = all.len().div_ceil(roots);
            for collective in all.into_iter().step_by(apart) {
                for sizes in [Sizes::Equal, Sizes::PerRank] {
                    if sizes == Sizes::PerRank && !algorithm.requires.per_rank_sizes {
                        continue;
                    }
                    let asked = ScheduleRequest {
                        sizes,
                        ..request(collective, MemoryClass::Ordinary, &topology)
                    };
                    let of = |rank: Rank| (algorithm.build)(&ScheduleRequest { rank, ..asked });
                    let native: Vec<Schedule> = (0..ranks).map(of).collect();
                    check(
                        &native,
                        &options(algorithm, asked),
                        &format!("{} {asked:?}", algorithm.name),
                    );
                }
            }
        }
    }
}

#[test]
fn verified_with_every_root_up_to_nine_ranks() {
    check_flat(1..=9, usize::MAX);
}

#[test]
fn verified_from_ten_to_forty_ranks() {
    check_flat(10..=40, 2);
}

#[test]
fn composed_choices_verified_on_hosts() {
    for (ranks, per_host) in (2..=12).flat_map(|ranks| [2, 3, 4].map(|per_host| (ranks, per_host)))
    {
        let hosts: Vec<u32> = (0..ranks).map(|rank| rank / per_host).collect();
        let topology = Topology::hosts(&hosts);
        for name in COLLECTIVES {
            for collective in collectives(name, ranks) {
                for selection in weft_algorithms::family(name, &topology) {
                    check_on_hosts(&selection, collective, &topology, &hosts);
                }
            }
        }
    }
}

/// As far as the choice can run on these hosts.
fn check_on_hosts(
    selection: &Selection,
    collective: weft_schedule::Collective,
    topology: &Topology,
    hosts: &[u32],
) {
    let asked = request(collective, MemoryClass::Ordinary, topology);
    let several = hosts.iter().any(|host| *host != hosts[0]);
    if !several || selection.requires().mapped == Reach::All {
        return;
    }
    let of = |rank| selection.build(&ScheduleRequest { rank, ..asked });
    let native: Vec<Schedule> = (0..asked.ranks).map(of).collect();
    let options = VerifyOptions {
        hosts: Some(hosts.to_vec()),
        ..VerifyOptions::mapped(Mapped::Scratch)
    };
    check(
        &native,
        &options.one_tile(),
        &format!("{} {asked:?}", selection.name()),
    );
}

#[test]
fn sender_keeping_unsent_values_is_refused() {
    let topology = Topology::flat(3);
    let broadcast = weft_schedule::Collective::Broadcast { root: 0 };
    let asked = request(broadcast, MemoryClass::Ordinary, &topology);
    let binomial = weft_algorithms::select("broadcast", "binomial").unwrap();
    let of = |rank| on_wire(binomial.build(&ScheduleRequest { rank, ..asked }), FORMAT);
    let mut encoded: Vec<Schedule> = (0..3).map(of).collect();
    verify(&encoded, &VerifyOptions::default()).unwrap();
    for step in &mut encoded[0].steps {
        if let Step::Copy { dsts, .. } = step {
            dsts.retain(|dst| dst.buffer != Buffer::Output);
        }
    }
    let refused = verify(&encoded, &VerifyOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("the result is native(bf16(0)), but rank 0 has 0"),
        "{refused}"
    );
}
