//! Parts of a channel and of a group's scratch memory, which are granted as a whole.
//!
//! [Note: Parts] Most groups of a large job exchange a few bytes occasionally, or nothing. So a new
//! group has no memory. An operation allocates the parts that it uses when its turn comes, grants
//! them to the ranks that it involves, and waits for theirs. A rank that is granted a part grants
//! its own in return, in any state: so ranks may arrive in any order, and a sender does not wait
//! for its receiver's call. A part stays until the group is closed, so this happens once for each
//! part.
//!
//! All ranks derive the parts of a call from the call alone. An operation whose temporary entries
//! are small uses small slots. These are stored beside the large ones under the same numbers:
//! flags, credits and counts of tiles are common to both, so that small and large operations may
//! follow each other in a lane, and neither waits for the other.

use std::ops::BitOr;

use weft_call::LEVELS;

/// The most operations of priority 0 of one group under way. Operation n uses lane `n %
/// ORDINARY_LANES`.
pub(super) const ORDINARY_LANES: usize = 4;
/// All lanes of a group: the operations of every other level of priority have their own lane.
pub const LANES: usize = ORDINARY_LANES + LEVELS;
/// The number of parts.
pub(crate) const PARTS: usize = ChannelPart::ORDINARY_TILES.index() + 1 + LANES - ORDINARY_LANES;

/// One part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelPart(u8);

impl ChannelPart {
    /// Flags, credits and counts, and the calling-thread path's slots for small payloads.
    pub const FIRST: ChannelPart = ChannelPart(0);
    /// Slots for small tiles, of all lanes.
    pub const SMALL_TILES: ChannelPart = ChannelPart(1);
    /// The calling-thread path's slots for all its other payloads.
    pub const INLINE: ChannelPart = ChannelPart(2);
    /// Fragments of point-to-point messages.
    pub const FRAGMENTS: ChannelPart = ChannelPart(3);
    /// The words of claimable steps.
    pub const CLAIMS: ChannelPart = ChannelPart(4);
    /// Slots for tiles in the lanes of priority 0.
    const ORDINARY_TILES: ChannelPart = ChannelPart(5);

    /// Slots for tiles in a lane, and in those that are granted with it.
    pub const fn tiles(lane: usize) -> ChannelPart {
        ChannelPart(ChannelPart::ORDINARY_TILES.0 + lane.saturating_sub(ORDINARY_LANES - 1) as u8)
    }

    /// The part with the number that a peer has sent.
    pub fn numbered(number: u8) -> Option<ChannelPart> {
        ((number as usize) < PARTS).then_some(ChannelPart(number))
    }

    /// Its position among all parts.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its number in messages.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The lanes that have their slots in it: the first, and their number.
    pub(super) fn lanes(self) -> Option<(usize, usize)> {
        let level = self.0.checked_sub(ChannelPart::ORDINARY_TILES.0)? as usize;
        Some(match level {
            0 => (0, ORDINARY_LANES),
            level => (ORDINARY_LANES + level - 1, 1),
        })
    }

    /// Its first place.
    pub const fn start(self) -> Place {
        Place {
            part: self,
            offset: 0,
        }
    }

    /// All parts.
    pub fn all() -> impl Iterator<Item = ChannelPart> {
        (0..PARTS as u8).map(ChannelPart)
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
    pub fn iter(self) -> impl Iterator<Item = ChannelPart> {
        ChannelPart::all().filter(move |part| self.contains((*part).into()))
    }
}

impl From<ChannelPart> for PartSet {
    fn from(part: ChannelPart) -> PartSet {
        PartSet(1 << part.0)
    }
}

impl BitOr<ChannelPart> for PartSet {
    type Output = PartSet;

    fn bitor(self, part: ChannelPart) -> PartSet {
        PartSet(self.0 | 1 << part.0)
    }
}

/// A place in a part, by its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The part.
    pub part: ChannelPart,
    /// The offset in the part.
    pub offset: u64,
}

impl Place {
    /// The place `bytes` bytes behind this one.
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
            let holds = |part: &ChannelPart| {
                let lanes = part.lanes();
                lanes.is_some_and(|(first, count)| (first..first + count).contains(&lane))
            };
            let parts: Vec<ChannelPart> = ChannelPart::all().filter(holds).collect();
            assert_eq!(parts, [ChannelPart::tiles(lane)]);
        }
        assert_eq!(ChannelPart::numbered(PARTS as u8), None);
        assert_eq!(ChannelPart::all().count(), PARTS);
    }

    #[test]
    fn sets_hold_their_parts() {
        let some = PartSet::from(ChannelPart::FIRST) | ChannelPart::CLAIMS;
        assert!(
            some.contains(ChannelPart::CLAIMS.into()) && !some.contains(ChannelPart::INLINE.into())
        );
        assert!(
            some.without(ChannelPart::FIRST.into())
                .iter()
                .eq([ChannelPart::CLAIMS])
        );
        assert!(some.contains(PartSet::NONE));
    }
}
