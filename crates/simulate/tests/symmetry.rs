//! Tests of simulations of representatives only, and without implied links, against simulations of
//! all ranks and links.

mod common;

use std::collections::BTreeSet;

use common::collectives;
use weft_algorithms::{MemoryClass, ScheduleRequest, Selection, Sizes, family, select};
use weft_schedule::Collective;
use weft_simulate::{
    Host, Job, Machine, Mode, NetworkLink, ProgramSource, SimulationError, SimulationOptions,
    SimulationResult, SimulationSymmetry, Straggler, Switch, simulate,
};

/// Tiles that a message is cut into, so that slots are used again.
const TILES: u64 = 6;

/// Hosts with fast links and with everything that ranks can share.
fn machines(ranks: u32, hosts: u32) -> [Machine; 5] {
    let plain = Machine::even(ranks, hosts, Host::default(), NetworkLink::default()).unwrap();
    let mut crowded = plain.clone();
    crowded.host.cores = 2;
    crowded.host.memory_bytes_per_s = Some(12e9);
    crowded.network.send_s_per_byte = 1e-10;
    crowded.network.receive_s_per_byte = 1.5e-10;
    crowded.network.connection_bytes_per_s = Some(1e9);
    crowded.network.buffer_bytes = 64 << 10;
    let mut switched = plain.clone();
    let switch = |hosts, oversubscription, latency_s| Switch {
        hosts,
        oversubscription,
        latency_s,
    };
    switched.switches = vec![switch(2, 3.0, 1e-6), switch(4, 1.5, 2e-6)];
    let mut loopback = plain.clone();
    loopback.host.loopback = Some(NetworkLink {
        latency_s: 10e-6,
        bytes_per_s: 3e9,
        ..NetworkLink::default()
    });
    let mut emulated = plain.clone();
    emulated.shared_cores = Some(3);
    emulated.network.send_s_per_byte = 1e-10;
    [plain, crowded, switched, loopback, emulated]
}

/// The job with small messages in one tile, and with large ones in several.
fn jobs<'a>(selection: &'a Selection, collective: Collective, machine: &Machine) -> [Job<'a>; 2] {
    let ranks = machine.ranks();
    let topology = machine.topology();
    let request = ScheduleRequest {
        collective,
        ranks,
        rank: 0,
        memory: MemoryClass::Ordinary,
        sizes: Sizes::Equal,
        topology: &topology,
        parts: &[],
    };
    let chunks = u64::from(selection.build(&request).grid.chunks());
    [(800 * u64::from(ranks), 1), (960_000, TILES)].map(|(bytes, tiles)| Job {
        limits: None,
        tile_bytes: Some(bytes.div_ceil(4 * chunks * tiles) * 4),
        ..Job::new(
            ProgramSource::Selection(selection),
            collective,
            bytes,
            ranks,
        )
    })
}

/// Simulates a job in full and by representatives. `None` where the machine lacks the mapped memory
/// that the algorithm needs.
fn both(machine: &Machine, job: &Job<'_>) -> Option<[SimulationResult; 2]> {
    let with = |symmetry| {
        let options = SimulationOptions {
            symmetry,
            ..SimulationOptions::default()
        };
        simulate(machine, job, &options)
    };
    match with(SimulationSymmetry::Off) {
        Err(SimulationError::Refused(_)) => None,
        full => Some([full.unwrap(), with(SimulationSymmetry::Auto).unwrap()]),
    }
}

/// Simulates a choice on this machine both ways. Whether less had to be simulated the short way.
fn compare(machine: &Machine, collective: Collective, selection: &Selection) -> bool {
    let mut shortened = false;
    for job in jobs(selection, collective, machine) {
        let Some([full, short]) = both(machine, &job) else {
            continue;
        };
        assert_eq!(full.mode, Mode::Full);
        shortened |= short.events < full.events;
        for (rank, (a, b)) in full.finished.iter().zip(&short.finished).enumerate() {
            assert!(
                (a - b).abs() <= 1e-9 * a,
                "{collective} {}, {} bytes: rank {rank} ends at {a}, the short way at {b}, on {machine:?}",
                selection.name(),
                job.bytes
            );
        }
    }
    shortened
}

#[test]
fn representatives_stand_for_all() {
    let mut shortened = BTreeSet::new();
    for (ranks, hosts) in [
        (3, 3),
        (4, 4),
        (7, 7),
        (8, 8),
        (6, 3),
        (8, 4),
        (15, 5),
        (16, 8),
        (12, 4),
        (7, 1),
        (8, 1),
    ] {
        for machine in machines(ranks, hosts) {
            for collective in collectives(ranks) {
                let name = collective.name();
                for selection in family(name, &machine.topology()) {
                    if compare(&machine, collective, &selection) {
                        shortened.insert(format!("{name} {}", selection.name()));
                    }
                }
            }
        }
    }
    let expected = [
        "all-reduce ring",
        "all-reduce direct",
        "all-reduce slice-reduce",
        "all-reduce multi-rail(slice-reduce, ring)",
        "all-to-all pairwise",
        "barrier dissemination",
    ];
    for name in expected {
        assert!(
            shortened.contains(name),
            "{name} is not among {shortened:?}"
        );
    }
}

/// Also where owners of slices, of which every rank of a host is one, are not symmetric.
#[test]
fn one_rank_represents_slice_owners_of_a_host() {
    let mut shortened = BTreeSet::new();
    for (ranks, hosts) in [(12, 3), (16, 4)] {
        let [plain, _, switched, loopback, emulated] = machines(ranks, hosts);
        for machine in [plain, switched, loopback, emulated] {
            for selection in family("all-reduce", &machine.topology()) {
                let name = selection.name();
                let rails = name.starts_with("multi-rail");
                if rails && compare(&machine, Collective::AllReduce, &selection) {
                    shortened.insert(name);
                }
            }
        }
    }
    for name in [
        "multi-rail(direct, double-tree)",
        "multi-rail(halving-doubling, recursive-doubling)",
        "multi-rail(slice-reduce, gather-to-root)",
        "multi-rail(ring, torus)",
    ] {
        assert!(
            shortened.contains(name),
            "{name} is not among {shortened:?}"
        );
    }
}

/// Where many meet at few, in stars and among servers, also where ranks are not symmetric.
#[test]
fn links_that_others_imply_may_be_left_out() {
    let stars = [
        (Collective::AllReduce, "gather-to-root"),
        (Collective::AllReduce, "parameter-server(1)"),
        (Collective::AllReduce, "parameter-server(2)"),
        (Collective::AllReduce, "parameter-server(3)"),
        (Collective::AllReduce, "multi-rail(direct, gather-to-root)"),
        (Collective::Reduce { root: 1 }, "direct"),
        (Collective::Gather { root: 1 }, "linear"),
        (Collective::Scatter { root: 1 }, "linear"),
    ];
    let mut shortened = BTreeSet::new();
    for (ranks, hosts) in [(13, 13), (40, 40), (36, 18), (64, 16)] {
        let [plain, crowded, _, loopback, _] = machines(ranks, hosts);
        let mut varied = plain.clone();
        varied.variation.slowdown_max = 0.2;
        varied.network.buffer_bytes = 16 << 10;
        for machine in [plain, crowded, loopback, varied] {
            for (collective, name) in stars {
                let selection = select(collective.name(), name).unwrap();
                if compare(&machine, collective, &selection) {
                    shortened.insert(name);
                }
            }
        }
    }
    for name in ["gather-to-root", "parameter-server(1)", "direct", "linear"] {
        assert!(
            shortened.contains(name),
            "{name} is not among {shortened:?}"
        );
    }
}

/// Where hosts talk to several others through which many talk, every message changes the rates of
/// all others: that counts as work.
#[test]
fn many_to_several_refused_many_to_one_simulated() {
    let [machine, ..] = machines(512, 512);
    let options = SimulationOptions {
        work_max: Some(100_000),
        ..SimulationOptions::default()
    };
    let simulated = |name| {
        let selection = select("all-reduce", name).unwrap();
        let job = Job::new(
            ProgramSource::Selection(&selection),
            Collective::AllReduce,
            4,
            512,
        );
        simulate(&machine, &job, &options)
    };
    assert!(simulated("gather-to-root").unwrap().work < 10_000);
    let refused = simulated("parameter-server(4)").unwrap_err();
    assert!(
        matches!(
            refused,
            SimulationError::Work {
                rates: 2_000_000..,
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("changes of rates on shared links"),
        "{refused}"
    );
}

#[test]
fn a_straggler_is_played_in_full() {
    let [mut machine, ..] = machines(4, 4);
    machine.stragglers.push(Straggler {
        rank: 2,
        slowdown: 3.0,
        late_s: 1e-3,
    });
    let ring = select("all-reduce", "ring").unwrap();
    let job = Job::new(
        ProgramSource::Selection(&ring),
        Collective::AllReduce,
        1 << 20,
        4,
    );
    let [full, short] = both(&machine, &job).unwrap();
    assert_eq!((short.mode, &short.finished), (Mode::Full, &full.finished));
    assert!(full.seconds > 1e-3);
}
