//! The keys that the peer has sent: they define the memory that this end may access.

use std::collections::BTreeMap;
use std::ops::Range;

use weft_transport::RegionKey;

use crate::verbs::PeerMemory;

/// The most ranges that a peer can grant at a time.
pub(crate) const KEYS_MAX: usize = 1 << 16;

/// Ranges of the peer's regions, with their memory by rail. Ranges do not overlap: each was granted
/// once.
#[derive(Default, Debug)]
pub(crate) struct Keys(BTreeMap<(RegionKey, u64), (u64, Vec<PeerMemory>)>);

impl Keys {
    /// False if there are too many already.
    pub(crate) fn insert(
        &mut self,
        region: RegionKey,
        range: Range<u64>,
        memory: Vec<PeerMemory>,
    ) -> bool {
        let may = self.0.len() < KEYS_MAX;
        if may {
            self.0.insert((region, range.start), (range.end, memory));
        }
        may
    }

    pub(crate) fn remove(&mut self, region: RegionKey, range: &Range<u64>) {
        self.0.remove(&(region, range.start));
    }

    /// The memory of a range on one rail: in order, with the length of each part. None if keys are
    /// missing for some of it.
    pub(crate) fn parts(
        &self,
        region: RegionKey,
        range: Range<u64>,
        rail: usize,
    ) -> Option<Vec<(PeerMemory, u64)>> {
        let mut parts = Vec::with_capacity(1);
        let mut at = range.start;
        while at < range.end {
            let before = self.0.range(..=(region, at)).next_back();
            let (&(found, start), (end, memory)) = before?;
            if found != region || *end <= at {
                return None;
            }
            let memory = memory.get(rail)?;
            let until = range.end.min(*end);
            let part = PeerMemory {
                address: memory.address + (at - start),
                key: memory.key,
            };
            parts.push((part, until - at));
            at = until;
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_by_several_keys() {
        let memory = |address, key| PeerMemory { address, key };
        let region = RegionKey(1);
        let mut keys = Keys::default();
        for (region, range, memory) in [
            (region, 100..200, [memory(1000, 1), memory(5000, 2)]),
            (region, 200..300, [memory(9000, 3), memory(7000, 4)]),
            (RegionKey(2), 300..400, [memory(0, 5), memory(0, 6)]),
        ] {
            assert!(keys.insert(region, range, memory.into()));
        }
        let parts = keys.parts(region, 150..250, 1);
        let expected = [(memory(5050, 2), 50), (memory(7000, 4), 50)];
        assert_eq!(parts.as_deref(), Some(&expected[..]));
        for outside in [50..150, 250..310, 300..310] {
            assert_eq!(keys.parts(region, outside.clone(), 0), None, "{outside:?}");
        }
        assert_eq!(keys.parts(region, 150..160, 2), None);
        keys.remove(region, &(200..300));
        assert_eq!(keys.parts(region, 150..250, 1), None);
        assert!(keys.parts(region, 150..200, 1).is_some());
    }

    #[test]
    fn a_peer_grants_a_bounded_number_of_ranges() {
        let mut keys = Keys::default();
        let mut grant = |number: u64| keys.insert(RegionKey(1), number..number + 1, Vec::new());
        assert!((0..KEYS_MAX as u64).all(&mut grant));
        assert!(!grant(KEYS_MAX as u64));
        keys.remove(RegionKey(1), &(0..1));
        assert!(keys.insert(RegionKey(2), 0..1, Vec::new()));
    }
}
