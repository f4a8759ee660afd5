//! Verification of every algorithm: results, also with reuse of memory by successive tiles and
//! operations, and costs against the literature and the closed forms.

mod family;

use std::collections::BTreeSet;

use family::{RankWork, collectives, flat, options, programs, request, share, work};
use proptest::prelude::*;
use weft_algorithms::{
    Algorithm, Cost, MemoryClass, ScheduleRequest, Sizes, Textbook, Topology, Volume, find,
};
use weft_schedule::{Collective, Grid, Report, Schedule, Traffic, verify};

/// The canonical tree: all contributions in one reduction, in the order of ranks.
fn canonical_tree(ranks: u32) -> String {
    let contributions: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
    format!("final({})", contributions.join(" + "))
}

/// The figures for which the textbook has a formula.
#[derive(PartialEq, Eq, Debug)]
struct TextbookFigures {
    steps: u64,
    sent: Volume,
    read: Volume,
}

fn counted(report: &Report, grid: &Grid) -> TextbookFigures {
    let moved = |by_rank: &[Traffic]| {
        let chunks = || by_rank.iter().map(Traffic::chunks);
        Volume {
            most: share(chunks().max().unwrap_or_default(), grid),
            total: share(chunks().sum(), grid),
        }
    };
    TextbookFigures {
        steps: report.latency_steps.into(),
        sent: moved(&report.sent),
        read: moved(&report.read),
    }
}

fn expected(algorithm: &Algorithm, request: &ScheduleRequest) -> TextbookFigures {
    let textbook = algorithm.textbook(request);
    let Textbook { steps, sent, read } =
        textbook.expect("an algorithm without parts has a formula");
    TextbookFigures { steps, sent, read }
}

/// Checks that the phases of the closed form sum up to the work of the programs.
fn check_cost(cost: &Cost, steps: u32, programs: &[Schedule], topology: &Topology, what: &str) {
    let chunks = f64::from(programs[0].grid.chunks());
    let (by_rank, messages) = work(programs);
    let most = |of: fn(&RankWork) -> u64| by_rank.iter().map(of).max().unwrap_or_default() as f64;
    let rounds: u32 = cost.phases.iter().map(|phase| phase.rounds).sum();
    assert_eq!(rounds, steps, "{what}: rounds");
    let sums = [
        (
            "sent",
            cost.sum(|phase| phase.sent()),
            most(|work| work.sent),
        ),
        (
            "received",
            cost.sum(|phase| phase.received),
            most(|work| work.received),
        ),
        ("read", cost.sum(|phase| phase.read), most(|work| work.read)),
        (
            "reduced",
            cost.sum(|phase| phase.reduced),
            most(|work| work.reduced),
        ),
        (
            "copied",
            cost.sum(|phase| phase.copied),
            most(|work| work.copied),
        ),
    ];
    for (figure, sum, counted) in sums {
        let error = (sum * chunks - counted).abs();
        assert!(
            error < 1e-6,
            "{what}: {figure} is {counted} / {chunks}, but priced {sum}"
        );
    }
    check_crossing(cost, &messages, chunks, topology, what);
}

/// Checks the data over the busiest border. Different phases may be busiest at different borders
/// and in different directions.
fn check_crossing(
    cost: &Cost,
    messages: &[(u32, u32, u64)],
    chunks: f64,
    topology: &Topology,
    what: &str,
) {
    let mut directions = vec![(0, 0); topology.ranks() as usize];
    for &(from, to, chunks) in messages {
        let [from, to] = [from, to].map(|rank| topology.unit_of(0, rank) as usize);
        if from != to {
            directions[from].0 += chunks;
            directions[to].1 += chunks;
        }
    }
    let busiest = directions.iter().map(|(out, into)| *out.max(into)).max();
    let total: u64 = directions.iter().map(|(out, _)| out).sum();
    let sum = cost.sum(|phase| phase.crossing) * chunks;
    let least = busiest.unwrap_or_default() as f64;
    assert!(
        (least - 1e-6..=total as f64 + 1e-6).contains(&sum),
        "{what}: {least} of {total} chunks pass the busiest border, but {sum} are priced"
    );
}

fn check(algorithm: &Algorithm, request: ScheduleRequest) {
    let what = format!("{} {request:?}", algorithm.name);
    let programs = programs(algorithm, request);
    let report = verify(&programs, &options(algorithm, request))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let counted = counted(&report, &programs[0].grid);
    assert_eq!(counted, expected(algorithm, &request), "{what}");
    if request.ranks > 1 {
        let cost = algorithm.cost(&request);
        check_cost(
            &cost,
            report.latency_steps,
            &programs,
            request.topology,
            &what,
        );
        let canonical = canonical_tree(request.ranks);
        let reproducible =
            !report.trees.is_empty() && report.trees.iter().all(|tree| *tree == canonical);
        assert_eq!(report.is_canonical(), reproducible, "{what}");
        if algorithm.requires.reproducible {
            assert!(reproducible, "{what}: {:?}", report.trees);
        }
    }
}

/// Which sizes of blocks the algorithm can deal with.
fn sizes(algorithm: &Algorithm) -> &'static [Sizes] {
    if algorithm.requires.per_rank_sizes {
        &[Sizes::Equal, Sizes::PerRank]
    } else {
        &[Sizes::Equal]
    }
}

/// Hosts of three ranks each, in the order of ranks; the last may have fewer.
fn hosts(ranks: u32) -> Topology {
    Topology::hosts(&(0..ranks).map(|rank| rank / 3).collect::<Vec<u32>>())
}

fn check_all(ranks: impl Iterator<Item = u32> + Clone, roots: usize) {
    for algorithm in flat() {
        for ranks in ranks.clone() {
            let topology = hosts(ranks);
            let collectives = collectives(algorithm.collective, ranks);
            let apart = collectives.len().div_ceil(roots);
            for collective in collectives.into_iter().step_by(apart) {
                assert_eq!(collective.name(), algorithm.collective);
                for memory in [MemoryClass::Ordinary, MemoryClass::Symmetric] {
                    for &sizes in sizes(algorithm) {
                        let request = request(collective, memory, &topology);
                        check(algorithm, ScheduleRequest { sizes, ..request });
                    }
                }
            }
        }
    }
}

#[test]
fn verified_with_every_root_up_to_nine_ranks() {
    check_all(1..=9, usize::MAX);
}

#[test]
fn verified_from_ten_to_thirty_three_ranks() {
    check_all(10..=33, 3);
}

#[test]
fn verified_from_thirty_four_to_sixty_four_ranks() {
    check_all(34..=64, 1);
}

/// Virtual ranks of the Python package need this order of sums.
#[test]
fn sums_are_those_of_a_binary_tree() {
    let any = &[2, 3, 4, 5, 6, 7, 8, 9, 16, 21][..];
    for (collective, name, ranks) in [
        (
            Collective::AllReduce,
            "halving-doubling",
            &[2, 4, 8, 16, 32][..],
        ),
        (Collective::AllReduce, "slice-tree", any),
        (Collective::ReduceScatter, "slice-tree", any),
    ] {
        let algorithm = find(collective.name(), name).expect("it is registered");
        for &ranks in ranks {
            for memory in [MemoryClass::Ordinary, MemoryClass::Symmetric] {
                let topology = hosts(ranks);
                let request = request(collective, memory, &topology);
                let report = verify(&programs(algorithm, request), &options(algorithm, request));
                let trees = report.expect("it is verified above").trees;
                assert!(!trees.is_empty());
                for tree in &trees {
                    assert_eq!(sums(tree), binary_sums(ranks), "{name}: {tree}");
                }
            }
        }
    }
}

/// The ranks whose contributions each sum of a binary tree has: neighbours, neighbouring pairs ...
fn binary_sums(ranks: u32) -> BTreeSet<Vec<u32>> {
    let ranks: Vec<u32> = (0..ranks).collect();
    let levels = (0..ranks.len().next_power_of_two().ilog2()).map(|level| 1 << level);
    let nodes = levels.flat_map(|half| {
        let nodes = ranks.chunks(2 * half);
        nodes.filter(move |node| node.len() > half)
    });
    nodes.map(<[u32]>::to_vec).collect()
}

/// The ranks whose contributions each sum of a tree has.
fn sums(tree: &str) -> BTreeSet<Vec<u32>> {
    let (mut open, mut sums) = (Vec::<Vec<u32>>::new(), BTreeSet::new());
    let spaced = (tree.replace("final", ""))
        .replace('(', "( ")
        .replace(')', " )");
    for word in spaced.split_whitespace() {
        match word {
            "(" => open.push(Vec::new()),
            ")" => {
                let mut sum = open.pop().expect("parentheses match");
                sum.sort_unstable();
                sums.insert(sum);
            }
            "+" => {}
            rank => {
                let rank = rank.parse().expect("a rank");
                open.iter_mut().for_each(|sum| sum.push(rank));
            }
        }
    }
    sums
}

/// Takes half an hour, at most 20 s per schedule, and 6 GiB: `make verify-large`.
#[test]
#[ignore = "takes half an hour"]
fn verified_to_1024() {
    let ranks = [65, 96, 127, 128, 255, 256, 511, 512, 768, 1000, 1023, 1024];
    check_all(ranks.into_iter(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verified_for_any_ranks_and_root(
        algorithm in prop::sample::select(flat().collect::<Vec<_>>()),
        ranks in 34_u32..100,
        root in any::<prop::sample::Index>(),
        memory in prop::sample::select(&[MemoryClass::Ordinary, MemoryClass::Symmetric]),
    ) {
        let collective = *root.get(&collectives(algorithm.collective, ranks));
        check(algorithm, request(collective, memory, &hosts(ranks)));
    }
}
