//! Tests of the closed form against the event-driven simulation without contention.

mod common;

use common::collectives;
use weft_algorithms::{family, select};
use weft_schedule::Collective;
use weft_simulate::{
    Host, Job, Machine, NetworkLink, ProgramSource, SimulationError, SimulationOptions,
    closed_form, simulate,
};

fn machine(ranks: u32, hosts: u32) -> Machine {
    Machine::even(ranks, hosts, Host::default(), NetworkLink::default()).unwrap()
}

/// The formula's prediction divided by the simulation's. `None` where the machine lacks mapped
/// memory.
fn ratio(machine: &Machine, job: &Job<'_>) -> Option<f64> {
    match simulate(machine, job, &SimulationOptions::default()) {
        Err(SimulationError::Refused(_)) => None,
        simulated => Some(closed_form(machine, job).unwrap() / simulated.unwrap().seconds),
    }
}

/// Checks all algorithms on this machine.
fn check(ranks: u32, hosts: u32, allowed: std::ops::Range<f64>) {
    let machine = machine(ranks, hosts);
    for collective in collectives(ranks) {
        let name = collective.name();
        for selection in family(name, &machine.topology()) {
            for bytes in [4 << 10, 1 << 20, 64 << 20] {
                let job = Job::new(
                    ProgramSource::Selection(&selection),
                    collective,
                    bytes,
                    ranks,
                );
                if let Some(ratio) = ratio(&machine, &job) {
                    assert!(
                        allowed.contains(&ratio),
                        "{name} {}, {bytes} bytes on {ranks} ranks of {hosts} hosts: {ratio:.3} of the simulation",
                        selection.name()
                    );
                }
            }
        }
    }
}

#[test]
fn hosts_of_one_rank() {
    for ranks in [2, 5, 8, 16] {
        check(ranks, ranks, 0.4..1.7);
    }
}

#[test]
fn hosts_of_several_ranks() {
    // The formula has every round of a tree leave its host, although the last ones do not: that
    // counts where latency does.
    check(16, 4, 0.4..2.4);
}

#[test]
fn one_host() {
    for ranks in [2, 4, 8] {
        check(ranks, 1, 0.5..2.0);
    }
}

#[test]
fn rings_closely() {
    let ring = select("all-reduce", "ring").unwrap();
    for ranks in [2, 7, 32] {
        for bytes in [4 << 10, 1 << 20, 64 << 20] {
            let machine = machine(ranks, ranks);
            let job = Job {
                limits: None,
                ..Job::new(
                    ProgramSource::Selection(&ring),
                    Collective::AllReduce,
                    bytes,
                    ranks,
                )
            };
            let ratio = ratio(&machine, &job).unwrap();
            assert!(
                (ratio - 1.0).abs() < 0.15,
                "{ranks} ranks, {bytes} bytes: {ratio:.3}"
            );
        }
    }
}

#[test]
fn any_number_of_ranks_at_once() {
    let ring = select("all-reduce", "multi-rail(slice-reduce, ring)").unwrap();
    let machine = machine(100_000, 12_500);
    let job = Job {
        limits: None,
        ..Job::new(
            ProgramSource::Selection(&ring),
            Collective::AllReduce,
            256 << 20,
            100_000,
        )
    };
    let seconds = closed_form(&machine, &job).unwrap();
    // 25,000 rounds of 7 us, and 512 MiB at 12.5 GB/s.
    assert!((0.2..0.5).contains(&seconds), "{seconds}");
}

#[test]
fn explicit_schedules_have_none() {
    let job = Job::new(ProgramSource::Schedules(&[]), Collective::Barrier, 0, 1);
    let error = closed_form(&machine(1, 1), &job).unwrap_err();
    assert!(
        error.to_string().contains("schedules of barrier"),
        "{error}"
    );
}
