//! Tests of the simulator's refusals, by the algorithms' own rule, against the memory that their
//! programs reach.

mod common;

use common::collectives;
use weft_algorithms::{
    MemoryClass, Parts, Refusal, ScheduleRequest, Selection, Sizes, Topology, registry, select,
};
use weft_schedule::{Collective, Schedule};
use weft_simulate::{
    Host, Job, Machine, NetworkLink, ProgramSource, SimulationError, SimulationOptions,
    closed_form, simulate,
};

/// Everything with a name, and, where there are levels, compositions that read their own host's
/// memory, and all hosts'.
fn selections(collective: Collective, levels: bool) -> Vec<Selection> {
    let name = collective.name();
    let mut selections: Vec<Selection> = (registry())
        .filter(|algorithm| algorithm.collective == name)
        .filter(|algorithm| levels || !matches!(algorithm.requires.parts, Parts::Levels { .. }))
        .map(|algorithm| select(name, algorithm.name).unwrap())
        .collect();
    if levels && name == "all-reduce" {
        for composed in [
            "multi-rail(slice-reduce, ring)",
            "multi-rail(ring, ring)",
            "multi-rail(ring, slice-reduce)",
            "leaders(slice-reduce, two-shot)",
        ] {
            selections.push(select(name, composed).unwrap());
        }
    }
    selections
}

fn programs(selection: &Selection, collective: Collective, topology: &Topology) -> Vec<Schedule> {
    let build = |rank| {
        selection.build(&ScheduleRequest {
            collective,
            ranks: topology.ranks(),
            rank,
            memory: MemoryClass::Ordinary,
            sizes: Sizes::Equal,
            topology,
            parts: &[],
        })
    };
    (0..topology.ranks()).map(build).collect()
}

/// Whether these programs, checked without the rule, reach into memory that is not mapped.
fn reaches_too_far(machine: &Machine, collective: Collective, programs: &[Schedule]) -> bool {
    let job = Job::new(
        ProgramSource::Schedules(programs),
        collective,
        4096,
        machine.ranks(),
    );
    match simulate(machine, &job, &SimulationOptions::default()) {
        Err(SimulationError::Job(why)) if why.contains("does not map") => true,
        simulated => {
            simulated.unwrap();
            false
        }
    }
}

#[test]
fn refused_algorithms_reach_into_unmapped_memory() {
    let mut refusals = Vec::new();
    for (ranks, hosts) in [(4, 1), (6, 2), (5, 5)] {
        let plain = Machine::even(ranks, hosts, Host::default(), NetworkLink::default()).unwrap();
        let mut loopback = plain.clone();
        loopback.host.loopback = Some(NetworkLink::default());
        let topology = plain.topology();
        for machine in [plain, loopback] {
            for collective in collectives(ranks) {
                for selection in selections(collective, (2..ranks).contains(&hosts)) {
                    let job = Job::new(
                        ProgramSource::Selection(&selection),
                        collective,
                        4096,
                        ranks,
                    );
                    let simulated = simulate(&machine, &job, &SimulationOptions::default());
                    let programs = programs(&selection, collective, &topology);
                    let far = reaches_too_far(&machine, collective, &programs);
                    let name = selection.name();
                    match simulated {
                        Err(SimulationError::Refused(refusal)) => {
                            assert!(far, "{collective} {name} on {:?}", machine.hosts);
                            let closed_form = closed_form(&machine, &job);
                            assert_eq!(closed_form, Err(SimulationError::Refused(refusal)));
                            refusals.push(refusal);
                        }
                        simulated => {
                            simulated.unwrap();
                            assert!(!far, "{collective} {name} on {:?}", machine.hosts);
                        }
                    }
                }
            }
        }
    }
    assert!(refusals.contains(&Refusal::OneHost) && refusals.contains(&Refusal::MappedUnits));
}

#[test]
fn refusals_name_the_requirement() {
    let machine = Machine::even(4, 2, Host::default(), NetworkLink::default()).unwrap();
    let selection = select("all-reduce", "slice-reduce").unwrap();
    let job = Job::new(
        ProgramSource::Selection(&selection),
        Collective::AllReduce,
        4096,
        4,
    );
    let refused = closed_form(&machine, &job).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the algorithm needs all ranks on one host"
    );
}
