//! Parts of a channel and of a group's scratch memory: what is granted together.
//!
//! [Note: Parts] Most groups of a large job exchange a few bytes now and then, or nothing. So a new
//! group has no memory. An operation takes the parts that it uses when its turn comes, grants them
//! to the ranks that it involves, and waits for theirs. A rank that is granted a part grants its
//! own in return, whatever it does meanwhile: so ranks may come in any order, and who sends waits
//! for nobody's call. A part stays until the group is closed, so this happens once for each part.
//!
//! All ranks derive from a call alone which parts it uses. An operation whose temporary entries are
//! small uses small slots. Those lie beside the large ones under the same numbers: flags, credits
//! and counts of tiles are common to both, so that small and large operations may follow each other
//! in a lane, and neither waits for the other.

use std::ops::BitOr;

use weft_call::LEVELS;

/// Operations of priority 0 of one group that can be under way at once. Operation n uses lane `n %
/// ORDINARY_LANES`.
pub(super) const ORDINARY_LANES: usize = 4;
/// All lanes of a group: the operations of every other level of priority have one of their own.
pub const LANES: usize = ORDINARY_LANES + LEVELS;
/// The number of parts.
pub(crate) const PARTS: usize = Part::ORDINARY_TILES.index() + 1 + LANES - ORDINARY_LANES;

/// One part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part(u8);

impl Part {
    /// Flags, credits and counts, and the calling-thread path's slots for small payloads.
    pub const FIRST: Part = Part(0);
    /// Slots for small tiles, of all lanes.
    pub const SMALL_TILES: Part = Part(1);
    /// The calling-thread path's slots for all that it takes.
    pub const INLINE: Part = Part(2);
    /// Fragments of point-to-point messages.
    pub const FRAGMENTS: Part = Part(3);
    /// The words of claimable steps.
    pub const CLAIMS: Part = Part(4);
    /// Slots for tiles in the lanes of priority 0.
    const ORDINARY_TILES: Part = Part(5);

    /// Slots for tiles in a lane, and in those that are granted with it.
    pub const fn tiles(lane: usize) -> Part {
        Part(Part::ORDINARY_TILES.0 + lane.saturating_sub(ORDINARY_LANES - 1) as u8)
    }

    /// The part of a number that a peer has sent.
    pub fn numbered(number: u8) -> Option<Part> {
        ((number as usize) < PARTS).then_some(Part(number))
    }

    /// Its place among all parts.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its number, as peers send it.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The lanes that have their slots in it, and how many they are.
    pub(super) fn lanes(self) -> Option<(usize, usize)> {
        let level = self.0.checked_sub(Part::ORDINARY_TILES.0)? as usize;
        Some(match level {
            0 => (0, ORDINARY_LANES),
            level => (ORDINARY_LANES + level - 1, 1),
        })
    }

    /// Where it begins.
    pub const fn start(self) -> Place {
        Place {
            part: self,
            offset: 0,
        }
    }

    /// All parts.
    pub fn all() -> impl Iterator<Item = Part> {
        (0..PARTS as u8).map(Part)
    }
}

/// Some of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartSet(u16);

impl PartSet {
    /// No part.
    pub const NONE: PartSet = PartSet(0);

    /// Whether all parts of the other set are in it.
    #[inline]
    pub fn contains(self, other: PartSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that are not in the other set.
    pub fn without(self, other: PartSet) -> PartSet {
        PartSet(self.0 & !other.0)
    }

    /// Its parts.
    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::all().filter(move |part| self.contains((*part).into()))
    }
}

impl From<Part> for PartSet {
    fn from(part: Part) -> PartSet {
        PartSet(1 << part.0)
    }
}

impl BitOr<Part> for PartSet {
    type Output = PartSet;

    fn bitor(self, part: Part) -> PartSet {
        PartSet(self.0 | 1 << part.0)
    }
}

/// A place in a part, by its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number.
    pub part: Part,
    /// Where it begins there.
    pub offset: u64,
}

impl Place {
    /// A place so many bytes behind this one.
    #[inline]
    pub fn plus(self, bytes: u64) -> Place {
        Place {
            offset: self.offset + bytes,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_in_one_part() {
        for lane in 0..LANES {
            let holds = |part: &Part| {
                let lanes = part.lanes();
                lanes.is_some_and(|(first, count)| (first..first + count).contains(&lane))
            };
            let parts: Vec<Part> = Part::all().filter(holds).collect();
            assert_eq!(parts, [Part::tiles(lane)]);
        }
        assert_eq!(Part::numbered(PARTS as u8), None);
        assert_eq!(Part::all().count(), PARTS);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let some = PartSet::from(Part::FIRST) | Part::CLAIMS;
        assert!(some.contains(Part::CLAIMS.into()) && !some.contains(Part::INLINE.into()));
        assert!(some.without(Part::FIRST.into()).iter().eq([Part::CLAIMS]));
        assert!(some.contains(PartSet::NONE));
    }
}
