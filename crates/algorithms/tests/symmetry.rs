//! The symmetry that an algorithm declares holds: a simulator may play one rank for all.

mod family;

use family::{collectives, flat, programs, request};
use weft_algorithms::{Memory, Symmetry, Topology};
use weft_schedule::{Buffer, Rank, Schedule, Slice, Step};

/// A slice without the numbers of its chunks: whose, which buffer, how many chunks.
type Shape = (Rank, &'static str, Option<Rank>, Option<u32>, usize);

/// A step without the numbers of chunks.
#[derive(PartialEq, Eq, Debug)]
enum Outline {
    Copy(Vec<Shape>, Shape),
    Reduce(Vec<Shape>, Vec<Shape>, bool),
    Signal(Rank, u32),
    Wait(Rank, u32),
}

fn shape(slice: &Slice, rename: &dyn Fn(Rank) -> Rank) -> Shape {
    let (name, from, entry) = match slice.buffer {
        Buffer::Input => ("input", None, None),
        Buffer::Output => ("output", None, None),
        Buffer::Scratch { entry, .. } => ("scratch", None, Some(entry)),
        Buffer::Landing { from, entry, .. } => ("landing", Some(rename(from)), Some(entry)),
    };
    (rename(slice.rank), name, from, entry, slice.chunks.len())
}

/// What a program does under other names. Copies that follow each other between the same buffers are one, as if ranges wrapped.
fn outline(program: &Schedule, rename: &dyn Fn(Rank) -> Rank) -> Vec<Outline> {
    let mut outlines: Vec<Outline> = Vec::new();
    for step in &program.steps {
        let sorted = |slices: &[Slice]| {
            let mut shapes: Vec<Shape> = slices.iter().map(|slice| shape(slice, rename)).collect();
            shapes.sort_unstable();
            shapes
        };
        let next = match step {
            Step::Copy { dsts, src, .. } => Outline::Copy(sorted(dsts), shape(src, rename)),
            Step::Reduce {
                dsts, srcs, last, ..
            } => Outline::Reduce(sorted(dsts), sorted(srcs), *last),
            Step::Signal { to, id } => Outline::Signal(rename(*to), *id),
            Step::Wait { from, id } => Outline::Wait(rename(*from), *id),
        };
        if !outlines
            .last_mut()
            .is_some_and(|former| join(former, &next))
        {
            outlines.push(next);
        }
    }
    outlines
}

/// Adds a copy to the former one if it is between the same buffers.
fn join(former: &mut Outline, next: &Outline) -> bool {
    let (Outline::Copy(dsts, src), Outline::Copy(next_dsts, next_src)) = (former, next) else {
        return false;
    };
    let place = |shape: &Shape| (shape.0, shape.1, shape.2, shape.3);
    let same =
        place(src) == place(next_src) && dsts.iter().map(place).eq(next_dsts.iter().map(place));
    if same {
        for (dst, next) in dsts
            .iter_mut()
            .chain([src])
            .zip(next_dsts.iter().chain([next_src]))
        {
            dst.4 += next.4;
        }
    }
    same
}

#[test]
fn declared_symmetry_holds() {
    for algorithm in flat() {
        for ranks in 1..=17 {
            for memory in [Memory::Ordinary, Memory::Symmetric] {
                let topology = Topology::flat(ranks);
                let collective = collectives(algorithm.collective, ranks)[0];
                let programs = programs(algorithm, request(collective, memory, &topology));
                for (rank, program) in (0..).zip(&programs) {
                    let back: &dyn Fn(Rank) -> Rank = match algorithm.symmetry {
                        Symmetry::Rotation => &|other| (other + ranks - rank) % ranks,
                        Symmetry::Exclusive if ranks.is_power_of_two() => &|other| other ^ rank,
                        _ => continue,
                    };
                    let named = format!(
                        "{} {}, rank {rank} of {ranks}",
                        algorithm.collective, algorithm.name
                    );
                    assert_eq!(
                        outline(program, back),
                        outline(&programs[0], &|other| other),
                        "{named}"
                    );
                }
            }
        }
    }
}
