//! Tests of the agreement: groups whose ranks are cut off, given up and killed at any moment, and
//! whose words come late, out of order, or never.

use std::collections::HashSet;

use super::*;

/// A group, with what is under way between its ranks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    ranks: Vec<Agreement>,
    lives: Vec<bool>,
    under_way: BTreeMap<(u32, u32), Vec<ShrinkWord>>,
}

impl World {
    fn new(size: u32) -> Self {
        World {
            ranks: (0..size).map(|rank| Agreement::new(rank, size)).collect(),
            lives: vec![true; size as usize],
            under_way: BTreeMap::new(),
        }
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// What a rank says is under way from now on; what it says again is under way once.
    fn send(&mut self, from: u32, words: Words) {
        for (to, word) in words {
            let words = self.under_way.entry((from, to)).or_default();
            if !words.contains(&word) {
                words.push(word);
                words.sort();
            }
        }
    }

    fn act(&mut self, rank: u32, act: impl FnOnce(&mut Agreement) -> Words) {
        if self.lives[rank as usize] {
            let words = act(&mut self.ranks[rank as usize]);
            self.send(rank, words);
        }
    }

    fn begin(&mut self, rank: u32) {
        self.act(rank, |agreement| {
            agreement.begin();
            agreement.repeat()
        });
    }

    fn repeat(&mut self, rank: u32) {
        self.act(rank, Agreement::repeat);
    }

    fn give_up(&mut self, rank: u32, other: u32) {
        self.act(rank, |agreement| {
            agreement.give_up(other);
            agreement.advance()
        });
    }

    fn prove(&mut self, rank: u32, ended: u32) {
        assert!(!self.lives[ended as usize], "only what is true is proven");
        self.act(rank, |agreement| {
            agreement.note_ended(ended);
            agreement.advance()
        });
    }

    /// A word arrives, whichever was sent first.
    fn deliver(&mut self, (from, to): (u32, u32), number: usize) {
        let word = self.lose((from, to), number);
        self.act(to, |agreement| agreement.hear(from, &word));
    }

    /// A word never arrives, as its link has ended.
    fn lose(&mut self, pair: (u32, u32), number: usize) -> ShrinkWord {
        let words = self.under_way.get_mut(&pair).expect("it is under way");
        let word = words.remove(number);
        if words.is_empty() {
            self.under_way.remove(&pair);
        }
        word
    }

    /// Everything that can arrive.
    fn arrivals(&self) -> Vec<((u32, u32), usize)> {
        let pairs = self.under_way.iter();
        pairs
            .flat_map(|(pair, words)| (0..words.len()).map(|number| (*pair, number)))
            .collect()
    }

    /// No two ranks that live have decided differently.
    fn check(&self) -> Result<(), String> {
        let living = (0..)
            .zip(&self.ranks)
            .filter(|(rank, _)| self.lives[*rank as usize]);
        let decided = living.filter_map(|(rank, agreement)| Some((rank, agreement.decided()?)));
        let decided: Vec<(u32, &Ranks)> = decided.collect();
        match decided.iter().find(|(_, members)| *members != decided[0].1) {
            Some(other) => Err(format!("{:?} and {other:?}", decided[0])),
            None => Ok(()),
        }
    }

    /// From now on everything arrives, and every end is proven to all.
    fn calm_down(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for rank in 0..self.size() {
                for other in 0..self.size() {
                    if !self.lives[other as usize] {
                        self.prove(rank, other);
                    }
                }
                self.repeat(rank);
            }
            while let Some((pair, number)) = self.arrivals().pop() {
                self.deliver(pair, number);
            }
        }
    }

    fn decisions(&self) -> Vec<Option<Vec<u32>>> {
        let decided = self.ranks.iter().map(Agreement::decided);
        let members = |members: &Ranks| members.iter().copied().collect();
        decided.map(|decided| decided.map(members)).collect()
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(word) * bound as u128) >> 64) as usize
    }
}

/// Mishaps at random.
struct Fate {
    rng: Rng,
    deaths: usize,
    /// Between ranks on different sides nothing arrives.
    sides: Vec<usize>,
}

impl Fate {
    /// Something that can arrive.
    fn arrival(&mut self, world: &World) -> Option<((u32, u32), usize)> {
        let mut arrivals = world.arrivals();
        let together =
            |(from, to): (u32, u32)| self.sides[from as usize] == self.sides[to as usize];
        arrivals.retain(|(pair, _)| together(*pair));
        match arrivals.len() {
            0 => None,
            count => Some(arrivals[self.rng.below(count)]),
        }
    }

    /// Lets one thing happen.
    fn disturb(&mut self, world: &mut World) {
        let size = world.ranks.len();
        let [rank, other] = [self.rng.below(size) as u32, self.rng.below(size) as u32];
        match self.rng.below(40) {
            0 if self.deaths > 0 => {
                self.deaths -= 1;
                world.lives[rank as usize] = false;
            }
            1 | 2 if rank != other => world.give_up(rank, other),
            3..=6 if self.sides[rank as usize] != self.sides[other as usize] => {
                world.give_up(rank, other);
            }
            7..=9 if !world.lives[other as usize] => world.prove(rank, other),
            10..=14 => world.repeat(rank),
            15 | 16 => world.begin(rank),
            17 => {
                let sides = 1 + self.rng.below(2);
                self.sides = (0..size).map(|_| self.rng.below(sides)).collect();
            }
            18 => {
                if let Some((pair, number)) = self.arrival(world) {
                    world.lose(pair, number);
                }
            }
            _ => {
                if let Some((pair, number)) = self.arrival(world) {
                    world.deliver(pair, number);
                }
            }
        }
    }
}

#[test]
fn whatever_happens_nobody_goes_on_beside_others_and_all_go_on_in_the_end() {
    for seed in 1..=10_000_u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let size = 2 + rng.below(5);
        let mut world = World::new(size as u32);
        let (deaths, events) = (rng.below(size), rng.below(300));
        let sides = vec![0; size];
        let mut fate = Fate { rng, deaths, sides };
        for _ in 0..events {
            fate.disturb(&mut world);
            world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        (0..size as u32).for_each(|rank| world.begin(rank));
        world.calm_down(8);
        world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for (rank, decided) in world.decisions().iter().enumerate() {
            assert!(
                decided.is_some() || !world.lives[rank],
                "seed {seed}: rank {rank} waits"
            );
        }
    }
}

#[test]
fn a_whole_group_goes_on_as_it_is() {
    let mut world = World::new(4);
    (0..4).for_each(|rank| world.begin(rank));
    world.calm_down(2);
    assert_eq!(world.decisions(), vec![Some(vec![0, 1, 2, 3]); 4]);
}

#[test]
fn survivors_of_proven_deaths_go_on_however_few() {
    let mut world = World::new(4);
    for rank in 0..3 {
        world.lives[rank] = false;
    }
    world.begin(3);
    world.calm_down(1);
    assert_eq!(world.decisions()[3], Some(vec![3]));
}

#[test]
fn of_a_group_that_is_cut_in_two_the_greater_part_goes_on() {
    for (size, part, goes_on) in [
        (5, vec![2, 3, 4], true),
        (5, vec![0, 1], false),
        (4, vec![0, 3], true),
        (4, vec![1, 2], false),
        (2, vec![1], false),
    ] {
        let mut world = World::new(size);
        part.iter().for_each(|rank| world.begin(*rank));
        for rank in &part {
            for other in (0..size).filter(|other| !part.contains(other)) {
                world.give_up(*rank, other);
            }
        }
        world.calm_down(4);
        let expected = goes_on.then(|| part.clone());
        assert_eq!(
            world.decisions()[part[0] as usize],
            expected,
            "{part:?} of {size}"
        );
    }
}

#[test]
fn who_was_given_up_learns_that_it_is_no_member() {
    let mut world = World::new(3);
    [0, 1].into_iter().for_each(|rank| world.begin(rank));
    [0, 1].into_iter().for_each(|rank| world.give_up(rank, 2));
    world.calm_down(2);
    // Meanwhile the one has ended that it would ask.
    world.lives[0] = false;
    world.begin(2);
    world.calm_down(2);
    assert_eq!(world.decisions(), vec![Some(vec![0, 1]); 3]);
}

#[test]
fn what_the_dead_have_decided_comes_too_late() {
    let mut world = World::new(5);
    (0..5).for_each(|rank| world.begin(rank));
    let between = |world: &mut World, ranks: &[u32]| {
        let within = |pair: &(u32, u32)| ranks.contains(&pair.0) && ranks.contains(&pair.1);
        while let Some((pair, number)) = world.arrivals().into_iter().find(|(p, _)| within(p)) {
            world.deliver(pair, number);
        }
    };
    for rank in [3, 4] {
        world.deliver((rank, 0), 0);
        world.give_up(0, rank);
    }
    between(&mut world, &[0, 1, 2]);
    assert_eq!(world.decisions()[2], Some(vec![0, 1, 2]));
    for ended in 0..3 {
        world.lives[ended as usize] = false;
        [3, 4].into_iter().for_each(|rank| world.prove(rank, ended));
    }
    // What rank 3 has decided is still on its way to rank 4 as well.
    while world.decisions()[3].is_none() {
        let arrivals = world.arrivals().into_iter();
        let mut own = arrivals.filter(|((from, to), _)| *from >= 3 && *to >= 3);
        let (pair, number) = own.next().expect("they agree");
        world.deliver(pair, number);
    }
    assert_eq!(world.decisions()[4], None);
    assert!(world.under_way.contains_key(&(0, 4)));
    between(&mut world, &[0, 4]);
    between(&mut world, &[3, 4]);
    assert_eq!(world.decisions()[3..], vec![Some(vec![3, 4]); 2]);
}

#[test]
fn an_acceptance_counts_with_what_its_sender_knew() {
    let [mut leader, mut other] = [3, 4].map(|rank| {
        let mut agreement = Agreement::new(rank, 7);
        agreement.begin();
        agreement
    });
    let say = |what| ShrinkWord {
        ended: Ranks::new(),
        what,
    };
    (0..3).for_each(|rank| leader.give_up(rank));
    for rank in 4..7 {
        leader.hear(rank, &say(ShrinkStep::Here));
    }
    let ballot = 1 << ROUND_SHIFT | 3;
    let promise = other.hear(3, &say(ShrinkStep::Prepare { ballot }));
    leader.hear(4, &promise[0].1);
    let accepted = None;
    leader.hear(5, &say(ShrinkStep::Promise { ballot, accepted }));
    [0, 1, 2, 6]
        .into_iter()
        .for_each(|rank| leader.note_ended(rank));
    let of_other = |words: Words| words.into_iter().find(|(to, _)| *to == 4).unwrap().1;
    let answer = other.hear(3, &of_other(leader.advance()));
    // What rank 5 has learnt from the others in time, it may have passed on before its end.
    leader.note_ended(5);
    leader.hear(4, &answer[0].1);
    assert_eq!(leader.decided(), None);
    let answer = other.hear(3, &of_other(leader.repeat()));
    leader.hear(4, &answer[0].1);
    assert_eq!(leader.decided(), Some(&Ranks::from([3, 4, 5])));
    let members = Ranks::from([0, 1, 2, 6]);
    other.hear(5, &say(ShrinkStep::Decided { members }));
    assert_eq!(other.decided(), None);
}

/// What is left to happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Mishaps {
    deaths: u32,
    suspicions: u32,
    retries: u32,
}

/// Goes through every order of everything that can happen. Returns how many states there are.
fn explore(world: World, mishaps: Mishaps) -> usize {
    let mut seen = HashSet::new();
    let mut ahead = vec![(world, mishaps)];
    while let Some((world, mishaps)) = ahead.pop() {
        if !seen.insert((world.clone(), mishaps)) {
            continue;
        }
        world.check().unwrap_or_else(|error| panic!("{error}"));
        let mut then = |left: Mishaps, act: &dyn Fn(&mut World)| {
            let mut next = world.clone();
            act(&mut next);
            if !seen.contains(&(next.clone(), left)) {
                ahead.push((next, left));
            }
        };
        for (pair, number) in world.arrivals() {
            then(mishaps, &|next| next.deliver(pair, number));
        }
        for rank in 0..world.size() {
            if let Some(retries) = mishaps.retries.checked_sub(1) {
                then(Mishaps { retries, ..mishaps }, &|next| next.repeat(rank));
            }
            if let (Some(deaths), true) =
                (mishaps.deaths.checked_sub(1), world.lives[rank as usize])
            {
                then(Mishaps { deaths, ..mishaps }, &|next| {
                    next.lives[rank as usize] = false;
                    // What was to come to it never does.
                    next.under_way.retain(|(_, to), _| *to != rank);
                });
            }
            for other in (0..world.size()).filter(|other| *other != rank) {
                if !world.lives[other as usize] {
                    then(mishaps, &|next| next.prove(rank, other));
                } else if let Some(suspicions) = mishaps.suspicions.checked_sub(1) {
                    then(
                        Mishaps {
                            suspicions,
                            ..mishaps
                        },
                        &|next| next.give_up(rank, other),
                    );
                }
            }
        }
    }
    seen.len()
}

#[test]
fn every_order_of_events_in_small_groups_holds() {
    let pair = Mishaps {
        deaths: 1,
        suspicions: 2,
        retries: 2,
    };
    let a_death = Mishaps {
        deaths: 1,
        suspicions: 1,
        retries: 0,
    };
    let suspicions = Mishaps {
        deaths: 0,
        suspicions: 2,
        retries: 0,
    };
    for (size, mishaps) in [(2, pair), (3, a_death), (3, suspicions)] {
        let mut world = World::new(size);
        (0..size).for_each(|rank| world.begin(rank));
        let states = explore(world, mishaps);
        assert!(states > 500, "{states} states");
    }
}
