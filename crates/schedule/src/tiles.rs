//! Division of a message into tiles: a pure function of values that are equal on all ranks.

use crate::ir::Schedule;

/// Start offsets of every temporary entry begin on such a boundary, in bytes.
const ENTRY_ALIGNMENT: u64 = 64;
/// Temporary memory has room for elements of this size, in bytes, so that encodings can widen them.
const WIDEST_ENCODING: u64 = 4;

/// The largest element, in bytes.
const WIDEST_ELEMENT: u64 = 8;

/// What bounds the size of a tile.
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
    /// What the executor has for a group of so many ranks.
    pub fn of_group(ranks: u32) -> Self {
        let share = (2 << 20) / u64::from(ranks.next_power_of_two());
        TileLimits {
            receive_bytes: share.clamp(16 << 10, 256 << 10),
            // Two tiles stay in a core's second-level cache, and are long enough for what many
            // ranks say to each other.
            scratch_bytes: (u64::from(ranks) * (64 << 10)).clamp(256 << 10, 1 << 20),
            chunk_bytes: 4 << 20,
        }
    }

    /// Whether tiles of a single element of any type fit.
    pub fn fits(&self, schedule: &Schedule) -> bool {
        self.tiles(schedule, 1, WIDEST_ELEMENT).is_some()
    }

    /// The smallest number of tiles whose temporary entries fit, if any do.
    /// `largest_chunk` is in elements of `element_bytes` bytes.
    pub fn tiles(
        &self,
        schedule: &Schedule,
        largest_chunk: u64,
        element_bytes: u64,
    ) -> Option<u64> {
        let fits = |widths: &[u32], room: u64, largest: u64| {
            let entries = widths
                .iter()
                .map(|width| entry_bytes(*width, largest, element_bytes));
            entries.sum::<u64>() <= room
        };
        let enough = |tiles: u64| {
            let largest = largest_chunk.div_ceil(tiles);
            fits(&schedule.receive, self.receive_bytes, largest)
                && fits(&schedule.scratch, self.scratch_bytes, largest)
                && largest * element_bytes <= self.chunk_bytes.max(element_bytes)
        };
        let (mut low, mut high) = (1, 1);
        while !enough(high) {
            if high >= largest_chunk {
                return None;
            }
            low = high + 1;
            high = (2 * high).min(largest_chunk);
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

/// The bytes that a temporary entry of `width` chunks takes, each of at most `largest` elements in
/// a tile.
pub fn entry_bytes(width: u32, largest: u64, element_bytes: u64) -> u64 {
    let widest = element_bytes.max(WIDEST_ENCODING);
    (u64::from(width) * largest * widest).next_multiple_of(ENTRY_ALIGNMENT)
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
            let tiles = limits.tiles(&schedule, largest, 4).unwrap();
            let taken = |tiles: u64| 2 * entry_bytes(1, largest.div_ceil(tiles), 4);
            assert!(taken(tiles) <= limits.receive_bytes);
            assert!(tiles == 1 || taken(tiles - 1) > limits.receive_bytes);
        }
    }

    #[test]
    fn what_does_not_fit_has_no_tiles() {
        let limits = TileLimits::of_group(10_000);
        assert_eq!(limits.tiles(&schedule(vec![10_000]), 100, 4), None);
        assert!(!limits.fits(&schedule(vec![10_000])));
        assert!(limits.fits(&schedule(vec![2_000])));
    }

    #[test]
    fn one_element_is_the_smallest_tile() {
        let limits = TileLimits {
            chunk_bytes: 3,
            ..TileLimits::of_group(4)
        };
        assert_eq!(limits.tiles(&schedule(vec![]), 10, 8), Some(10));
    }
}
