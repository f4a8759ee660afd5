//! Checks of single steps: their form, their bounds, and the memory that their rank can reach.

use super::verification::Verification;
use super::{Mapped, Problem, VerifyError, memory};
use crate::collective::Collective;
use crate::encoding::Encoding;
use crate::ir::{Buffer, Schedule, Slice, Step};

/// Checks every copy and reduction of every rank.
pub(super) fn check(verification: &Verification<'_>) -> Result<(), VerifyError> {
    for schedule in verification.schedules {
        for (index, step) in schedule.steps.iter().enumerate() {
            let checker = AccessChecker {
                verification,
                schedule,
            };
            checker
                .check_step(step)
                .map_err(|problem| VerifyError::at(schedule, index, problem))?;
        }
    }
    Ok(())
}

/// Checks steps as executed by the rank of `schedule`.
struct AccessChecker<'a> {
    verification: &'a Verification<'a>,
    schedule: &'a Schedule,
}

impl AccessChecker<'_> {
    fn check_step(&self, step: &Step) -> Result<(), Problem> {
        let (dsts, srcs, reduces) = match step {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src), false),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice(), true),
            Step::Signal { .. } | Step::Wait { .. } => return Ok(()),
        };
        if reduces && !self.verification.shape.reduces() {
            return malformed(format!("this {} does not reduce", self.schedule.collective));
        }
        if dsts.is_empty() || srcs.is_empty() {
            return malformed("the step has no destination or no source");
        }
        for slice in srcs.iter().chain(dsts) {
            self.check_slice(slice)?;
        }
        for src in srcs {
            self.check_readable(src)?;
        }
        for dst in dsts {
            self.check_writable(dst, reduces)?;
            self.check_chunks(dst, &srcs[0])?;
        }
        for src in &srcs[1..] {
            self.check_chunks(src, &srcs[0])?;
        }
        check_overlap(dsts, srcs, reduces)
    }

    /// Checks that the slice exists.
    fn check_slice(&self, slice: &Slice) -> Result<(), Problem> {
        if slice.rank >= self.schedule.ranks {
            return malformed(format!("there is no rank {}", slice.rank));
        }
        if slice.chunks.is_empty() {
            return malformed(format!("{slice} has no chunk"));
        }
        let held = self.verification.shape.held(slice.rank, slice.buffer);
        let out_of_bounds = |held: String| {
            let slice = slice.to_string();
            Err(Problem::OutOfBounds { slice, held })
        };
        if held.is_empty() {
            return out_of_bounds(format!(
                "rank {} does not use that buffer in this {}",
                slice.rank, self.schedule.collective
            ));
        }
        if slice.chunks.start < held.start || slice.chunks.end > held.end {
            return out_of_bounds(format!(
                "the buffer holds chunks {}..{}",
                held.start, held.end
            ));
        }
        let (widths, entry, base) = match slice.buffer {
            Buffer::Input | Buffer::Output if slice.encoding != Encoding::Native => {
                return malformed(format!(
                    "{slice} is the user's memory, which is always native"
                ));
            }
            Buffer::Input | Buffer::Output => return Ok(()),
            Buffer::Scratch { entry, base } => (&self.schedule.scratch, entry, base),
            Buffer::Receive { from, .. } if from >= self.schedule.ranks || from == slice.rank => {
                return malformed(format!("{slice} is written by no peer"));
            }
            Buffer::Receive { entry, base, .. } => (&self.schedule.receive, entry, base),
        };
        let Some(width) = widths.get(entry as usize) else {
            return out_of_bounds(format!("there are only {} entries", widths.len()));
        };
        if slice.chunks.start < base || slice.chunks.end - base > *width {
            return out_of_bounds(format!(
                "the entry is {width} chunks wide from chunk {base}"
            ));
        }
        Ok(())
    }

    fn check_readable(&self, slice: &Slice) -> Result<(), Problem> {
        let reader = self.schedule.rank;
        if slice.rank == reader {
            return Ok(());
        }
        let mapped = self.verification.options.between(reader, slice.rank);
        let reason = match slice.buffer {
            Buffer::Receive { .. } => "only its own rank reads it",
            Buffer::Scratch { .. } if mapped < Mapped::Scratch => "it is not mapped here",
            Buffer::Input | Buffer::Output if mapped < Mapped::All => "it is not mapped here",
            Buffer::Scratch { .. } | Buffer::Input | Buffer::Output => return Ok(()),
        };
        let slice = slice.to_string();
        Err(Problem::Unreadable { slice, reason })
    }

    fn check_writable(&self, slice: &Slice, reduces: bool) -> Result<(), Problem> {
        let writer = self.schedule.rank;
        let own = slice.rank == writer;
        let mapped = self.verification.options.between(writer, slice.rank);
        let reason = match slice.buffer {
            Buffer::Input => "input is never written",
            Buffer::Output if !self.verification.shape.writable(slice.rank) => {
                "it must stay unchanged"
            }
            Buffer::Output if !own && mapped < Mapped::All => "it is not mapped here",
            Buffer::Scratch { .. } if !own && mapped < Mapped::Scratch => "it is not mapped here",
            Buffer::Receive { from, .. } if from != writer => "only the peer it is from writes it",
            Buffer::Receive { .. } if reduces && mapped < Mapped::Scratch => {
                "it is not mapped here, so only a copy reaches it"
            }
            Buffer::Output | Buffer::Scratch { .. } | Buffer::Receive { .. } => return Ok(()),
        };
        let slice = slice.to_string();
        Err(Problem::Unwritable { slice, reason })
    }

    /// Checks that two slices of a step have chunks that belong together.
    fn check_chunks(&self, slice: &Slice, first: &Slice) -> Result<(), Problem> {
        if slice.chunks == first.chunks {
            return Ok(());
        }
        if slice.chunks.len() != first.chunks.len() {
            return malformed(format!(
                "{slice} and {first} differ in their number of chunks"
            ));
        }
        let shape = &self.verification.shape;
        let same_place = |(a, b)| shape.within_block(a) == shape.within_block(b);
        if self.schedule.collective == Collective::AllToAll
            && slice
                .chunks
                .clone()
                .zip(first.chunks.clone())
                .all(same_place)
        {
            return Ok(());
        }
        malformed(format!("{slice} and {first} are different chunks"))
    }
}

/// Checks that no memory is written twice by one step, or written while it is read, except element
/// for element.
fn check_overlap(dsts: &[Slice], srcs: &[Slice], reduces: bool) -> Result<(), Problem> {
    for (index, dst) in dsts.iter().enumerate() {
        for other in &dsts[..index] {
            if overlap(dst, other) {
                return malformed(format!("{other} and {dst} overlap"));
            }
        }
        for src in srcs {
            if overlap(dst, src) && !(reduces && dst == src) {
                return malformed(format!("{dst} and {src} overlap"));
            }
        }
    }
    Ok(())
}

/// Whether two slices share memory, or may share some because they have different layouts in one
/// entry.
fn overlap(a: &Slice, b: &Slice) -> bool {
    let ((a_store, a_layout), (b_store, b_layout)) = (memory::locate(a), memory::locate(b));
    let chunks_overlap = a.chunks.start < b.chunks.end && b.chunks.start < a.chunks.end;
    (a.rank, a_store) == (b.rank, b_store) && (a_layout != b_layout || chunks_overlap)
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Malformed(why.into()))
}
