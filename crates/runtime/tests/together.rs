//! Tests of concurrency: random concurrent operations, several groups from several threads, and
//! groups within groups.

mod ranks;

use std::time::Duration;

use ranks::arena::{Arena, perform};
use ranks::case::{BlockCounts, Case};
use ranks::choices::{ForcedChoice, choices};
use ranks::judge::{check, named};
use ranks::{Ranks, Rng, Setup, fresh_seed, numbers};
use weft_kernels::DType;
use weft_runtime::{Group, SplitOptions, Symmetric, Tiling, TransportChoice, Work};
use weft_schedule::Collective;
use weft_transport_testing::strict;

/// Concurrent operations of one group: more than the runtime runs at a time.
const WINDOW: usize = 7;

fn random_case(rng: &mut Rng, ranks: u32, choices: &[ForcedChoice]) -> Case {
    let root = rng.below(ranks as usize) as u32;
    let (name, collective) = *rng.one_of(&[
        ("all-reduce", Collective::AllReduce),
        ("all-reduce", Collective::AllReduce),
        ("reduce", Collective::Reduce { root }),
        ("broadcast", Collective::Broadcast { root }),
        ("all-gather", Collective::AllGather),
        ("reduce-scatter", Collective::ReduceScatter),
        ("all-to-all", Collective::AllToAll),
        ("gather", Collective::Gather { root }),
        ("scatter", Collective::Scatter { root }),
        ("barrier", Collective::Barrier),
    ]);
    let dtype = *rng.one_of(&DType::ALL);
    let op = *rng.one_of(&numbers::ops(dtype, ranks));
    let (blocks, per_rank) = random_blocks(rng, collective, ranks as usize);
    let legal: Vec<&ForcedChoice> = choices
        .iter()
        .filter(|choice| choice.collective == name)
        .filter(|choice| choice.requires.per_rank_sizes || !per_rank)
        .collect();
    let in_place = rng.below(2) == 0;
    Case {
        collective,
        algorithm: (rng.below(2) == 0).then(|| rng.one_of(&legal).name.clone()),
        tiling: Tiling {
            tile_bytes: (rng.below(3) == 0).then(|| 64 + rng.below(5000) as u64),
            tiles_in_flight: (rng.below(3) == 0).then_some(1),
        },
        wire: None,
        dtype,
        op,
        blocks,
        in_place,
        symmetric: rng.below(3) == 0,
        priority: rng.below(4) as i32 - 1,
        seed: rng.next(),
    }
}

/// The sizes, and whether they differ between ranks.
fn random_blocks(rng: &mut Rng, collective: Collective, ranks: usize) -> (BlockCounts, bool) {
    let largest = *rng.one_of(&[1, 20, 20, 2000, 2000, 2000, 70_000]);
    let mut list = || {
        (0..ranks)
            .map(|_| rng.below(largest + 1))
            .collect::<Vec<usize>>()
    };
    let (first, second) = (list(), list());
    let vector = matches!(
        collective,
        Collective::AllReduce
            | Collective::Reduce { .. }
            | Collective::Broadcast { .. }
            | Collective::Barrier
    );
    if vector || second[0] % 3 > 0 {
        return (BlockCounts::Equal(first[0]), false);
    }
    match collective {
        Collective::AllToAll => {
            let pairs = (0..ranks).map(|from| {
                let shifted = first.iter().map(|n| n * (from + 1) % (largest + 1));
                shifted.collect()
            });
            (BlockCounts::PerPair(pairs.collect()), true)
        }
        _ => (BlockCounts::PerRank(first), true),
    }
}

/// An operation for the calling-thread path, mostly with a root. Every other one names its
/// algorithm.
fn short_case(rng: &mut Rng, ranks: u32, choices: &[ForcedChoice]) -> Case {
    let root = rng.below(ranks as usize) as u32;
    // A root can run ahead only if it stays the same.
    let root = if rng.below(4) > 0 { 0 } else { root };
    let collective = *rng.one_of(&[
        Collective::Broadcast { root },
        Collective::Broadcast { root },
        Collective::Scatter { root },
        Collective::Gather { root },
        Collective::Reduce { root },
        Collective::AllReduce,
        Collective::AllToAll,
    ]);
    let largest = *rng.one_of(&[1, 20, 500, 2000, 20_000]);
    let dtype = *rng.one_of(&[DType::F32, DType::F64, DType::U8]);
    let collective_name = collective.name();
    let legal: Vec<&ForcedChoice> = (choices.iter())
        .filter(|choice| choice.collective == collective_name)
        .collect();
    Case {
        algorithm: (rng.below(2) == 0).then(|| rng.one_of(&legal).name.clone()),
        dtype,
        blocks: BlockCounts::Equal(rng.below(largest + 1)),
        in_place: rng.below(2) == 0,
        symmetric: rng.below(3) == 0,
        seed: rng.next(),
        ..Case::simple(collective, 0)
    }
}

fn random_cases(seed: u64, count: usize, ranks: u32, setup: &Setup) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let choices = choices(setup, ranks);
    (0..count)
        .map(|_| random_case(&mut rng, ranks, &choices))
        .collect()
}

/// One rank's part in a list of operations. `rng` makes the rank's own decisions.
struct RankScript<'a> {
    group: &'a Group,
    cases: &'a [Case],
    memory: Symmetric,
    /// Bytes of symmetric memory per operation.
    part: usize,
    rng: Rng,
    flying: Vec<(usize, Arena, Work)>,
    outputs: Vec<Vec<u8>>,
}

impl<'a> RankScript<'a> {
    /// Runs all operations. Returns their outputs.
    fn play(group: &'a Group, cases: &'a [Case], rng: Rng) -> Vec<Vec<u8>> {
        let needed = cases.iter().map(|case| Arena::needed(case, group.size()));
        let part = needed.max().unwrap_or(0);
        let mut script = RankScript {
            group,
            cases,
            memory: group.symmetric((part * WINDOW) as u64).unwrap(),
            part,
            rng,
            flying: Vec::new(),
            outputs: vec![Vec::new(); cases.len()],
        };
        for index in 0..cases.len() {
            script.start(index);
            if index % 16 == 7 {
                script.exchange(index as u64);
            }
        }
        while !script.flying.is_empty() {
            script.end_any();
        }
        script.outputs
    }

    fn start(&mut self, index: usize) {
        // An earlier operation uses its part of the memory.
        if let Some(position) = self.flying.iter().position(|(i, ..)| i + WINDOW == index) {
            self.end(position);
        }
        while self.rng.below(WINDOW) < self.flying.len() {
            self.end_any();
        }
        // Sometimes a rank is late.
        let turns = if self.rng.below(8) == 0 { 300 } else { 0 };
        (0..turns).for_each(|_| std::thread::yield_now());
        let case = &self.cases[index];
        let at = index % WINDOW * self.part;
        // Sometimes a single rank has no symmetric memory.
        let shared = (self.rng.below(8) > 0).then_some((&self.memory, at));
        let arena = Arena::new(case, self.group, shared);
        let background = self.rng.below(2) == 0;
        let work = arena.issue(case, self.group, background);
        let work = work.unwrap_or_else(|error| panic!("{error}: {case:?}"));
        self.flying.push((index, arena, work));
    }

    fn end_any(&mut self) {
        let position = self.rng.below(self.flying.len());
        self.end(position);
    }

    fn end(&mut self, position: usize) {
        let (index, arena, work) = self.flying.swap_remove(position);
        let case = &self.cases[index];
        let (rank, ranks) = (self.group.rank(), self.group.size());
        self.outputs[index] = named(
            &format!("case {index}, rank {rank} of {ranks}: {case:?}"),
            || {
                work.wait(None, &mut || false).unwrap();
                arena.finish()
            },
        );
    }

    /// A message to the next rank and one from the previous rank, during other operations.
    fn exchange(&mut self, tag: u64) {
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let bytes = (tag as usize * 7919) % 150_000;
        let message =
            |from: u32| numbers::any_bytes(bytes, &mut Rng::new(tag << 8 | u64::from(from)));
        let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let (sent, mut received) = (message(rank), vec![0; bytes]);
        // SAFETY: the memory is kept until the waits are over.
        let send = unsafe {
            self.group
                .send(to, tag, sent.as_ptr(), bytes as u64, None, true)
        };
        let memory = received.as_mut_ptr();
        // SAFETY: as above.
        let receive = unsafe {
            self.group
                .receive(Some(from), tag, memory, bytes as u64, None, true)
        };
        send.unwrap().wait(None, &mut || false).unwrap();
        receive.unwrap().wait(None, &mut || false).unwrap();
        assert!(
            received == message(from),
            "message {tag} from rank {from} is wrong"
        );
    }
}

/// `outputs[rank][case]`.
fn check_all(cases: &[Case], outputs: &[&[Vec<u8>]]) {
    for (index, case) in cases.iter().enumerate() {
        let of_case: Vec<Vec<u8>> = outputs
            .iter()
            .map(|of_rank| of_rank[index].clone())
            .collect();
        named(&format!("case {index}: {case:?}"), || check(case, &of_case));
    }
}

fn random_run(setup: &Setup, ranks: u32, count: usize) {
    let seed = fresh_seed();
    named(&format!("{ranks} ranks, {setup:?}, seed {seed}"), || {
        let cases = random_cases(seed, count, ranks, setup);
        let outputs = Ranks::run(setup.clone(), ranks, |group| {
            RankScript::play(group, &cases, Rng::new(seed + 1 + u64::from(group.rank())))
        });
        let outputs: Vec<&[Vec<u8>]> = outputs.iter().map(Vec::as_slice).collect();
        check_all(&cases, &outputs);
    });
}

const RANDOM: usize = 300;

#[test]
fn random_operations_over_loopback() {
    (2..=5).for_each(|ranks| random_run(&TransportChoice::Loopback.into(), ranks, RANDOM));
}

#[test]
fn random_operations_over_shared_memory() {
    (2..=5).for_each(|ranks| random_run(&TransportChoice::Shm.into(), ranks, RANDOM));
}

#[test]
fn random_operations_over_tcp() {
    (2..=5).for_each(|ranks| random_run(&TransportChoice::Tcp.into(), ranks, RANDOM));
}

#[test]
fn random_operations_over_strict_links() {
    (2..=5).for_each(|ranks| random_run(&TransportChoice::Custom(strict).into(), ranks, RANDOM));
}

#[test]
fn random_operations_over_several_hosts() {
    for hosts in [&[0, 1][..], &[0, 1, 1], &[0, 0, 1, 1], &[0, 1, 2, 1, 0]] {
        random_run(&Setup::on_hosts(hosts), hosts.len() as u32, RANDOM);
    }
}

/// Ranks that run ahead must not overwrite data that others have not read.
#[test]
fn consecutive_short_operations() {
    let choices_of = |ranks| choices(&TransportChoice::Shm.into(), ranks);
    for (ranks, count) in [2, 3, 4, 5, 6, 7, 8, 9].map(|ranks| (ranks, 5000 / ranks as usize)) {
        let (seed, choices) = (fresh_seed(), choices_of(ranks));
        named(&format!("{ranks} ranks, seed {seed}"), || {
            let mut rng = Rng::new(seed);
            let cases: Vec<Case> = (0..count)
                .map(|_| short_case(&mut rng, ranks, &choices))
                .collect();
            let outputs = Ranks::run(TransportChoice::Shm, ranks, |group| {
                RankScript::play(group, &cases, Rng::new(seed + 1 + u64::from(group.rank())))
            });
            let outputs: Vec<&[Vec<u8>]> = outputs.iter().map(Vec::as_slice).collect();
            check_all(&cases, &outputs);
        });
    }
}

/// A group of some ranks within a larger one, with its operations.
struct SubGroup {
    ranks: Vec<u32>,
    cases: Vec<Case>,
}

/// Every rank uses all of its groups concurrently, with a thread for each.
fn groups_at_once(setup: &Setup, ranks: u32, parts: &[&[u32]]) {
    let seed = fresh_seed();
    let parts: Vec<SubGroup> = (0..)
        .zip(parts)
        .map(|(i, members)| SubGroup {
            ranks: members.to_vec(),
            cases: random_cases(seed + i, 80, members.len() as u32, &setup.of_ranks(members)),
        })
        .collect();
    named(&format!("{setup:?}, seed {seed}"), || {
        let outputs = Ranks::run(setup.clone(), ranks, |world| {
            let outputs = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..)
                    .zip(&parts)
                    .map(|(i, part)| scope.spawn(move || play_part(world, i, part, seed)))
                    .collect();
                threads
                    .into_iter()
                    .map(|t| t.join().unwrap())
                    .collect::<Vec<_>>()
            });
            // No rank leaves while others are still busy.
            perform(&Case::simple(Collective::Barrier, 0), world, None);
            outputs
        });
        for (i, part) in parts.iter().enumerate() {
            let of_part = part.ranks.iter().map(|rank| &outputs[*rank as usize][i]);
            let of_part: Option<Vec<&[Vec<u8>]>> = of_part.map(Option::as_deref).collect();
            check_all(&part.cases, &of_part.expect("all members took part"));
        }
    });
}

fn play_part(world: &Group, number: u64, part: &SubGroup, seed: u64) -> Option<Vec<Vec<u8>>> {
    let options = SplitOptions {
        timeout: Some(Duration::from_secs(60)),
        ..SplitOptions::default()
    };
    let group = world
        .split(&part.ranks, &format!("part {number}"), options)
        .unwrap()?;
    let rng = Rng::new(seed ^ (number + 1) << 32 ^ u64::from(world.rank()));
    Some(RankScript::play(&group, &part.cases, rng))
}

#[test]
fn groups_of_the_same_ranks_from_several_threads() {
    for transport in [TransportChoice::Loopback, TransportChoice::Shm] {
        groups_at_once(&transport.into(), 3, &[&[0, 1, 2], &[0, 1, 2], &[2, 0, 1]]);
    }
    groups_at_once(
        &TransportChoice::Tcp.into(),
        3,
        &[&[0, 1, 2], &[0, 1, 2], &[2, 0, 1]],
    );
}

#[test]
fn groups_within_and_across_hosts() {
    groups_at_once(
        &Setup::on_hosts(&[0, 0, 1, 1, 1]),
        5,
        &[
            // The ranks of one host share memory, regardless of the parent group's transports.
            &[0, 1],
            &[4, 2, 3],
            &[0, 2],
            &[3, 1],
            &[4, 3, 2, 1, 0],
        ],
    );
}

#[test]
fn group_of_one_rank() {
    groups_at_once(&TransportChoice::Tcp.into(), 2, &[&[0], &[1], &[1, 0]]);
}
