//! Correct schedules, written by hand, as samples to verify, print and mutate.
#![allow(dead_code, reason = "every test file uses some of them")]

use std::collections::HashMap;
use std::ops::Range;

use weft_schedule::{
    Buffer, Claim, Collective, Encoding, Grid, Mapped, Rank, Schedule, Slice, Step, VerifyOptions,
};

/// A right schedule and the machine that it is right for.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) options: VerifyOptions,
}

/// All samples for a number of ranks from 2.
pub(crate) fn all(ranks: u32) -> Vec<Sample> {
    let sample = |name: &str, schedules, mapped| Sample {
        name: name.into(),
        schedules,
        options: VerifyOptions::mapped(mapped),
    };
    let hosts = VerifyOptions {
        hosts: Some((0..ranks).map(|rank| rank / 2).collect()),
        ..VerifyOptions::mapped(Mapped::All)
    };
    vec![
        sample("ring", ring(ranks), Mapped::None),
        Sample {
            name: "ring over hosts".into(),
            schedules: ring(ranks),
            options: hosts,
        },
        sample("direct", direct(ranks, Encoding::Native), Mapped::None),
        sample("direct bf16", direct(ranks, Encoding::Bf16), Mapped::None),
        sample("slice reduce", slice_reduce(ranks, false), Mapped::All),
        sample(
            "slice reduce claimed",
            slice_reduce(ranks, true),
            Mapped::All,
        ),
        sample(
            "staged slice reduce",
            staged_slice_reduce(ranks),
            Mapped::Scratch,
        ),
        sample("broadcast", broadcast(ranks, ranks - 1), Mapped::None),
        sample("reduce", reduce(ranks, 1), Mapped::None),
        sample("all-gather", all_gather(ranks), Mapped::None),
        sample("all-to-all", all_to_all(ranks), Mapped::None),
        sample("barrier", barrier(ranks), Mapped::None),
    ]
}

/// Builds one rank's program.
pub(crate) struct SampleProgram {
    pub(crate) schedule: Schedule,
    signals: HashMap<Rank, u32>,
    waits: HashMap<Rank, u32>,
}

impl SampleProgram {
    pub(crate) fn new(collective: Collective, ranks: u32, rank: Rank, grid: Grid) -> Self {
        SampleProgram {
            schedule: Schedule {
                collective,
                ranks,
                rank,
                grid,
                scratch: vec![],
                receive: vec![],
                steps: vec![],
            },
            signals: HashMap::new(),
            waits: HashMap::new(),
        }
    }

    pub(crate) fn signal(&mut self, to: Rank) {
        let id = self.signals.entry(to).or_default();
        self.schedule.steps.push(Step::Signal { to, id: *id });
        *id += 1;
    }

    pub(crate) fn wait(&mut self, from: Rank) {
        let id = self.waits.entry(from).or_default();
        self.schedule.steps.push(Step::Wait { from, id: *id });
        *id += 1;
    }

    pub(crate) fn copy(&mut self, dsts: Vec<Slice>, src: Slice) {
        self.schedule.steps.push(Step::Copy {
            dsts,
            src,
            claim: None,
        });
    }

    pub(crate) fn reduce(&mut self, dsts: Vec<Slice>, srcs: Vec<Slice>, is_final: bool) {
        self.schedule.steps.push(Step::Reduce {
            dsts,
            srcs,
            is_final,
            claim: None,
        });
    }
}

pub(crate) fn input(rank: Rank, chunks: Range<u32>) -> Slice {
    Slice {
        rank,
        buffer: Buffer::Input,
        chunks,
        encoding: Encoding::Native,
    }
}

pub(crate) fn output(rank: Rank, chunks: Range<u32>) -> Slice {
    Slice {
        rank,
        buffer: Buffer::Output,
        chunks,
        encoding: Encoding::Native,
    }
}

pub(crate) fn scratch(rank: Rank, entry: u32, chunks: Range<u32>) -> Slice {
    let buffer = Buffer::Scratch {
        entry,
        base: chunks.start,
    };
    Slice {
        rank,
        buffer,
        chunks,
        encoding: Encoding::Native,
    }
}

pub(crate) fn receive(rank: Rank, from: Rank, entry: u32, chunks: Range<u32>) -> Slice {
    let buffer = Buffer::Receive {
        from,
        entry,
        base: chunks.start,
    };
    Slice {
        rank,
        buffer,
        chunks,
        encoding: Encoding::Native,
    }
}

fn encoded(slice: Slice, encoding: Encoding) -> Slice {
    Slice { encoding, ..slice }
}

fn team(ranks: u32, program: impl Fn(Rank) -> SampleProgram) -> Vec<Schedule> {
    (0..ranks).map(|rank| program(rank).schedule).collect()
}

/// Ring reduce-scatter, then ring all-gather; two receive entries take turns.
pub(crate) fn ring(ranks: u32) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::AllReduce, ranks, rank, Grid::Equal(ranks));
        program.schedule.receive = vec![1; 2 * (ranks as usize - 1)];
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for step in 0..2 * (ranks - 1) {
            let chunk = |rank: u32| {
                let chunk = (rank + 3 * ranks - step) % ranks;
                chunk..chunk + 1
            };
            let (sent, received) = (chunk(rank), chunk(before));
            program.copy(
                vec![receive(next, rank, step, sent.clone())],
                output(rank, sent),
            );
            program.signal(next);
            program.wait(before);
            let own = output(rank, received.clone());
            let landed = receive(rank, before, step, received);
            if step < ranks - 1 {
                program.reduce(vec![own.clone()], vec![landed, own], step == ranks - 2);
            } else {
                program.copy(vec![own], landed);
            }
        }
        program
    })
}

/// Every rank sends its vector to every other one, and reduces all.
pub(crate) fn direct(ranks: u32, encoding: Encoding) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program = SampleProgram::new(Collective::AllReduce, ranks, rank, Grid::Equal(1));
        program.schedule.receive = vec![1];
        program.schedule.scratch = vec![1];
        let peers = || (1..ranks).map(|distance| (rank + distance) % ranks);
        let own = encoded(scratch(rank, 0, 0..1), encoding);
        let mut dsts = vec![own.clone()];
        dsts.extend(peers().map(|to| encoded(receive(to, rank, 0, 0..1), encoding)));
        program.copy(dsts, output(rank, 0..1));
        peers().for_each(|to| program.signal(to));
        peers().for_each(|from| program.wait(from));
        let source = |from| match from == rank {
            true => own.clone(),
            false => encoded(receive(rank, from, 0, 0..1), encoding),
        };
        program.reduce(
            vec![output(rank, 0..1)],
            (0..ranks).map(source).collect(),
            true,
        );
        program
    })
}

/// On mapped user memory: every rank reduces its slice of all vectors into all vectors.
pub(crate) fn slice_reduce(ranks: u32, claimed: bool) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::AllReduce, ranks, rank, Grid::Equal(ranks));
        let peers = || (0..ranks).filter(|peer| *peer != rank);
        peers().for_each(|to| program.signal(to));
        peers().for_each(|from| program.wait(from));
        let slices = |owner: u32| {
            (0..ranks)
                .map(move |rank| output(rank, owner..owner + 1))
                .collect()
        };
        let owners = if claimed {
            (rank..ranks).chain(0..rank).collect()
        } else {
            vec![rank]
        };
        for owner in owners {
            let by = (owner..ranks).chain(0..owner).collect();
            let claim = claimed.then_some(Claim { id: owner, by });
            let (dsts, srcs, is_final) = (slices(owner), slices(owner), true);
            program.schedule.steps.push(Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim,
            });
        }
        peers().for_each(|to| program.signal(to));
        peers().for_each(|from| program.wait(from));
        program
    })
}

/// On mapped temporary memory: vectors are copied to scratch, slices reduced there and gathered.
pub(crate) fn staged_slice_reduce(ranks: u32) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::AllReduce, ranks, rank, Grid::Equal(ranks));
        program.schedule.scratch = vec![ranks, 1];
        let peers = || (1..ranks).map(|distance| (rank + distance) % ranks);
        let round = |program: &mut SampleProgram| {
            peers().for_each(|to| program.signal(to));
            peers().for_each(|from| program.wait(from));
        };
        program.copy(vec![scratch(rank, 0, 0..ranks)], output(rank, 0..ranks));
        round(&mut program);
        let slice = rank..rank + 1;
        let vector = |peer| Slice {
            chunks: slice.clone(),
            ..scratch(peer, 0, 0..ranks)
        };
        let dsts = vec![output(rank, slice.clone()), scratch(rank, 1, slice.clone())];
        program.reduce(dsts, (0..ranks).map(vector).collect(), true);
        round(&mut program);
        for peer in peers() {
            let slice = peer..peer + 1;
            program.copy(vec![output(rank, slice.clone())], scratch(peer, 1, slice));
        }
        round(&mut program);
        program
    })
}

/// The root sends to every rank.
pub(crate) fn broadcast(ranks: u32, root: Rank) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::Broadcast { root }, ranks, rank, Grid::Equal(1));
        program.schedule.receive = vec![1];
        if rank == root {
            let peers = || (0..ranks).filter(|peer| *peer != root);
            let dsts = peers().map(|to| receive(to, root, 0, 0..1)).collect();
            program.copy(dsts, output(root, 0..1));
            peers().for_each(|to| program.signal(to));
        } else {
            program.wait(root);
            program.copy(vec![output(rank, 0..1)], receive(rank, root, 0, 0..1));
        }
        program
    })
}

/// A chain of ranks down to 0 and from there to the root, through one scratch entry.
pub(crate) fn reduce(ranks: u32, root: Rank) -> Vec<Schedule> {
    let chain: Vec<Rank> = (0..ranks)
        .filter(|rank| *rank != root)
        .chain([root])
        .collect();
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::Reduce { root }, ranks, rank, Grid::Equal(2));
        program.schedule.receive = vec![2];
        program.schedule.scratch = vec![2];
        let position = chain.iter().position(|link| *link == rank).unwrap();
        let mut held = output(rank, 0..2);
        if position > 0 {
            let before = chain[position - 1];
            program.wait(before);
            let dst = if rank == root {
                held.clone()
            } else {
                scratch(rank, 0, 0..2)
            };
            let srcs = vec![receive(rank, before, 0, 0..2), held];
            program.reduce(vec![dst.clone()], srcs, rank == root);
            held = dst;
        }
        if let Some(next) = chain.get(position + 1) {
            program.copy(vec![receive(*next, rank, 0, 0..2)], held);
            program.signal(*next);
        }
        program
    })
}

/// A ring; one receive entry is used again when the reader has notified the writer.
pub(crate) fn all_gather(ranks: u32) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::AllGather, ranks, rank, Grid::Equal(ranks));
        program.schedule.receive = vec![1];
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        program.copy(
            vec![output(rank, rank..rank + 1)],
            input(rank, rank..rank + 1),
        );
        for step in 0..ranks - 1 {
            let chunk = |rank: u32| {
                let chunk = (rank + ranks - step) % ranks;
                chunk..chunk + 1
            };
            let (sent, received) = (chunk(rank), chunk(before));
            program.copy(
                vec![receive(next, rank, 0, sent.clone())],
                output(rank, sent),
            );
            program.signal(next);
            program.wait(before);
            let landed = receive(rank, before, 0, received.clone());
            program.copy(vec![output(rank, received)], landed);
            if step < ranks - 2 {
                program.signal(before);
                program.wait(next);
            }
        }
        program
    })
}

/// Every pair exchanges its blocks, whose sizes are known only to the two.
pub(crate) fn all_to_all(ranks: u32) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program =
            SampleProgram::new(Collective::AllToAll, ranks, rank, Grid::Blocks(ranks));
        program.schedule.receive = vec![1];
        let own = rank..rank + 1;
        program.copy(vec![output(rank, own.clone())], input(rank, own.clone()));
        for distance in 1..ranks {
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            program.copy(
                vec![receive(to, rank, 0, own.clone())],
                input(rank, to..to + 1),
            );
            program.signal(to);
            program.wait(from);
            let landed = receive(rank, from, 0, from..from + 1);
            program.copy(vec![output(rank, from..from + 1)], landed);
        }
        program
    })
}

/// Dissemination.
pub(crate) fn barrier(ranks: u32) -> Vec<Schedule> {
    team(ranks, |rank| {
        let mut program = SampleProgram::new(Collective::Barrier, ranks, rank, Grid::Equal(1));
        let mut distance = 1;
        while distance < ranks {
            program.signal((rank + distance) % ranks);
            program.wait((rank + ranks - distance) % ranks);
            distance *= 2;
        }
        program
    })
}
