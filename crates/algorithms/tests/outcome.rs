//! Plays all ranks' programs, interleaved at random, and looks at what comes out.
//!
//! Simple on purpose, and independent of the verifier: values are lists of contributions.

use std::collections::{BTreeSet, HashMap};

use weft_algorithms::{Algorithm, Memory, Request, Sizes, registry};
use weft_schedule::{Buffer, Collective, Schedule, Slice, Step};

/// Which contributions (rank, chunk) a place holds.
type Value = BTreeSet<(u32, u32)>;
type Place = (u32, Buffer, u32);

struct Team {
    programs: Vec<Schedule>,
    next: Vec<usize>,
    signals: HashMap<(u32, u32), u32>,
    memory: HashMap<Place, Value>,
    random: u64,
}

impl Team {
    fn new(programs: Vec<Schedule>, random: u64) -> Self {
        let mut memory = HashMap::new();
        let chunks = programs[0].grid.chunks();
        let collective = programs[0].collective;
        for rank in 0..programs.len() as u32 {
            for chunk in 0..chunks {
                if let Some(buffer) = initial(collective, rank, chunk) {
                    memory.insert((rank, buffer, chunk), Value::from([(rank, chunk)]));
                }
            }
        }
        Team {
            next: vec![0; programs.len()],
            programs,
            signals: HashMap::new(),
            memory,
            random,
        }
    }

    fn play(&mut self) {
        loop {
            let able: Vec<usize> = (0..self.programs.len())
                .filter(|&rank| self.able(rank))
                .collect();
            if able.is_empty() {
                break;
            }
            self.random = self
                .random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let rank = able[(self.random >> 33) as usize % able.len()];
            let step = self.programs[rank].steps[self.next[rank]].clone();
            self.next[rank] += 1;
            self.step(rank as u32, step);
        }
        for (rank, program) in self.programs.iter().enumerate() {
            assert_eq!(
                self.next[rank],
                program.steps.len(),
                "rank {rank} is stuck: {program:?}"
            );
        }
    }

    fn able(&self, rank: usize) -> bool {
        match self.programs[rank].steps.get(self.next[rank]) {
            None => false,
            Some(&Step::Wait { from, id }) => self
                .signals
                .get(&(from, rank as u32))
                .is_some_and(|&sent| sent > id),
            Some(_) => true,
        }
    }

    fn step(&mut self, rank: u32, step: Step) {
        match step {
            Step::Signal { to, id } => {
                let sent = self.signals.entry((rank, to)).or_default();
                assert_eq!(*sent, id);
                *sent += 1;
            }
            Step::Wait { .. } => {}
            Step::Copy { dsts, src, .. } => {
                let values = self.read(&src);
                dsts.iter().for_each(|dst| self.write(dst, &values));
            }
            Step::Reduce { dsts, srcs, .. } => {
                let mut sums = vec![Value::new(); srcs[0].chunks.len()];
                for src in &srcs {
                    for (sum, value) in sums.iter_mut().zip(self.read(src)) {
                        for contribution in value {
                            assert!(
                                sum.insert(contribution),
                                "{contribution:?} is counted twice"
                            );
                        }
                    }
                }
                dsts.iter().for_each(|dst| self.write(dst, &sums));
            }
        }
    }

    fn places<'a>(&'a self, slice: &'a Slice) -> impl Iterator<Item = Place> + 'a {
        slice.chunks.clone().map(move |chunk| match slice.buffer {
            Buffer::Scratch { entry, base } => {
                assert!(chunk - base < self.programs[0].scratch[entry as usize]);
                (slice.rank, Buffer::Scratch { entry, base: 0 }, chunk - base)
            }
            Buffer::Landing { from, entry, base } => {
                assert!(chunk - base < self.programs[0].landing[entry as usize]);
                let buffer = Buffer::Landing {
                    from,
                    entry,
                    base: 0,
                };
                (slice.rank, buffer, chunk - base)
            }
            buffer => (slice.rank, buffer, chunk),
        })
    }

    fn read(&self, slice: &Slice) -> Vec<Value> {
        self.places(slice)
            .map(|place| {
                self.memory
                    .get(&place)
                    .unwrap_or_else(|| panic!("{place:?} is not there yet"))
                    .clone()
            })
            .collect()
    }

    fn write(&mut self, slice: &Slice, values: &[Value]) {
        let places: Vec<Place> = self.places(slice).collect();
        assert_eq!(places.len(), values.len());
        for (place, value) in places.into_iter().zip(values) {
            assert_ne!(place.1, Buffer::Input);
            self.memory.insert(place, value.clone());
        }
    }
}

/// Where the caller leaves its data.
fn initial(collective: Collective, rank: u32, chunk: u32) -> Option<Buffer> {
    let given = match collective {
        Collective::AllReduce | Collective::Reduce { .. } => return Some(Buffer::Output),
        Collective::Broadcast { root } => return (rank == root).then_some(Buffer::Output),
        Collective::AllGather | Collective::Gather { .. } => rank == chunk,
        Collective::ReduceScatter | Collective::AllToAll => true,
        Collective::Scatter { root } => rank == root,
        Collective::Barrier => false,
    };
    given.then_some(Buffer::Input)
}

/// What a rank's output has to hold in the end, if that is specified.
fn expected(collective: Collective, ranks: u32, rank: u32, chunk: u32) -> Option<Value> {
    let all = || (0..ranks).map(|from| (from, chunk)).collect();
    let owned = |from| Value::from([(from, chunk)]);
    match collective {
        Collective::AllReduce => Some(all()),
        Collective::Reduce { root } if rank == root => Some(all()),
        Collective::Reduce { .. } => Some(owned(rank)),
        Collective::Broadcast { root } => Some(owned(root)),
        Collective::AllGather => Some(owned(chunk)),
        Collective::ReduceScatter => (rank == chunk).then(all),
        Collective::AllToAll => Some(Value::from([(chunk, rank)])),
        Collective::Gather { root } => (rank == root).then(|| owned(chunk)),
        Collective::Scatter { root } => (rank == chunk).then(|| owned(root)),
        Collective::Barrier => None,
    }
}

fn check(algorithm: &Algorithm, request: Request, random: u64) {
    let programs: Vec<Schedule> = (0..request.ranks)
        .map(|rank| (algorithm.build)(&Request { rank, ..request }))
        .collect();
    let chunks = programs[0].grid.chunks();
    let mut team = Team::new(programs, random);
    team.play();
    for rank in 0..request.ranks {
        for chunk in 0..chunks {
            if let Some(value) = expected(request.collective, request.ranks, rank, chunk) {
                let place = (rank, Buffer::Output, chunk);
                assert_eq!(
                    team.memory.get(&place),
                    Some(&value),
                    "{} {request:?} {place:?}",
                    algorithm.name
                );
            }
        }
    }
}

fn collectives(name: &str, ranks: u32) -> Vec<Collective> {
    let roots = 0..ranks.min(9);
    match name {
        "all-reduce" => vec![Collective::AllReduce],
        "all-gather" => vec![Collective::AllGather],
        "reduce-scatter" => vec![Collective::ReduceScatter],
        "all-to-all" => vec![Collective::AllToAll],
        "barrier" => vec![Collective::Barrier],
        "reduce" => roots.map(|root| Collective::Reduce { root }).collect(),
        "broadcast" => roots.map(|root| Collective::Broadcast { root }).collect(),
        "gather" => roots.map(|root| Collective::Gather { root }).collect(),
        "scatter" => roots.map(|root| Collective::Scatter { root }).collect(),
        other => panic!("unknown collective {other}"),
    }
}

#[test]
fn every_algorithm_gives_the_right_result() {
    for algorithm in registry() {
        for ranks in (1..=9).chain([16, 17]) {
            for collective in collectives(algorithm.collective, ranks) {
                for memory in [Memory::Ordinary, Memory::Symmetric] {
                    for random in 0..3 {
                        let request = Request {
                            collective,
                            ranks,
                            rank: 0,
                            memory,
                            sizes: Sizes::Equal,
                        };
                        check(algorithm, request, random);
                    }
                }
            }
        }
    }
}
