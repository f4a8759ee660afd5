//! Tests of the symmetry that an algorithm declares, by which a simulator may simulate one rank for
//! all.

mod family;

use family::{collectives, flat, programs, request};
use weft_algorithms::{MemoryClass, Parts, ScheduleRequest, Shifts, Symmetry, Topology, family};
use weft_schedule::{Buffer, Grid, Rank, Schedule, Slice, Step};

/// A slice without the numbers of its chunks: rank, buffer, and share of the message in billionths.
type SliceShape = (Rank, &'static str, Option<Rank>, Option<u32>, u64);

/// A step without the numbers of chunks.
#[derive(PartialEq, Eq, Debug)]
enum Outline {
    Copy(Vec<SliceShape>, SliceShape),
    Reduce(Vec<SliceShape>, Vec<SliceShape>, bool),
    Signal(Rank, u32),
    Wait(Rank, u32),
}

fn shape(slice: &Slice, grid: &Grid, rename: &dyn Fn(Rank) -> Rank) -> SliceShape {
    let (name, from, entry) = match slice.buffer {
        Buffer::Input => ("input", None, None),
        Buffer::Output => ("output", None, None),
        Buffer::Scratch { entry, .. } => ("scratch", None, Some(entry)),
        Buffer::Receive { from, entry, .. } => ("receive", Some(rename(from)), Some(entry)),
    };
    let at = |chunk: u32| match grid.bounds(chunk, 1_000_000_000) {
        Some(bounds) => bounds.start,
        None => 1_000_000_000,
    };
    let share = at(slice.chunks.end) - at(slice.chunks.start);
    (rename(slice.rank), name, from, entry, share)
}

/// The steps of a program under other names. Consecutive copies between the same buffers are one,
/// as if ranges wrapped.
fn outline(program: &Schedule, rename: &dyn Fn(Rank) -> Rank) -> Vec<Outline> {
    let mut outlines: Vec<Outline> = Vec::new();
    for step in &program.steps {
        let sorted = |slices: &[Slice]| {
            let mut shapes: Vec<SliceShape> = slices
                .iter()
                .map(|slice| shape(slice, &program.grid, rename))
                .collect();
            shapes.sort_unstable();
            shapes
        };
        let next = match step {
            Step::Copy { dsts, src, .. } => {
                Outline::Copy(sorted(dsts), shape(src, &program.grid, rename))
            }
            Step::Reduce {
                dsts,
                srcs,
                is_final,
                ..
            } => Outline::Reduce(sorted(dsts), sorted(srcs), *is_final),
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
    outlines.iter_mut().for_each(round);
    outlines
}

/// Removes differences due to rounding.
fn round(outline: &mut Outline) {
    let shapes: Vec<&mut SliceShape> = match outline {
        Outline::Copy(dsts, src) => dsts.iter_mut().chain([src]).collect(),
        Outline::Reduce(dsts, srcs, _) => dsts.iter_mut().chain(srcs).collect(),
        Outline::Signal(..) | Outline::Wait(..) => return,
    };
    for shape in shapes {
        shape.4 = (shape.4 + 500) / 1000;
    }
}

/// Adds a copy to the former one if it is between the same buffers.
fn join(former: &mut Outline, next: &Outline) -> bool {
    let (Outline::Copy(dsts, src), Outline::Copy(next_dsts, next_src)) = (former, next) else {
        return false;
    };
    let place = |shape: &SliceShape| (shape.0, shape.1, shape.2, shape.3);
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
            for memory in [MemoryClass::Ordinary, MemoryClass::Symmetric] {
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

#[test]
fn units_are_interchangeable_where_a_choice_says_so() {
    for (ranks, per_host) in [
        (6, 1),
        (8, 1),
        (6, 2),
        (8, 2),
        (12, 3),
        (16, 4),
        (15, 5),
        (8, 8),
    ] {
        let hosts: Vec<u32> = (0..ranks).map(|rank| rank / per_host).collect();
        let topology = Topology::hosts(&hosts);
        for selection in family("all-reduce", &topology) {
            if matches!(selection.algorithm.requires.parts, Parts::None) {
                continue;
            }
            for memory in [MemoryClass::Ordinary, MemoryClass::Symmetric] {
                let asked = request(collectives("all-reduce", ranks)[0], memory, &topology);
                let of = |rank| selection.build(&ScheduleRequest { rank, ..asked });
                let shifts = selection.shifts(&asked);
                for rank in 0..ranks {
                    check_shifts(&shifts, ranks, rank, &of, &selection.name());
                }
            }
        }
    }
}

/// Checks that a rank's program is that of the rank to which shifts take it.
fn check_shifts(
    shifts: &Shifts,
    ranks: u32,
    rank: Rank,
    of: &dyn Fn(Rank) -> Schedule,
    name: &str,
) {
    let by = rank - rank % shifts.apart;
    let place = rank % shifts.unit;
    let by_units = |other: Rank| match shifts.all {
        Symmetry::Rotation => (other + ranks - by) % ranks,
        Symmetry::Exclusive if ranks.is_power_of_two() => other ^ by,
        _ => other,
    };
    let by_members = |other: Rank| {
        let (member, first) = (other % shifts.unit, other - other % shifts.unit);
        match shifts.inside {
            Symmetry::Rotation => first + (member + shifts.unit - place) % shifts.unit,
            Symmetry::Exclusive if shifts.unit.is_power_of_two() => first + (member ^ place),
            _ => other,
        }
    };
    let back = |other: Rank| by_members(by_units(other));
    assert_eq!(
        outline(&of(rank), &back),
        outline(&of(back(rank)), &|other| other),
        "{name}, rank {rank} of {ranks} as {}",
        back(rank)
    );
}
