//! Tests of composed algorithms on every topology: results, and costs against their closed forms.

mod family;

use family::request;
use proptest::prelude::*;
use weft_algorithms::{
    MemoryClass, Part, Parts, Reach, ScheduleRequest, Selection, Sizes, Topology, Volume, family,
    registry, select,
};
use weft_schedule::{
    Collective, Grid, Mapped, Report, Schedule, Share, Traffic, VerifyOptions, verify,
};

/// The host of each rank: this many ranks per host, fewer on the last.
fn hosts(ranks: u32, per_host: u32) -> Vec<u32> {
    (0..ranks).map(|rank| rank / per_host).collect()
}

/// The assumptions of the verifier: ranks of different innermost units map nothing, unless memory
/// is symmetric or the choice needs more.
fn options(selection: &Selection, topology: &Topology, memory: MemoryClass) -> VerifyOptions {
    let needed = selection.requires().mapped;
    let mapped = match (memory, needed) {
        (MemoryClass::Symmetric, _) => Mapped::All,
        (MemoryClass::Ordinary, Reach::None) => Mapped::None,
        (MemoryClass::Ordinary, _) => Mapped::Scratch,
    };
    let apart = memory == MemoryClass::Ordinary && needed < Reach::All && topology.depth() > 0;
    let units = (0..topology.ranks()).map(|rank| topology.unit_of(0, rank));
    let options = VerifyOptions {
        hosts: apart.then_some(()).map(|()| units.collect()),
        ..VerifyOptions::mapped(mapped)
    };
    // One tile speaks for all, says the verifier; up to here the reuse of slots is executed
    // nevertheless.
    match topology.ranks() {
        ..=9 => options,
        _ => options.one_tile(),
    }
}

fn programs(selection: &Selection, asked: &ScheduleRequest<'_>) -> Vec<Schedule> {
    let of = |rank| selection.build(&ScheduleRequest { rank, ..*asked });
    (0..asked.ranks).map(of).collect()
}

fn verified(selection: &Selection, asked: &ScheduleRequest<'_>) -> (Report, Vec<Schedule>) {
    let programs = programs(selection, asked);
    let options = options(selection, asked.topology, asked.memory);
    let report = verify(&programs, &options)
        .unwrap_or_else(|error| panic!("{} {asked:?}: {error}", selection.name()));
    (report, programs)
}

/// The composed choices among a family.
fn composed(collective: &str, topology: &Topology) -> Vec<Selection> {
    let mut selections = family(collective, topology);
    selections.retain(|selection| !matches!(selection.algorithm.requires.parts, Parts::None));
    selections
}

/// All collectives by name.
fn collectives(root: u32) -> impl Iterator<Item = (&'static str, Collective)> {
    let named = move |name| (name, Collective::named(name, root).unwrap());
    Collective::NAMES.into_iter().map(named)
}

/// Checks that the phases of the closed form sum up to the work of the programs; where units differ
/// in size, that they do no more.
fn check_cost(
    selection: &Selection,
    asked: &ScheduleRequest<'_>,
    report: &Report,
    programs: &[Schedule],
) {
    let name = format!("{} {asked:?}", selection.name());
    let cost = selection.cost(asked);
    let sizes = || asked.topology.units(0).into_iter().map(|unit| unit.len());
    let even = sizes().min() == sizes().max();
    let rounds: u32 = cost.phases.iter().map(|phase| phase.rounds).sum();
    let counted = report.latency_steps;
    assert!(
        rounds == counted || !even && rounds > counted,
        "{name}: {counted} rounds, but {rounds} are priced"
    );
    let share = |traffic: &[Traffic]| {
        let shares = traffic
            .iter()
            .map(|rank| rank.share(&programs[0].grid).unwrap());
        shares
            .map(|share| share.numerator as f64 / share.denominator as f64)
            .fold(0.0, f64::max)
    };
    let figures = [
        ("sent", cost.sum(|phase| phase.sent()), share(&report.sent)),
        ("read", cost.sum(|phase| phase.read), share(&report.read)),
    ];
    for (figure, priced, counted) in figures {
        let same = (priced - counted).abs() < 1e-9;
        assert!(
            same || !even && priced > counted,
            "{name}: {figure} {counted}, but {priced} is priced"
        );
    }
}

fn check(selection: &Selection, asked: &ScheduleRequest<'_>) {
    let (report, programs) = verified(selection, asked);
    if asked.ranks > 1 {
        check_cost(selection, asked, &report, &programs);
    }
}

/// Checks one in `one_in` of the choices, others for every number of ranks.
fn check_hosts(ranks: impl Iterator<Item = u32> + Clone, one_in: usize) {
    for per_host in [1, 2, 3, 4, 8] {
        for ranks in ranks.clone() {
            let topology = Topology::hosts(&hosts(ranks, per_host));
            for (name, collective) in collectives(ranks / 2) {
                let memories = [MemoryClass::Ordinary, MemoryClass::Symmetric];
                let choices = composed(name, &topology).into_iter();
                let choices =
                    choices.flat_map(|choice| memories.map(|memory| (choice.clone(), memory)));
                for (selection, memory) in choices.skip(ranks as usize % one_in).step_by(one_in) {
                    let asked = request(collective, memory, &topology);
                    check(&selection, &asked);
                    if selection.requires().per_rank_sizes {
                        let sizes = Sizes::PerRank;
                        verified(&selection, &ScheduleRequest { sizes, ..asked });
                    }
                }
            }
        }
    }
}

#[test]
fn verified_on_hosts_up_to_twelve_ranks() {
    check_hosts(1..=12, 1);
}

#[test]
fn verified_on_hosts_from_13_to_64_ranks() {
    check_hosts(13..=64, 37);
}

/// Takes minutes: `make verify-large`.
#[test]
#[ignore = "takes minutes"]
fn every_choice_verified_up_to_64_ranks() {
    check_hosts(13..=64, 1);
}

/// Some units of each of one to three levels.
fn topologies() -> impl Strategy<Value = Topology> {
    let labels = |units: u32, ranks: usize| prop::collection::vec(0..units, ranks);
    (1_usize..=40, 1_usize..=3).prop_flat_map(move |(ranks, depth)| {
        let innermost = labels(1 + ranks as u32 / 2, ranks);
        let outer = prop::collection::vec(labels(4, 4 + ranks / 2), depth - 1);
        (innermost, outer).prop_map(|(innermost, outer)| {
            let mut levels = vec![innermost];
            for units in outer {
                let inner = &levels[levels.len() - 1];
                levels.push(inner.iter().map(|unit| units[*unit as usize]).collect());
            }
            Topology::levels(levels).unwrap()
        })
    })
}

/// Any components for any number of levels.
fn selections() -> impl Strategy<Value = Selection> {
    let of_units = |algorithm: &&'static weft_algorithms::Algorithm| {
        matches!(
            algorithm.requires.parts,
            Parts::Levels { .. } | Parts::Units
        )
    };
    let algorithms: Vec<_> = registry().filter(of_units).collect();
    let choices = (
        prop::sample::select(algorithms),
        prop::collection::vec(any::<prop::sample::Index>(), 1..=3),
        any::<prop::sample::Index>(),
    );
    choices.prop_map(|(algorithm, levels, top)| {
        let Parts::Levels { inner, .. } = algorithm.requires.parts else {
            return Selection {
                algorithm,
                parts: Vec::new(),
            };
        };
        let tops = registry().filter(|top| {
            top.collective == algorithm.collective
                && !matches!(top.requires.parts, Parts::Levels { .. })
        });
        let tops: Vec<&str> = tops.map(|top| top.name).collect();
        let levels = levels.iter().map(|level| level.get(inner).name);
        let parts = levels.chain([*top.get(&tops)]).map(Part::Algorithm);
        Selection {
            algorithm,
            parts: parts.collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verified_on_any_topology(
        topology in topologies(),
        selection in selections(),
        root in any::<prop::sample::Index>(),
        memory in prop::sample::select(&[MemoryClass::Ordinary, MemoryClass::Symmetric]),
    ) {
        let root = root.index(topology.ranks() as usize) as u32;
        let collective = collectives(root)
            .find(|(name, _)| *name == selection.algorithm.collective)
            .unwrap()
            .1;
        verified(&selection, &request(collective, memory, &topology));
    }
}

/// Simulators build single ranks of large groups: that must not take longer than the rank itself
/// needs.
#[test]
fn one_rank_of_a_hundred_thousand() {
    let topology = Topology::hosts(&hosts(100_000, 8));
    let asked = request(Collective::AllReduce, MemoryClass::Ordinary, &topology);
    for (name, exchanges) in [
        ("multi-rail(slice-reduce, ring)", 2 * 12_499),
        ("leaders(slice-reduce, ring)", 2 * 12_499),
        ("torus", 4 * 12_499),
    ] {
        let selection = select("all-reduce", name).unwrap();
        let program = selection.build(&asked);
        let cost = selection.cost(&asked);
        let rounds: u32 = cost.phases.iter().map(|phase| phase.rounds).sum();
        assert!(
            (exchanges..exchanges + 10).contains(&rounds),
            "{name}: {rounds} rounds"
        );
        assert!(program.steps.len() < 10 * exchanges as usize, "{name}");
    }
}

/// The greatest share, and all together.
fn volume(by_rank: &[Traffic], grid: &Grid) -> Volume {
    let shares = by_rank.iter().map(|traffic| traffic.share(grid).unwrap());
    let sum = |a: Share, b: &Share| {
        Share::new(
            a.numerator * b.denominator + b.numerator * a.denominator,
            a.denominator * b.denominator,
        )
    };
    let shares: Vec<Share> = shares.collect();
    let most = shares
        .iter()
        .max_by(|a, b| (a.numerator * b.denominator).cmp(&(b.numerator * a.denominator)));
    Volume {
        most: *most.unwrap(),
        total: shares.iter().fold(Volume::NOTHING.total, sum),
    }
}

/// Compares the verifier's counts with the figures of the sources.
fn check_textbook(selection: &Selection, asked: &ScheduleRequest<'_>, even: bool) {
    let name = format!("{} {asked:?}", selection.name());
    let textbook = selection.textbook(asked).expect("memory is ordinary");
    let (report, programs) = verified(selection, asked);
    let grid = &programs[0].grid;
    let (sent, read) = (volume(&report.sent, grid), volume(&report.read, grid));
    let steps = u64::from(report.latency_steps);
    if even {
        assert_eq!((sent, read), (textbook.sent, textbook.read), "{name}");
        // Ranks that read each other's memory say at last that they are done: that overlaps with
        // the first rounds of the next part.
        let overlap = ["slice-reduce", "mapped"];
        let overlaps = overlap.iter().any(|part| selection.name().contains(part));
        assert!(
            steps == textbook.steps || overlaps && steps < textbook.steps,
            "{name}: {steps} steps, not {}",
            textbook.steps
        );
        return;
    }
    assert_eq!(
        (sent.total, read.total),
        (textbook.sent.total, textbook.read.total),
        "{name}"
    );
    let at_most = |a: Share, b: Share| a.numerator * b.denominator <= b.numerator * a.denominator;
    let bound = at_most(sent.most, textbook.sent.most) && at_most(read.most, textbook.read.most);
    assert!(
        bound && steps <= textbook.steps,
        "{name}: {steps} steps, {sent:?}, {read:?}: {textbook:?}"
    );
}

fn check_textbooks(hosts: &[u32], even: bool) {
    let topology = Topology::hosts(hosts);
    for (name, collective) in collectives(0) {
        for selection in composed(name, &topology) {
            if matches!(selection.algorithm.requires.parts, Parts::Units) {
                continue;
            }
            let request = request(collective, MemoryClass::Ordinary, &topology);
            check_textbook(&selection, &request, even);
        }
    }
}

#[test]
fn costs_are_those_of_the_literature() {
    for (count, each) in [
        (2, 2),
        (2, 3),
        (3, 2),
        (3, 4),
        (4, 8),
        (8, 4),
        (5, 5),
        (7, 3),
    ] {
        check_textbooks(&hosts(count * each, each), true);
    }
}

#[test]
fn costs_of_unequal_units_match_the_literature() {
    for units in [[3, 2, 2], [4, 1, 3], [2, 6, 5]] {
        let hosts = (0..).zip(units).flat_map(|(host, size)| vec![host; size]);
        check_textbooks(&hosts.collect::<Vec<u32>>(), false);
    }
}
