//! Tests of the agreement: groups whose ranks are cut off, given up and killed at any moment, and
//! whose messages arrive late, out of order, or never.

use std::collections::HashSet;

use super::*;

mod newcomers;

/// A group, with the messages in transit between its ranks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    ranks: Vec<Agreement>,
    alive: Vec<bool>,
    /// The ranks that vote no.
    noes: Ranks,
    in_transit: BTreeMap<(u32, u32), Vec<ShrinkMessage>>,
}

impl World {
    fn new(size: u32) -> Self {
        World {
            ranks: (0..size).map(|rank| Agreement::new(rank, size)).collect(),
            alive: vec![true; size as usize],
            noes: Ranks::new(),
            in_transit: BTreeMap::new(),
        }
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Puts messages in transit; a repeated message only once.
    fn send(&mut self, from: u32, messages: Outbox) {
        for (to, message) in messages {
            let messages = self.in_transit.entry((from, to)).or_default();
            if !messages.contains(&message) {
                messages.push(message);
                messages.sort();
            }
        }
    }

    fn act(&mut self, rank: u32, act: impl FnOnce(&mut Agreement) -> Outbox) {
        if self.alive[rank as usize] {
            let messages = act(&mut self.ranks[rank as usize]);
            self.send(rank, messages);
        }
    }

    fn begin(&mut self, rank: u32) {
        let noes = self.noes.clone();
        self.act(rank, |agreement| {
            agreement.begin(!noes.contains(&rank));
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

    fn prove_end(&mut self, rank: u32, ended: u32) {
        assert!(
            !self.alive[ended as usize],
            "a living rank cannot be proven to have ended"
        );
        self.act(rank, |agreement| {
            agreement.note_ended(ended);
            agreement.advance()
        });
    }

    /// Delivers a message, in any order.
    fn deliver(&mut self, (from, to): (u32, u32), number: usize) {
        let message = self.lose((from, to), number);
        self.act(to, |agreement| agreement.receive(from, &message));
    }

    /// Loses a message, as its link has ended.
    fn lose(&mut self, pair: (u32, u32), number: usize) -> ShrinkMessage {
        let messages = self
            .in_transit
            .get_mut(&pair)
            .expect("a message in transit");
        let message = messages.remove(number);
        if messages.is_empty() {
            self.in_transit.remove(&pair);
        }
        message
    }

    /// All messages that can arrive.
    fn arrivals(&self) -> Vec<((u32, u32), usize)> {
        let pairs = self.in_transit.iter();
        pairs
            .flat_map(|(pair, messages)| (0..messages.len()).map(|number| (*pair, number)))
            .collect()
    }

    /// Checks that no two living ranks have decided differently, and that a unanimous decision has
    /// no member that voted no.
    fn check(&self) -> Result<(), String> {
        let living = (0..)
            .zip(&self.ranks)
            .filter(|(rank, _)| self.alive[*rank as usize]);
        let decided = living.filter_map(|(rank, agreement)| Some((rank, agreement.decided()?)));
        let decided: Vec<(u32, &Survivors)> = decided.collect();
        for other in &decided {
            if other.1 != decided[0].1 {
                return Err(format!("{:?} and {other:?}", decided[0]));
            }
            if other.1.unanimous != other.1.members.is_disjoint(&self.noes) {
                return Err(format!("{other:?}, and no from {:?}", self.noes));
            }
        }
        Ok(())
    }

    /// Delivers all messages, and reports every end to all ranks.
    fn stabilize(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for rank in 0..self.size() {
                for other in 0..self.size() {
                    if !self.alive[other as usize] {
                        self.prove_end(rank, other);
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
        let members = |survivors: &Survivors| survivors.members.iter().copied().collect();
        decided.map(|decided| decided.map(members)).collect()
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(bits) * bound as u128) >> 64) as usize
    }
}

/// Random faults and deliveries.
struct RandomFaults {
    rng: Rng,
    deaths: usize,
    /// Ranks on different sides receive nothing from each other.
    sides: Vec<usize>,
}

impl RandomFaults {
    /// A random message that can arrive.
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

    /// Applies one random event.
    fn disturb(&mut self, world: &mut World) {
        let size = world.ranks.len();
        let [rank, other] = [self.rng.below(size) as u32, self.rng.below(size) as u32];
        match self.rng.below(40) {
            0 if self.deaths > 0 => {
                self.deaths -= 1;
                world.alive[rank as usize] = false;
            }
            1 | 2 if rank != other => world.give_up(rank, other),
            3..=6 if self.sides[rank as usize] != self.sides[other as usize] => {
                world.give_up(rank, other);
            }
            7..=9 if !world.alive[other as usize] => world.prove_end(rank, other),
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
fn random_faults_lead_to_one_decision() {
    for seed in 1..=10_000_u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let size = 2 + rng.below(5);
        let mut world = World::new(size as u32);
        world.noes = (0..size as u32).filter(|_| rng.below(6) == 0).collect();
        let (deaths, events) = (rng.below(size), rng.below(300));
        let sides = vec![0; size];
        let mut faults = RandomFaults { rng, deaths, sides };
        for _ in 0..events {
            faults.disturb(&mut world);
            world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        (0..size as u32).for_each(|rank| world.begin(rank));
        world.stabilize(8);
        world.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for (rank, decided) in world.decisions().iter().enumerate() {
            assert!(
                decided.is_some() || !world.alive[rank],
                "seed {seed}: rank {rank} has not decided"
            );
        }
    }
}

#[test]
fn group_without_failures_keeps_all_ranks() {
    let mut world = World::new(4);
    (0..4).for_each(|rank| world.begin(rank));
    world.stabilize(2);
    assert_eq!(world.decisions(), vec![Some(vec![0, 1, 2, 3]); 4]);
}

#[test]
fn single_survivor_of_ended_ranks_decides() {
    let mut world = World::new(4);
    for rank in 0..3 {
        world.alive[rank] = false;
    }
    world.begin(3);
    world.stabilize(1);
    assert_eq!(world.decisions()[3], Some(vec![3]));
}

#[test]
fn larger_part_of_partitioned_group_decides() {
    for (size, part, decides) in [
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
        world.stabilize(4);
        let expected = decides.then(|| part.clone());
        assert_eq!(
            world.decisions()[part[0] as usize],
            expected,
            "{part:?} of {size}"
        );
    }
}

#[test]
fn given_up_rank_learns_the_decision() {
    let mut world = World::new(3);
    [0, 1].into_iter().for_each(|rank| world.begin(rank));
    [0, 1].into_iter().for_each(|rank| world.give_up(rank, 2));
    world.stabilize(2);
    // The leader that it would ask has ended meanwhile.
    world.alive[0] = false;
    world.begin(2);
    world.stabilize(2);
    assert_eq!(world.decisions(), vec![Some(vec![0, 1]); 3]);
}

#[test]
fn decision_of_ended_ranks_is_ignored() {
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
        world.alive[ended as usize] = false;
        [3, 4]
            .into_iter()
            .for_each(|rank| world.prove_end(rank, ended));
    }
    // Rank 3's decision is still in transit to rank 4 as well.
    while world.decisions()[3].is_none() {
        let arrivals = world.arrivals().into_iter();
        let mut own = arrivals.filter(|((from, to), _)| *from >= 3 && *to >= 3);
        let (pair, number) = own.next().expect("they agree");
        world.deliver(pair, number);
    }
    assert_eq!(world.decisions()[4], None);
    assert!(world.in_transit.contains_key(&(0, 4)));
    between(&mut world, &[0, 4]);
    between(&mut world, &[3, 4]);
    assert_eq!(world.decisions()[3..], vec![Some(vec![3, 4]); 2]);
}

#[test]
fn acceptance_counts_only_with_its_known_ends() {
    let [mut leader, mut other] = [3, 4].map(|rank| {
        let mut agreement = Agreement::new(rank, 7);
        agreement.begin(true);
        agreement
    });
    let say = |step| ShrinkMessage {
        ended: Ranks::new(),
        step,
    };
    (0..3).for_each(|rank| leader.give_up(rank));
    for rank in 4..7 {
        leader.receive(rank, &say(ShrinkStep::Join));
    }
    let ballot = 1 << ROUND_SHIFT | 3;
    let promise = other.receive(3, &say(ShrinkStep::Prepare { ballot }));
    leader.receive(4, &promise[0].1);
    let promise = ShrinkStep::Promise {
        ballot,
        vote: true,
        accepted: None,
    };
    leader.receive(5, &say(promise));
    [0, 1, 2, 6]
        .into_iter()
        .for_each(|rank| leader.note_ended(rank));
    let of_other = |messages: Outbox| messages.into_iter().find(|(to, _)| *to == 4).unwrap().1;
    let answer = other.receive(3, &of_other(leader.advance()));
    // Rank 5 may have passed on what it learned from the others before it ended.
    leader.note_ended(5);
    leader.receive(4, &answer[0].1);
    assert_eq!(leader.decided(), None);
    let answer = other.receive(3, &of_other(leader.repeat()));
    leader.receive(4, &answer[0].1);
    let decided = leader.decided().map(|survivors| &survivors.members);
    assert_eq!(decided, Some(&Ranks::from([3, 4, 5])));
    let survivors = Survivors {
        members: Ranks::from([0, 1, 2, 6]),
        unanimous: true,
    };
    other.receive(5, &say(ShrinkStep::Decided { survivors }));
    assert_eq!(other.decided(), None);
}

/// Faults that may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FaultBudget {
    deaths: u32,
    suspicions: u32,
    retries: u32,
}

/// Explores every order of events. Returns the number of states.
fn explore(world: World, budget: FaultBudget) -> usize {
    let mut seen = HashSet::new();
    let mut ahead = vec![(world, budget)];
    while let Some((world, budget)) = ahead.pop() {
        if !seen.insert((world.clone(), budget)) {
            continue;
        }
        world.check().unwrap_or_else(|error| panic!("{error}"));
        let mut then = |left: FaultBudget, act: &dyn Fn(&mut World)| {
            let mut next = world.clone();
            act(&mut next);
            if !seen.contains(&(next.clone(), left)) {
                ahead.push((next, left));
            }
        };
        for (pair, number) in world.arrivals() {
            then(budget, &|next| next.deliver(pair, number));
        }
        for rank in 0..world.size() {
            if let Some(retries) = budget.retries.checked_sub(1) {
                then(FaultBudget { retries, ..budget }, &|next| next.repeat(rank));
            }
            if let (Some(deaths), true) = (budget.deaths.checked_sub(1), world.alive[rank as usize])
            {
                then(FaultBudget { deaths, ..budget }, &|next| {
                    next.alive[rank as usize] = false;
                    // Messages to it never arrive.
                    next.in_transit.retain(|(_, to), _| *to != rank);
                });
            }
            for other in (0..world.size()).filter(|other| *other != rank) {
                if !world.alive[other as usize] {
                    then(budget, &|next| next.prove_end(rank, other));
                } else if let Some(suspicions) = budget.suspicions.checked_sub(1) {
                    then(
                        FaultBudget {
                            suspicions,
                            ..budget
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
fn every_event_order_in_small_groups_decides_once() {
    let pair = FaultBudget {
        deaths: 1,
        suspicions: 2,
        retries: 2,
    };
    let death = FaultBudget {
        deaths: 1,
        suspicions: 1,
        retries: 0,
    };
    let suspicions = FaultBudget {
        deaths: 0,
        suspicions: 2,
        retries: 0,
    };
    // Rank 1's vote decides: it may die, or be given up, before and after it.
    for (size, budget, noes) in [
        (2, pair, vec![1]),
        (3, death, vec![]),
        (3, death, vec![1]),
        (3, suspicions, vec![1]),
    ] {
        let mut world = World::new(size);
        world.noes = noes.into_iter().collect();
        (0..size).for_each(|rank| world.begin(rank));
        let states = explore(world, budget);
        assert!(states > 500, "{states} states");
    }
}
