//! Registration of an operation's strips, ahead of the tiles that run.
//!
//! [Note: Pipelined registration] If links need registered memory and ordinary memory should not be
//! copied, an operation registers the sources of its puts, strip by strip. A strip is the part of
//! every chunk that several consecutive tiles read together, as one tile is too short to be worth a
//! registration. When the first tile of a strip starts, the next strip is requested; when its last
//! tile has ended, the strip's registration ends. The registrar's thread does both, while adapters
//! send and this thread reduces and receives. A put waits for its strip. If its strip is too short,
//! or cannot be registered, its source is copied.

use std::ops::Range;

use weft_channel::Connections;
use weft_flight::StageOf;
use weft_memory::access;
use weft_program::{Instruction, Location, Operand};
use weft_transport::Iovec;

use super::super::operation::Running;
use super::super::strips::Strips;

/// The approximate bytes of a chunk in a strip.
const STRIP_BYTES: u64 = 1 << 20;
/// Shorter parts of a chunk are copied, in bytes.
const REGISTERED_BYTES_MIN: u64 = 256 << 10;
/// The number of strips that are requested ahead of the one whose tiles start.
const STRIPS_AHEAD: u64 = 1;

/// Requests the strip of the next tile to start, and the strips after it.
pub(super) fn register_ahead(operation: u64, running: &mut Running, connections: &Connections) {
    let Some(registrar) = connections.registrations.registrar() else {
        return;
    };
    // Symmetric memory is registered already.
    if running.bases.peers.is_some() {
        return;
    }
    let (tiles, all) = (tiles_of_strip(running), running.geometry.tiles);
    let wanted = running.next / tiles + 1 + STRIPS_AHEAD;
    while running.strips.requested < wanted.min(all.div_ceil(tiles)) {
        let first = running.strips.requested * tiles;
        let ranges = ranges(running, connections, first..all.min(first + tiles));
        let long = |range: &Range<usize>| range.len() as u64 >= REGISTERED_BYTES_MIN;
        let request = |range: Range<usize>| {
            let of = StageOf {
                operation,
                tile: first,
                bytes: range.len() as u64,
            };
            registrar.register(memory(&range), of)
        };
        let strip = ranges.into_iter().filter(long).map(request).collect();
        running.strips.strips.push_back(strip);
        running.strips.requested += 1;
    }
}

/// Ends the registrations of strips whose tiles have all ended.
pub(super) fn deregister_behind(running: &mut Running) {
    let oldest = running
        .tiles
        .first()
        .map_or(running.next, |tile| tile.index);
    let tiles = tiles_of_strip(running);
    let strips = &mut running.strips;
    let first = |strips: &Strips| strips.requested - strips.strips.len() as u64;
    while !strips.strips.is_empty() && (first(strips) + 1) * tiles <= oldest {
        strips.strips.pop_front();
    }
}

fn tiles_of_strip(running: &Running) -> u64 {
    (STRIP_BYTES / running.geometry.tile_bytes().max(1)).max(1)
}

/// The ordinary memory that puts of these tiles read and that is not registered, without overlaps.
fn ranges(running: &Running, connections: &Connections, tiles: Range<u64>) -> Vec<Range<usize>> {
    let program = &running.plan.program;
    let mut ranges = Vec::new();
    for instruction in &program.instructions {
        let Instruction::Put { to, src, .. } = instruction else {
            continue;
        };
        if !connections.needs_registration(*to) {
            continue;
        }
        for range in ranges_of(running, program.operand(*src), &tiles) {
            if connections.registered(*to, &[memory(&range)]).is_none() {
                ranges.push(range);
            }
        }
    }
    joined(ranges)
}

/// The caller's memory of an operand in these tiles, piece by piece.
fn ranges_of(running: &Running, operand: &Operand, tiles: &Range<u64>) -> Vec<Range<usize>> {
    let base = match operand.location {
        Location::Input(_) => running.bases.input as usize,
        Location::Output(_) => running.bases.output as usize,
        _ => return Vec::new(),
    };
    let (geometry, shape) = (&running.geometry, &running.plan.program.shape);
    let (first, last) = (tiles.start, tiles.end - 1);
    let range = |piece: u32| {
        let start = geometry.offset(shape, operand, piece, first);
        let elements = geometry.elements(shape, operand, piece, last);
        let end = geometry.offset(shape, operand, piece, last)
            + geometry.bytes(operand.encoding, elements);
        base + start as usize..base + end as usize
    };
    (0..geometry.pieces(operand)).map(range).collect()
}

/// Memory to register. Nothing reads it by this address.
fn memory(range: &Range<usize>) -> Iovec {
    let start = std::ptr::without_provenance(range.start);
    // SAFETY: `Group::issue` requires that the memory stays until the operation has ended, and
    // strips are not registered longer.
    unsafe { access::registered(start, range.len() as u64) }
}

/// The same bytes in the fewest ranges.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_joined() {
        let check = |ranges: &[Range<usize>], expected: &[Range<usize>]| {
            assert_eq!(joined(ranges.to_vec()), expected);
        };
        check(&[], &[]);
        check(&[5..9, 1..3], &[1..3, 5..9]);
        check(&[1..3, 3..5, 4..4, 8..9], &[1..5, 8..9]);
        check(&[1..9, 2..5, 7..12, 13..14], &[1..12, 13..14]);
        check(&[4..6, 4..6, 4..6, 1..2], &[1..2, 4..6]);
    }
}
