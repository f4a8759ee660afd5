//! The algorithms that a group can run.

use weft_algorithms::{Reach, Requirements, Selection, Topology, family, registry};

use super::Setup;

/// Compositions of each collective per group; groups of other sizes test others.
const COMPOSITIONS: usize = 5;

/// An algorithm with its parts.
#[derive(Clone, Debug)]
pub(crate) struct ForcedChoice {
    pub(crate) name: String,
    pub(crate) collective: &'static str,
    pub(crate) requires: Requirements,
    /// Its index among those of its collective.
    pub(crate) place: usize,
}

/// All algorithms that ranks with this setup can run, with a selection of the compositions.
pub(crate) fn choices(setup: &Setup, ranks: u32) -> Vec<ForcedChoice> {
    let reach = reach(setup, ranks);
    let mut choices = every(setup, ranks);
    choices.retain(|choice| choice.requires.mapped <= reach);
    choices
}

/// The algorithms that ranks with this setup cannot run.
pub(crate) fn refused(setup: &Setup, ranks: u32) -> Vec<ForcedChoice> {
    let reach = reach(setup, ranks);
    let mut choices = every(setup, ranks);
    choices.retain(|choice| choice.requires.mapped > reach);
    choices
}

fn every(setup: &Setup, ranks: u32) -> Vec<ForcedChoice> {
    let topology = topology(setup, ranks);
    let mut collectives: Vec<&'static str> = registry().map(|a| a.collective).collect();
    collectives.dedup();
    let topology = &topology;
    let of_collective = |collective: &'static str| {
        let (flat, mut composed): (Vec<Selection>, Vec<Selection>) = family(collective, topology)
            .into_iter()
            .partition(|selection| selection.parts.is_empty());
        let steps = composed.len().div_ceil(COMPOSITIONS).max(1);
        let mut position = ranks as usize;
        composed.retain(|_| {
            position += 1;
            position.is_multiple_of(steps)
        });
        let selections = flat.into_iter().chain(composed).enumerate();
        selections.map(move |(place, selection)| ForcedChoice {
            name: selection.name(),
            collective,
            requires: selection.requires_in(topology),
            place,
        })
    };
    collectives.into_iter().flat_map(of_collective).collect()
}

fn topology(setup: &Setup, ranks: u32) -> Topology {
    let levels = &setup.terms.policy.levels;
    if !levels.is_empty() {
        return Topology::levels(levels.clone()).unwrap();
    }
    let hosts = setup.host_of_rank(ranks);
    match &setup.terms.policy.domains {
        Some(domains) => Topology::domains(domains, &hosts).unwrap(),
        None if setup.all_mapped(ranks) => Topology::flat(ranks),
        None => Topology::hosts(&hosts),
    }
}

/// The memory that ranks with this setup map.
fn reach(setup: &Setup, ranks: u32) -> Reach {
    if setup.all_mapped(ranks) {
        return Reach::All;
    }
    let (topology, hosts) = (topology(setup, ranks), setup.host_of_rank(ranks));
    let innermost_host = topology.levels_inside_hosts();
    let within = (0..ranks).all(|rank| {
        let unit = topology.unit_of(innermost_host, rank);
        hosts[unit as usize] == hosts[rank as usize]
    });
    match within {
        true => Reach::Unit,
        false => Reach::None,
    }
}
