//! Test matrix of all algorithms: every transport, element type and operation, many sizes, in place
//! and not, on ordinary and symmetric memory, with bit-identical results on all ranks.

mod ranks;

use ranks::arena::{Arena, perform};
use ranks::case::{BlockCounts, Case};
use ranks::choices::{ForcedChoice, choices, refused};
use ranks::judge::{judged, named};
use ranks::{Ranks, Rng, Setup, fresh_seed, numbers};
use weft_kernels::DType;
use weft_runtime::{Cipher, Encryption, Error, Group, Op, Symmetric, Tiling, TransportChoice};
use weft_schedule::Collective;
use weft_transport_testing::strict;

/// Types and operations for cases that vary other properties.
const SAMPLE: [(DType, Op); 8] = [
    (DType::F32, Op::Sum),
    (DType::U8, Op::BitXor),
    (DType::Bf16, Op::Average),
    (DType::I64, Op::Sum),
    (DType::F16, Op::Max),
    (DType::I32, Op::Average),
    (DType::F64, Op::Product),
    (DType::F32, Op::Average),
];

/// The most ranks for which all cases are run; larger groups run a selection.
const THOROUGH: u32 = 4;

/// Of this many cases of a group, one is run, drawn at random in every run: all take minutes.
const ONE_OF: usize = 3;

/// Larger groups, by their number of ranks.
const LARGER: [u32; 5] = [5, 6, 7, 8, 9];

/// Larger groups, by the host of each rank.
const LARGER_ON_HOSTS: [&[u32]; 5] = [
    &[0, 0, 0, 1, 1],
    &[0, 1, 1, 2, 2, 2],
    &[0, 0, 0, 0, 0, 0, 1],
    &[0, 0, 1, 1, 2, 2, 3, 3],
    &[0, 1, 2, 0, 1, 2, 0, 1, 2],
];

/// Makes the cases for one group.
struct Cases {
    setup: Setup,
    ranks: u32,
    choices: Vec<ForcedChoice>,
    rng: Rng,
    cases: Vec<Case>,
}

impl Cases {
    fn all(setup: &Setup, ranks: u32, seed: u64) -> Vec<Case> {
        let mut cases = Cases {
            setup: setup.clone(),
            ranks,
            choices: choices(setup, ranks),
            rng: Rng::new(seed),
            cases: Vec::new(),
        };
        cases.shapes();
        cases.elements();
        cases.large();
        cases.defaults();
        cases.counts_per_rank();
        cases.cases
    }

    /// Adds the next variant of a case, with fresh data.
    fn add(&mut self, algorithm: &ForcedChoice, collective: Collective, what: (DType, Op, usize)) {
        self.add_variant(algorithm, collective, what, self.cases.len());
    }

    fn add_variant(
        &mut self,
        algorithm: &ForcedChoice,
        collective: Collective,
        (dtype, op, count): (DType, Op, usize),
        variant: usize,
    ) {
        let in_place = variant.is_multiple_of(2);
        let tiling = self.tiling();
        self.cases.push(Case {
            collective,
            algorithm: Some(algorithm.name.clone()),
            tiling,
            wire: None,
            dtype,
            op,
            blocks: BlockCounts::Equal(count),
            in_place,
            symmetric: variant / 2 % 2 == 1,
            priority: 0,
            seed: self.rng.next(),
        });
    }

    /// A tiling that is sometimes small, or one tile at a time.
    fn tiling(&mut self) -> Tiling {
        let number = self.cases.len();
        Tiling {
            tile_bytes: (number % 5 == 4).then(|| 512 << self.rng.below(8)),
            tiles_in_flight: (number % 7 == 6).then_some(1),
        }
    }

    /// Every algorithm, with every size, root and kind of memory.
    fn shapes(&mut self) {
        let counts: &[usize] = match self.ranks <= THOROUGH {
            true => &[0, 1, 3, 17, 1001],
            false => &[1, 1001],
        };
        for algorithm in self.choices.clone() {
            for collective in collectives(algorithm.collective, &self.roots()) {
                for (count, variant) in counts.iter().flat_map(|c| (0..4).map(move |v| (*c, v))) {
                    let (dtype, op) = SAMPLE[self.cases.len() / 4 % SAMPLE.len()];
                    self.add_variant(&algorithm, collective, (dtype, op, count), variant);
                }
            }
        }
    }

    /// Two of each collective.
    fn first_choices(&self) -> Vec<ForcedChoice> {
        let first = self.choices.iter().filter(|choice| choice.place < 2);
        first.cloned().collect()
    }

    fn roots(&self) -> Vec<u32> {
        match self.ranks <= THOROUGH {
            true => (0..self.ranks).collect(),
            false => vec![0, self.ranks / 2, self.ranks - 1],
        }
    }

    /// The first algorithms of a collective with every type and every operation that is defined for
    /// it, the others with some.
    fn elements(&mut self) {
        let mapped = self.setup.all_mapped(self.ranks);
        let counts: &[usize] = match self.ranks <= THOROUGH && mapped {
            true => &[17, 1001, 1001],
            false => &[333],
        };
        for algorithm in self.choices.clone() {
            for dtype in DType::ALL {
                let reduces =
                    ["all-reduce", "reduce", "reduce-scatter"].contains(&algorithm.collective);
                let ops = if reduces {
                    numbers::ops(dtype, self.ranks)
                } else {
                    vec![Op::Sum]
                };
                let all = ops
                    .iter()
                    .flat_map(|op| counts.iter().map(move |c| (*op, *c)));
                let skip = if algorithm.place < 2 { 1 } else { 5 };
                for (op, count) in all.skip(self.rng.below(skip)).step_by(skip) {
                    let root = self.cases.len() as u32 / 3 % self.ranks;
                    let collective = collectives(algorithm.collective, &[root])[0];
                    self.add(&algorithm, collective, (dtype, op, count));
                }
            }
        }
    }

    /// Every algorithm, with messages that need more tiles than there are slots.
    fn large(&mut self) {
        let types = [DType::F32, DType::U8, DType::I64, DType::Bf16];
        for algorithm in self.choices.clone() {
            let count = match algorithm.collective {
                "all-reduce" => 140_003 * self.ranks as usize,
                "reduce" | "broadcast" => 270_011,
                _ => 140_003,
            };
            let variants = if self.ranks < THOROUGH { 4 } else { 1 };
            for variant in 0..variants {
                let index = self.cases.len();
                let root = index as u32 % self.ranks;
                let collective = collectives(algorithm.collective, &[root])[0];
                let dtype = types[(index / 3 + variant) % types.len()];
                let variant = if variants == 1 { index } else { variant };
                self.add_variant(&algorithm, collective, (dtype, Op::Sum, count), variant);
            }
        }
    }

    /// The runtime's choices, from small to medium sizes.
    fn defaults(&mut self) {
        for algorithm in self.first_choices() {
            for count in [2, 3001, 20_021] {
                let root = self.cases.len() as u32 % self.ranks;
                let collective = collectives(algorithm.collective, &[root])[0];
                self.add(&algorithm, collective, (DType::F32, Op::Sum, count));
                self.cases.last_mut().expect("it was added").algorithm = None;
            }
        }
    }

    /// Every algorithm that supports it, with blocks of different sizes.
    fn counts_per_rank(&mut self) {
        let mut able = self.choices.clone();
        able.retain(|choice| choice.requires.per_rank_sizes);
        for algorithm in able {
            for collective in collectives(algorithm.collective, &self.roots()) {
                for largest in [3, 300, 200_003] {
                    if largest > 1000 && self.ranks > THOROUGH {
                        continue;
                    }
                    let (dtype, op) = SAMPLE[self.cases.len() % SAMPLE.len()];
                    self.add(&algorithm, collective, (dtype, op, 0));
                    let blocks = self.uneven(collective, largest);
                    self.cases.last_mut().expect("it was added").blocks = blocks;
                }
            }
        }
    }

    /// Blocks of up to `largest` elements; some are empty.
    fn uneven(&mut self, collective: Collective, largest: usize) -> BlockCounts {
        let ranks = self.ranks as usize;
        let mut list = || -> Vec<usize> {
            (0..ranks)
                .map(|_| match self.rng.below(4) {
                    0 => 0,
                    1 => largest,
                    _ => self.rng.below(largest),
                })
                .collect()
        };
        match collective {
            Collective::AllToAll => BlockCounts::PerPair((0..ranks).map(|_| list()).collect()),
            _ => BlockCounts::PerRank(list()),
        }
    }
}

/// A collective with each of these roots.
fn collectives(name: &str, roots: &[u32]) -> Vec<Collective> {
    let rooted = |of: fn(u32) -> Collective| roots.iter().map(|root| of(*root)).collect();
    match name {
        "all-reduce" => vec![Collective::AllReduce],
        "reduce" => rooted(|root| Collective::Reduce { root }),
        "broadcast" => rooted(|root| Collective::Broadcast { root }),
        "all-gather" => vec![Collective::AllGather],
        "reduce-scatter" => vec![Collective::ReduceScatter],
        "all-to-all" => vec![Collective::AllToAll],
        "gather" => rooted(|root| Collective::Gather { root }),
        "scatter" => rooted(|root| Collective::Scatter { root }),
        "barrier" => vec![Collective::Barrier],
        other => panic!("unknown collective {other}"),
    }
}

/// Checks that algorithms which need unmapped memory are refused.
fn check_refusals(setup: &Setup, group: &Group) {
    for choice in refused(setup, group.size()) {
        let case = Case {
            algorithm: Some(choice.name.clone()),
            ..Case::simple(collectives(choice.collective, &[0])[0], 5)
        };
        let refused = Arena::new(&case, group, None).issue(&case, group, false);
        assert!(
            matches!(refused, Err(Error::Config(_))),
            "{} was not refused",
            choice.name
        );
    }
}

fn check_group(setup: &Setup, ranks: u32) {
    check_cases(setup, ranks, ONE_OF);
}

fn check_cases(setup: &Setup, ranks: u32, one_of: usize) {
    let seed = fresh_seed();
    named(&format!("{setup:?}, seed {seed}"), || {
        let mut cases = Cases::all(setup, ranks, seed);
        let mut rng = Rng::new(seed);
        cases.retain(|_| rng.below(one_of) == 0);
        judged(setup, ranks, &cases, |group, hand_in| {
            check_refusals(setup, group);
            let memory = symmetric_memory(group, &cases);
            for case in &cases {
                hand_in(perform(case, group, Some(&memory)));
            }
        });
    });
}

/// Symmetric memory that suffices for all cases.
fn symmetric_memory(group: &Group, cases: &[Case]) -> Symmetric {
    let needed = cases
        .iter()
        .map(|case| Arena::needed(case, group.size()))
        .max();
    group.symmetric(needed.unwrap_or(1) as u64).unwrap()
}

/// Two of the larger groups, drawn at random in every run, as they take most of the time.
fn drawn<T: Copy>(all: &[T]) -> [T; 2] {
    let mut rng = Rng::new(fresh_seed());
    let first = rng.below(all.len());
    let other = (first + 1 + rng.below(all.len() - 1)) % all.len();
    [all[first], all[other]]
}

fn check_transport(transport: TransportChoice, ranks: impl IntoIterator<Item = u32>) {
    (ranks.into_iter()).for_each(|ranks| check_group(&transport.into(), ranks));
}

#[test]
fn loopback_of_few() {
    check_transport(TransportChoice::Loopback, 1..=4);
}

#[test]
fn loopback_of_more() {
    check_transport(TransportChoice::Loopback, drawn(&LARGER));
}

#[test]
fn shared_memory_of_few() {
    check_transport(TransportChoice::Shm, 1..=4);
}

#[test]
fn shared_memory_of_more() {
    check_transport(TransportChoice::Shm, drawn(&LARGER));
}

#[test]
fn tcp_of_few() {
    check_transport(TransportChoice::Tcp, 1..=4);
}

#[test]
fn tcp_of_more() {
    check_transport(TransportChoice::Tcp, drawn(&LARGER));
}

#[test]
fn several_tcp_connections() {
    let several = Setup {
        tcp_connections: Some(3),
        ..TransportChoice::Tcp.into()
    };
    (2..=3).for_each(|ranks| check_group(&several, ranks));
}

#[test]
fn encrypted_tcp_connections() {
    for (cipher, connections) in [(Cipher::AesGcm, 1), (Cipher::ChaCha20Poly1305, 2)] {
        let encrypted = Setup {
            tcp_connections: Some(connections),
            encryption: Encryption::Only(cipher),
            ..TransportChoice::Tcp.into()
        };
        (2..=3).for_each(|ranks| check_group(&encrypted, ranks));
    }
}

#[test]
fn strict_of_few() {
    check_transport(TransportChoice::Custom(strict), 1..=4);
}

#[test]
fn strict_of_more() {
    check_transport(TransportChoice::Custom(strict), 5..=6);
}

#[test]
fn several_hosts_of_few() {
    for hosts in [
        &[0][..],
        &[0, 1],
        &[0, 0, 1],
        &[0, 1, 1],
        &[0, 0, 1, 1],
        &[0, 1, 0, 1],
    ] {
        check_group(&Setup::on_hosts(hosts), hosts.len() as u32);
    }
}

#[test]
fn several_hosts_of_more() {
    for hosts in drawn(&LARGER_ON_HOSTS) {
        check_group(&Setup::on_hosts(hosts), hosts.len() as u32);
    }
}

#[test]
#[ignore = "takes minutes"]
fn every_case() {
    for transport in [
        TransportChoice::Loopback,
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ] {
        for ranks in (1..=THOROUGH).chain(LARGER) {
            check_cases(&transport.into(), ranks, 1);
        }
    }
    for hosts in LARGER_ON_HOSTS {
        check_cases(&Setup::on_hosts(hosts), hosts.len() as u32, 1);
    }
}

/// Units that users declare and that memory does not show: within one host, across hosts, on
/// several levels.
#[test]
fn declared_units() {
    let pairs: &[u32] = &[0, 0, 1, 1, 2, 2];
    let check = |setup: Setup, levels: &[&[u32]]| {
        check_group(&setup.with_levels(levels), levels[0].len() as u32);
    };
    check(TransportChoice::Shm.into(), &[pairs]);
    check(TransportChoice::Tcp.into(), &[&[0, 0, 1, 1, 1]]);
    check(Setup::on_hosts(&[0, 0, 0, 0, 1, 1]), &[pairs]);
    check(Setup::on_hosts(&[0, 0, 1, 1, 1, 0]), &[pairs]);
    let (inner, outer): (&[u32], &[u32]) = (&[0, 0, 1, 1, 2, 2, 3], &[0, 0, 0, 0, 1, 1, 1]);
    check(TransportChoice::Loopback.into(), &[inner, outer]);
    check(Setup::on_hosts(outer), &[inner, outer]);
}

/// Domains inside hosts that users declare: the fewest, unequal ones, on several levels, and on
/// several hosts.
#[test]
fn declared_domains() {
    let check = |setup: Setup, levels: &[&[u32]]| {
        check_group(&setup.with_domains(levels), levels[0].len() as u32);
    };
    check(TransportChoice::Shm.into(), &[&[0, 1]]);
    check(TransportChoice::Shm.into(), &[&[0, 0, 1]]);
    check(TransportChoice::Shm.into(), &[&[0, 0, 1, 1]]);
    check(TransportChoice::Loopback.into(), &[&[0, 1, 0, 1, 1]]);
    check(TransportChoice::Shm.into(), &[&[0, 0, 0, 1, 1, 2]]);
    check(
        Setup::on_hosts(&[0, 0, 0, 1, 1, 1, 1]),
        &[&[0, 0, 1, 0, 0, 1, 1]],
    );
    let (caches, nodes): (&[u32], &[u32]) = (&[0, 0, 1, 1, 2, 2, 3, 3], &[0, 0, 0, 0, 1, 1, 1, 1]);
    check(TransportChoice::Shm.into(), &[caches, nodes]);
}

#[test]
fn labels_separate_hosts() {
    let hosts = [0, 1, 1, 0, 2];
    let found = Ranks::run(Setup::on_hosts(&hosts), 5, Group::hosts);
    assert!(
        found.iter().all(|hosts| *hosts == [0, 1, 1, 0, 4]),
        "{found:?}"
    );
}

/// Tiles of symmetric memory are larger, as they only let other operations run in between.
#[test]
fn symmetric_memory_of_many_tiles() {
    let seed = fresh_seed();
    let case = |(collective, algorithm, count): (Collective, _, usize)| Case {
        algorithm: Some(str::to_owned(algorithm)),
        dtype: DType::U8,
        in_place: collective == Collective::AllReduce,
        symmetric: true,
        seed,
        ..Case::simple(collective, count)
    };
    let cases = [
        (Collective::AllReduce, "slice-reduce", 25_000_003),
        (Collective::Broadcast { root: 1 }, "mapped", 13_000_001),
        (Collective::AllGather, "mapped", 13_000_001),
    ]
    .map(case);
    named(&format!("seed {seed}"), || {
        judged(&TransportChoice::Shm.into(), 2, &cases, |group, hand_in| {
            let memory = symmetric_memory(group, &cases);
            cases
                .iter()
                .for_each(|case| hand_in(perform(case, group, Some(&memory))));
        });
    });
}

#[test]
fn symmetric_reduce_does_not_write_other_ranks_outputs() {
    let case = Case {
        symmetric: true,
        ..Case::simple(Collective::Reduce { root: 1 }, 5000)
    };
    let cases = [case];
    judged(
        &TransportChoice::Loopback.into(),
        2,
        &cases,
        |group, hand_in| {
            let memory = symmetric_memory(group, &cases);
            hand_in(perform(&cases[0], group, Some(&memory)));
        },
    );
}

#[test]
fn in_place_all_gather_needs_no_other_symmetric_memory() {
    let case = Case {
        in_place: true,
        symmetric: true,
        ..Case::simple(Collective::AllGather, 5000)
    };
    let cases = [case];
    let transport = TransportChoice::Loopback.into();
    judged(&transport, 3, &cases, |group, hand_in| {
        let memory = symmetric_memory(group, &cases);
        hand_in(perform(&cases[0], group, Some(&memory)));
        assert_eq!(group.symmetric_operations(), 1);
    });
}

#[test]
fn blocks_of_different_sizes_are_accessed_in_symmetric_memory() {
    let of = |collective, in_place| Case {
        in_place,
        symmetric: true,
        blocks: BlockCounts::PerRank(vec![3000, 0, 5001]),
        ..Case::simple(collective, 0)
    };
    let cases = [
        of(Collective::AllGather, false),
        of(Collective::AllGather, true),
        of(Collective::ReduceScatter, false),
    ];
    let transport = TransportChoice::Loopback.into();
    judged(&transport, 3, &cases, |group, hand_in| {
        let memory = symmetric_memory(group, &cases);
        for case in &cases {
            hand_in(perform(case, group, Some(&memory)));
        }
        assert_eq!(group.symmetric_operations(), cases.len() as u64);
    });
}
