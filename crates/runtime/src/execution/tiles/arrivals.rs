//! Redirection of a tile's arrivals to its output. See [Note: Arrivals] in `program/arrivals.rs`.

use std::ops::Range;

use weft_memory::access;
use weft_program::{Arrival, Instruction, LocalStep};
use weft_schedule::Rank;
use weft_transport::{IovecMut, RegionKey, Segment, Ticket};

use super::super::arrivals::{RedirectedArrival, RedirectedPiece};
use super::super::interpret::{self, Driver, GroupFailure};
use super::super::puts;
use super::driver::TileDriver;

/// Shorter parts of chunks are copied, in bytes: that takes less time than redirecting the link.
const REDIRECTED_BYTES_MIN: u64 = 16 << 10;

impl TileDriver<'_> {
    /// Redirects links to the output where the tile's progress, or released puts, allow it now.
    /// Does not wait: data that arrives before its redirection is copied.
    pub(super) fn redirect_arrivals(&mut self) {
        let (running, next) = (self.running, self.tile.next);
        let moved = self.tile.arrivals.checked_at.replace(next) != Some(next);
        let short = running.geometry.tile_bytes() < REDIRECTED_BYTES_MIN;
        // Other ranks may also write symmetric memory.
        if short || running.bases.peers.is_some() || !(moved || self.is_released()) {
            return;
        }
        self.tile.arrivals.occupied = None;
        for (number, arrival) in (0..).zip(&running.plan.program.arrivals) {
            let may_come = (arrival.after..arrival.at).contains(&next);
            if may_come && !self.tile.arrivals.is_redirected(number) {
                let redirected = self.redirect(number, arrival);
                self.tile.arrivals.redirected.extend(redirected);
            }
        }
    }

    /// Whether a place has become free.
    fn is_released(&self) -> bool {
        let put = self.tile.arrivals.occupied;
        put.is_some_and(|put| puts::is_released(self.connections, put))
    }

    /// A put that still reads one of the places.
    fn occupied_by(&mut self, pieces: &[(u64, IovecMut)]) -> Option<(Rank, Ticket)> {
        pieces.iter().find_map(|(_, into)| {
            let start = into.start() as usize;
            let range = start..start + into.len();
            self.tile.puts.reader(self.connections, &range)
        })
    }

    fn redirect(&mut self, number: u32, arrival: &Arrival) -> Option<RedirectedArrival> {
        let link = self.connections.links[arrival.from as usize].as_ref();
        let redirections = link.and_then(|link| link.redirections());
        let (Some(redirections), Some(pieces)) = (redirections, self.pieces_of(arrival)) else {
            return None;
        };
        if let Some(put) = self.occupied_by(&pieces) {
            self.tile.arrivals.occupied = Some(put);
            return None;
        }
        let redirected = pieces.into_iter().map(|(offset, into)| RedirectedPiece {
            redirection: redirections.redirect(RegionKey::POOL, offset, into),
            offset,
            into,
        });
        Some(RedirectedArrival {
            number,
            from: arrival.from,
            pieces: redirected.collect(),
        })
    }

    /// The pieces of an arrival: their offsets in the pool, and their places in the output.
    fn pieces_of(&self, arrival: &Arrival) -> Option<Vec<(u64, IovecMut)>> {
        let (program, geometry) = (&self.running.plan.program, &self.running.geometry);
        let Instruction::Arrive { step, .. } = program.instructions[arrival.at] else {
            return None;
        };
        let [output, landed] = program.operands(step.operands) else {
            return None;
        };
        let pool = self.pool.base().as_ptr() as u64;
        let [from, to] = [landed, output].map(|operand| self.base(operand.location));
        let piece = |piece: u32| {
            let elements = geometry.elements(&program.shape, output, piece, self.tile.index);
            let into = to.wrapping_add(self.offset(output, piece) as usize);
            let offset = from as u64 - pool + self.offset(landed, piece);
            let bytes = geometry.bytes(output.encoding, elements);
            // SAFETY: see [Note: Arrivals]: the redirection ends before this rank uses that memory,
            // and before the operation ends.
            (offset, unsafe { access::target(into, bytes) })
        };
        let pieces = (0..geometry.pieces(output)).map(piece);
        Some(pieces.filter(|(_, into)| !into.is_empty()).collect())
    }

    /// Ends a redirection, and copies the bytes that are not in the output already.
    pub(super) fn take_arrival(
        &mut self,
        number: u32,
        step: LocalStep,
    ) -> Result<(), GroupFailure> {
        let Some(arrival) = self.tile.arrivals.remove(number) else {
            if self.tile.arrivals.occupied.is_some() {
                self.note_copied(number);
            }
            interpret::execute(self, self.frame(), step);
            return Ok(());
        };
        let link = self.connections.links[arrival.from as usize].as_ref();
        let redirections = link.and_then(|link| link.redirections());
        let redirections =
            redirections.ok_or_else(|| GroupFailure::internal("an arrival without a link"))?;
        let open = self.begin_step(step);
        let mut copied = 0;
        for piece in arrival.pieces {
            let come = redirections.take_back(piece.redirection);
            copied += copy_rest(self.pool, &piece, come);
        }
        if copied > 0 {
            self.end_step(open, copied);
        }
        self.spend(2 * copied);
        Ok(())
    }

    /// Notes the price of a place that was still occupied.
    fn note_copied(&self, number: u32) {
        let arrival = &self.running.plan.program.arrivals[number as usize];
        let link = self.connections.links[arrival.from as usize].as_ref();
        let redirections = link.and_then(|link| link.redirections());
        if let (Some(redirections), Some(pieces)) = (redirections, self.pieces_of(arrival)) {
            redirections.note_copied(pieces.iter().map(|(_, into)| into.len() as u64).sum());
        }
    }
}

/// Copies the bytes in the pool to the output. Returns their number.
fn copy_rest(pool: &Segment, piece: &RedirectedPiece, come: Vec<Range<u64>>) -> u64 {
    let end = piece.offset + piece.into.len() as u64;
    missing(piece.offset..end, come)
        .map(|range| {
            let dst = (piece.into.start()).wrapping_add((range.start - piece.offset) as usize);
            // SAFETY: the piece was signalled, and the link does not write to the output any more.
            unsafe { access::take(pool, range.start, dst, range.end - range.start) };
            range.end - range.start
        })
        .sum()
}

/// The parts of a range that some parts, in any order, do not cover.
fn missing(range: Range<u64>, mut parts: Vec<Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    parts.sort_unstable_by_key(|part| part.start);
    parts.push(range.end..range.end);
    let mut done = range.start;
    let gaps = parts.into_iter().map(move |part| {
        let gap = done..part.start;
        done = done.max(part.end);
        gap
    });
    gaps.filter(|gap| !gap.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_between_the_given_ones() {
        let check = |parts: &[(u64, u64)], expected: &[(u64, u64)]| {
            let range = |(start, end): &(u64, u64)| *start..*end;
            let left = missing(10..20, parts.iter().map(range).collect());
            let expected = expected.iter().map(range);
            assert!(left.eq(expected), "{parts:?}");
        };
        check(&[], &[(10, 20)]);
        check(&[(10, 20)], &[]);
        check(&[(15, 20), (10, 12)], &[(12, 15)]);
        check(&[(12, 14), (16, 18)], &[(10, 12), (14, 16), (18, 20)]);
        check(&[(11, 19), (12, 13), (15, 20)], &[(10, 11)]);
    }
}
