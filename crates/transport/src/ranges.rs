//! A set of offsets, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Invariant: the ranges (start -> end) are not empty, disjoint, and not adjacent.
#[derive(Default, Debug)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // From the last one backwards, everything that touches the new range becomes part of it.
        while let Some((&first, &last)) = self.0.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.0.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) = self.0.range(..range.end).next_back() {
            if last <= range.start {
                break;
            }
            self.0.remove(&first);
            if range.end < last {
                self.0.insert(range.end, last);
            }
            if first < range.start {
                self.0.insert(first, range.start);
            }
        }
    }

    /// Whether every offset of the range is in the set.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let before = self.0.range(..=range.start).next_back();
        before.is_some_and(|(_, &end)| range.end <= end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIVERSE: u64 = 40;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_offsets(
            changes in prop::collection::vec((any::<bool>(), 0..UNIVERSE, 0..UNIVERSE), 0..30),
            start in 0..UNIVERSE,
            bytes in 1..UNIVERSE,
        ) {
            let (mut ranges, mut oracle) = (Ranges::default(), [false; UNIVERSE as usize]);
            for (add, a, b) in changes {
                let range = a.min(b)..a.max(b);
                oracle[range.start as usize..range.end as usize].fill(add);
                if add { ranges.insert(range) } else { ranges.remove(range) }
            }
            let range = start..(start + bytes).min(UNIVERSE);
            let expected = oracle[range.start as usize..range.end as usize].iter().all(|&set| set);
            prop_assert_eq!(ranges.covers(&range), expected);
            let stored: Vec<_> = ranges.0.iter().collect();
            prop_assert!(stored.iter().all(|(start, end)| start < end));
            prop_assert!(stored.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
