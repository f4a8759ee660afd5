//! Division of a message into tiles: a pure function of values that are equal on all ranks.

use crate::encoding::Encoding;
use crate::ir::Schedule;

/// Start offsets of every temporary entry begin on such a boundary, in bytes.
const ENTRY_ALIGNMENT: u64 = 64;
/// Temporary memory has room for elements of this size, in bytes, so that encodings can widen them.
const WIDEST_ENCODING: u64 = 4;

/// The largest element, in bytes.
const WIDEST_ELEMENT: u64 = 8;

/// Bounds of the size of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileLimits {
    /// Bytes of temporary memory that each ordered pair of ranks has per tile under way.
    pub receive_bytes: u64,
    /// Bytes of temporary memory that each rank has per tile under way.
    pub scratch_bytes: u64,
    /// The most of one chunk that a tile takes, in bytes, so that urgent operations get their turn.
    pub chunk_bytes: u64,
}

impl TileLimits {
    /// The executor's limits for a group of this many ranks.
    pub fn of_group(ranks: u32) -> Self {
        let share = (2 << 20) / u64::from(ranks.next_power_of_two());
        TileLimits {
            receive_bytes: share.clamp(16 << 10, 256 << 10),
            // Two tiles stay in a core's second-level cache, and are long enough to hide the
            // latency of many ranks' signals.
            scratch_bytes: (u64::from(ranks) * (64 << 10)).clamp(256 << 10, 1 << 20),
            chunk_bytes: 4 << 20,
        }
    }

    /// Whether tiles of a single element of any type fit.
    pub fn fits(&self, schedule: &Schedule) -> bool {
        self.tiles(schedule, 1, WIDEST_ELEMENT, Encoding::Native)
            .is_some()
    }

    /// The smallest number of tiles whose temporary entries fit, if any do.
    /// `largest_chunk` is in elements of `element_bytes` bytes. `wire`: the encoding in which they
    /// travel; its blocks are not divided.
    pub fn tiles(
        &self,
        schedule: &Schedule,
        largest_chunk: u64,
        element_bytes: u64,
        wire: Encoding,
    ) -> Option<u64> {
        let block = wire.block();
        let blocks = largest_chunk.div_ceil(block);
        let enough = |tiles: u64| {
            let largest = blocks.div_ceil(tiles) * block;
            let bytes = |entries: TemporaryEntries| entries.end(largest, element_bytes);
            bytes(TemporaryEntries::receive(schedule, wire)) <= self.receive_bytes
                && bytes(TemporaryEntries::scratch(schedule, wire)) <= self.scratch_bytes
                && largest * element_bytes <= self.chunk_bytes.max(block * element_bytes)
        };
        let (mut low, mut high) = (1, 1);
        while !enough(high) {
            if high >= blocks {
                return None;
            }
            low = high + 1;
            high = (2 * high).min(blocks);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if enough(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(high)
    }
}

/// The entries of a rank's own temporary memory, or of that of a pair of ranks, one behind the
/// other.
#[derive(Clone, Copy)]
pub struct TemporaryEntries<'a> {
    widths: &'a [u32],
    wire: Encoding,
    /// How many of them, the last ones, hold nothing but elements that travel.
    encoded: usize,
}

impl<'a> TemporaryEntries<'a> {
    /// The entries that peers put into, in the wire encoding.
    pub fn receive(schedule: &'a Schedule, wire: Encoding) -> Self {
        TemporaryEntries {
            widths: &schedule.receive,
            wire,
            encoded: match wire {
                Encoding::Native => 0,
                _ => schedule.receive.len(),
            },
        }
    }

    /// The rank's own entries. The last one holds encoded elements, if there is a wire encoding.
    pub fn scratch(schedule: &'a Schedule, wire: Encoding) -> Self {
        TemporaryEntries {
            widths: &schedule.scratch,
            wire,
            encoded: usize::from(wire != Encoding::Native && !schedule.scratch.is_empty()),
        }
    }

    /// Where each entry begins, in bytes, if a tile has at most `largest` elements of a chunk.
    pub fn starts(self, largest: u64, element_bytes: u64) -> Vec<u64> {
        let mut next = 0;
        let places = 0..self.widths.len();
        let starts = places.map(|entry| {
            let start = next;
            next += self.bytes(entry, largest, element_bytes);
            start
        });
        starts.collect()
    }

    /// The bytes of all of them.
    fn end(self, largest: u64, element_bytes: u64) -> u64 {
        let entries = 0..self.widths.len();
        entries
            .map(|entry| self.bytes(entry, largest, element_bytes))
            .sum()
    }

    fn bytes(self, entry: usize, largest: u64, element_bytes: u64) -> u64 {
        let elements = u64::from(self.widths[entry]) * largest;
        let bytes = match entry + self.encoded < self.widths.len() {
            true => elements * element_bytes.max(WIDEST_ENCODING),
            false => self.wire.bytes(elements, element_bytes),
        };
        bytes.next_multiple_of(ENTRY_ALIGNMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::ir::Grid;

    fn schedule(receive: Vec<u32>) -> Schedule {
        Schedule {
            collective: Collective::AllReduce,
            ranks: 4,
            rank: 0,
            grid: Grid::Equal(4),
            scratch: vec![],
            receive,
            steps: vec![],
        }
    }

    #[test]
    fn as_few_tiles_as_fit() {
        let limits = TileLimits::of_group(4);
        assert_eq!(limits.receive_bytes, 256 << 10);
        let schedule = schedule(vec![1, 1]);
        for largest in [1, 1000, 32 << 10, (32 << 10) + 1, 1_000_003] {
            let tiles = limits
                .tiles(&schedule, largest, 4, Encoding::Native)
                .unwrap();
            let entries = TemporaryEntries::receive(&schedule, Encoding::Native);
            let taken = |tiles: u64| entries.end(largest.div_ceil(tiles), 4);
            assert!(taken(tiles) <= limits.receive_bytes);
            assert!(tiles == 1 || taken(tiles - 1) > limits.receive_bytes);
        }
    }

    #[test]
    fn oversized_schedule_has_no_tiles() {
        let limits = TileLimits::of_group(10_000);
        assert_eq!(
            limits.tiles(&schedule(vec![10_000]), 100, 4, Encoding::Native),
            None
        );
        assert!(!limits.fits(&schedule(vec![10_000])));
        assert!(limits.fits(&schedule(vec![2_000])));
    }

    #[test]
    fn one_element_is_the_smallest_tile() {
        let limits = TileLimits {
            chunk_bytes: 3,
            ..TileLimits::of_group(4)
        };
        assert_eq!(
            limits.tiles(&schedule(vec![]), 10, 8, Encoding::Native),
            Some(10)
        );
    }

    #[test]
    fn half_the_bytes_takes_half_the_tiles() {
        let limits = TileLimits::of_group(4);
        let schedule = Schedule {
            scratch: vec![4],
            ..schedule(vec![1; 4])
        };
        let tiles = |wire| limits.tiles(&schedule, 1 << 20, 4, wire);
        assert_eq!(tiles(Encoding::Native), Some(64));
        assert_eq!(tiles(Encoding::Bf16), Some(32));
        assert_eq!(tiles(Encoding::E4m3), Some(17));
    }
}
