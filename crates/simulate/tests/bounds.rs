//! Tests of predictions against lower bounds: bytes cross a host's border at its line's rate at
//! most, and not before one latency has passed.

use proptest::prelude::*;
use weft_algorithms::{MemoryClass, ScheduleRequest, Selection, Sizes, family};
use weft_schedule::{Collective, Fraction, Grid, Schedule, Step};
use weft_simulate::{
    Host, Job, Machine, NetworkLink, ProgramSource, SimulationError, SimulationOptions,
    closed_form, simulate,
};

const COLLECTIVES: [Collective; 8] = [
    Collective::AllReduce,
    Collective::Reduce { root: 1 },
    Collective::Broadcast { root: 1 },
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::Gather { root: 1 },
    Collective::Scatter { root: 1 },
];

fn programs(machine: &Machine, collective: Collective, selection: &Selection) -> Vec<Schedule> {
    let ranks = machine.ranks();
    let of_rank = |rank| {
        selection.build(&ScheduleRequest {
            collective,
            ranks,
            rank,
            memory: MemoryClass::Ordinary,
            sizes: Sizes::Equal,
            topology: &machine.topology(),
            parts: &[],
        })
    };
    (0..ranks).map(of_rank).collect()
}

/// The share of the message between these chunks' ends.
fn share(grid: &Grid, chunks: std::ops::Range<u32>) -> f64 {
    let at = |cut: u32| match grid {
        Grid::Equal(count) | Grid::Blocks(count) => f64::from(cut) / f64::from(*count),
        Grid::Cuts(cuts) => {
            let Fraction {
                numerator,
                denominator,
            } = cuts[cut as usize];
            f64::from(numerator) / f64::from(denominator)
        }
    };
    at(chunks.end) - at(chunks.start)
}

/// The share of the message that crosses the busiest border in its busier direction.
fn crossing(machine: &Machine, programs: &[Schedule]) -> f64 {
    let host_of_rank = machine.host_of_rank();
    let mut lines = vec![[0.0; 2]; machine.hosts.len()];
    for program in programs {
        for step in &program.steps {
            let Step::Copy { dsts, .. } = step else {
                continue;
            };
            for dst in dsts {
                let [from, to] = [program.rank, dst.rank].map(|rank| host_of_rank[rank as usize]);
                if from != to {
                    let share = share(&program.grid, dst.chunks.clone());
                    lines[from as usize][0] += share;
                    lines[to as usize][1] += share;
                }
            }
        }
    }
    lines.into_iter().flatten().fold(0.0, f64::max)
}

/// The predictions, by the formula and event by event. `None` where the machine lacks memory that
/// is mapped.
fn predicted(machine: &Machine, job: &Job<'_>) -> Option<[f64; 2]> {
    match simulate(machine, job, &SimulationOptions::default()) {
        Err(SimulationError::Refused(_)) => None,
        simulated => Some([
            closed_form(machine, job).unwrap(),
            simulated.unwrap().seconds,
        ]),
    }
}

fn check(machine: &Machine, collective: Collective, bytes: u64) {
    let network = &machine.network;
    for selection in family(collective.name(), &machine.topology()) {
        let source = ProgramSource::Selection(&selection);
        let job = Job::new(source, collective, bytes, machine.ranks());
        let Some(seconds) = predicted(machine, &job) else {
            continue;
        };
        let crossing = crossing(machine, &programs(machine, collective, &selection));
        let line = crossing * bytes as f64 / network.bytes_per_s;
        let latency = if crossing > 0.0 {
            network.latency_s
        } else {
            0.0
        };
        let bound = line.max(latency);
        for (method, seconds) in ["the closed form", "the simulation"]
            .into_iter()
            .zip(seconds)
        {
            assert!(
                seconds >= bound * (1.0 - 1e-9),
                "{method} of {collective} by {}, {bytes} bytes on hosts of {:?}: {seconds:.3e} s, below \
                 {line:.3e} s on the busiest line and {latency:.3e} s of latency",
                selection.name(),
                machine.hosts
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_prediction_is_below_the_networks_bound(
        hosts in prop::collection::vec(1_u32..6, 2..5),
        collective in prop::sample::select(COLLECTIVES.to_vec()),
        log_bytes in 8_u32..27,
        gbps in prop::sample::select(vec![0.1, 1.0, 10.0, 100.0]),
        latency_us in prop::sample::select(vec![1.0, 5.0, 50.0, 500.0]),
    ) {
        let network = NetworkLink {
            latency_s: latency_us * 1e-6,
            bytes_per_s: gbps * 1e9 / 8.0,
            ..NetworkLink::default()
        };
        let ranks = hosts.iter().sum();
        let even = Machine::even(ranks, hosts.len() as u32, Host::default(), network).unwrap();
        let machine = Machine { hosts, ..even };
        check(&machine, collective, 1 << log_bytes);
    }
}
