//! Printer: conversion of schedules to text.

use std::fmt::{self, Write};

use super::FORMAT;
use crate::encoding::Encoding;
use crate::ir::{Buffer, Claim, Grid, Rank, Schedule, Slice, Step};

/// The text form of schedules, in the order given. Lines common to consecutive ones are written
/// once.
pub fn print(schedules: &[Schedule]) -> String {
    let mut text = format!("format {FORMAT}\n");
    let mut former: Option<&Schedule> = None;
    for schedule in schedules {
        if !former.is_some_and(|former| same_header(former, schedule)) {
            if former.is_some() {
                text.push('\n');
            }
            append(&mut text, Header(schedule));
        }
        append(&mut text, ProgramText(schedule));
        former = Some(schedule);
    }
    text
}

/// The text form of one step of `rank`'s program.
pub(crate) fn step(step: &Step, rank: Rank) -> String {
    let mut text = String::new();
    append(&mut text, StepOf { step, rank });
    text
}

fn append(text: &mut String, part: impl fmt::Display) {
    write!(text, "{part}").expect("a string takes all text");
}

fn same_header(a: &Schedule, b: &Schedule) -> bool {
    a.collective == b.collective
        && a.ranks == b.ranks
        && a.grid == b.grid
        && a.scratch == b.scratch
        && a.receive == b.receive
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format {FORMAT}\n{}{}", Header(self), ProgramText(self))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, Within(self))
    }
}

/// The lines of a schedule that are the same for all ranks.
struct Header<'a>(&'a Schedule);

/// A rank and its steps.
struct ProgramText<'a>(&'a Schedule);

/// A step as it stands in the program of a rank.
struct StepOf<'a> {
    step: &'a Step,
    rank: Rank,
}

/// Slices as they stand in the program of a rank, with a separator.
struct SlicesOf<'a> {
    slices: &'a [Slice],
    separator: &'static str,
    rank: Rank,
}

/// A slice without its rank.
struct Within<'a>(&'a Slice);

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "collective {}", self.0.collective)?;
        writeln!(f, "ranks {}", self.0.ranks)?;
        match &self.0.grid {
            Grid::Equal(chunks) => writeln!(f, "grid equal {chunks}")?,
            Grid::Blocks(blocks) => writeln!(f, "grid blocks {blocks}")?,
            Grid::Cuts(cuts) => {
                write!(f, "grid cuts")?;
                for cut in cuts {
                    write!(f, " {}/{}", cut.numerator, cut.denominator)?;
                }
                writeln!(f)?;
            }
        }
        for (name, widths) in [("scratch", &self.0.scratch), ("receive", &self.0.receive)] {
            if !widths.is_empty() {
                write!(f, "{name}")?;
                for width in widths {
                    write!(f, " {width}")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for ProgramText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.0.rank;
        writeln!(f, "rank {rank}")?;
        for step in &self.0.steps {
            writeln!(f, "  {}", StepOf { step, rank })?;
        }
        Ok(())
    }
}

impl fmt::Display for StepOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slices = |slices, separator| SlicesOf {
            slices,
            separator,
            rank: self.rank,
        };
        let claim = match self.step {
            Step::Signal { to, id } => return write!(f, "signal {to} #{id}"),
            Step::Wait { from, id } => return write!(f, "wait {from} #{id}"),
            Step::Copy { dsts, src, claim } => {
                let src = std::slice::from_ref(src);
                write!(f, "copy{} <-{}", slices(dsts, ","), slices(src, ","))?;
                claim
            }
            Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim,
            } => {
                write!(f, "reduce{} <-{}", slices(dsts, ","), slices(srcs, " +"))?;
                if *is_final {
                    f.write_str(" final")?;
                }
                claim
            }
        };
        match claim {
            Some(claim) => fmt_claim(f, claim),
            None => Ok(()),
        }
    }
}

fn fmt_claim(f: &mut fmt::Formatter<'_>, claim: &Claim) -> fmt::Result {
    write!(f, " claim {} by", claim.id)?;
    for (index, rank) in claim.by.iter().enumerate() {
        let between = if index == 0 { " " } else { ", " };
        write!(f, "{between}{rank}")?;
    }
    Ok(())
}

impl fmt::Display for SlicesOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, slice) in self.slices.iter().enumerate() {
            if index > 0 {
                f.write_str(self.separator)?;
            }
            f.write_str(" ")?;
            if slice.rank == self.rank {
                Within(slice).fmt(f)?;
            } else {
                slice.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slice {
            buffer,
            chunks,
            encoding,
            ..
        } = self.0;
        let fmt_base = |f: &mut fmt::Formatter<'_>, base: u32| {
            if base == chunks.start {
                Ok(())
            } else {
                write!(f, "@{base}")
            }
        };
        match buffer {
            Buffer::Input => f.write_str("input")?,
            Buffer::Output => f.write_str("output")?,
            Buffer::Scratch { entry, base } => {
                write!(f, "scratch({entry}")?;
                fmt_base(f, *base)?;
                f.write_str(")")?;
            }
            Buffer::Receive { from, entry, base } => {
                write!(f, "receive({from}:{entry}")?;
                fmt_base(f, *base)?;
                f.write_str(")")?;
            }
        }
        if u64::from(chunks.end) == u64::from(chunks.start) + 1 {
            write!(f, "[{}]", chunks.start)?;
        } else {
            write!(f, "[{}..{}]", chunks.start, chunks.end)?;
        }
        if *encoding != Encoding::Native {
            write!(f, ":{}", encoding.name())?;
        }
        Ok(())
    }
}
