//! Layout of the memory that one rank grants to one peer of one group, part by part: see [Note:
//! Parts] in `parts.rs`.
//!
//! All words are written by the peer and read by the owner. Tiles are counted per lane, over all
//! operations that ran in it, the same on every rank: tile g uses slot g modulo slots. See
//! [Note: Lanes and slots] in `operation.rs`.
//!
//! [Note: Windows] The data that one operation may have under way is its slots, at all peers
//! together. A slot is free again when its bytes have crossed a link, the result made from them has
//! crossed one, and the credit has returned: after one and a half round trips where the schedule
//! sends everything at most twice, and twice that where bytes queue behind those of other tiles, as
//! they must if the link is never to be idle. Two slots are enough where that takes microseconds:
//! within a host. Over a network every step waits for threads of several hosts, which compute as
//! well: each gets its turn some milliseconds after it could continue, and a line of 1 Gbit/s with
//! two slots is idle half of that time. So there are eight. Links with delay get as many as they
//! can transfer meanwhile, as far as memory allows: of unchanged size, so that tiles stay as they
//! are, and for all lanes, so that priorities do not make an operation slower.

use std::time::Duration;

use weft_bootstrap::is_delayed;
use weft_schedule::TileLimits;

use super::parts::{ChannelPart, LANES, ORDINARY_LANES, Place};

/// The most tiles of one operation under way, where no link crosses a network.
pub const SLOTS: usize = 2;
/// The same over a network without delay.
const NETWORK_SLOTS: usize = 8;
/// The round trips of a link with delay that a lane's slots cover: see [Note: Windows].
const ROUND_TRIPS: f64 = 3.5;
/// The assumed rate of a link with delay, in bytes per second: 10 Gbit/s. The real rate is unknown
/// before it is used.
const DELAYED_RATE: f64 = 1.25e9;
/// The most memory that a lane's slots take of a rank's pool, in bytes, unless they are [`SLOTS`]
/// or fewer: receive buffers of all peers, and scratch memory.
const LANE_BYTES_MAX: u64 = 24 << 20;
/// Claimable steps that ranks other than their owner may execute: those with lower numbers.
pub const CLAIMS: u32 = 64;
/// The most fragments of point-to-point messages under way, where no link crosses a network.
const FRAGMENTS: usize = 4;
/// The same over a network without delay.
const NETWORK_FRAGMENTS: usize = 16;
/// The same over links with delay: 8 MiB per peer, of which a rank has messages.
const DELAYED_FRAGMENTS_MAX: usize = 128;
/// The round trips of a link with delay that fragments cover: one, and the receiver's turn.
const FRAGMENT_ROUND_TRIPS: f64 = 1.5;
/// The size of such a fragment, in bytes.
pub const FRAGMENT_BYTES: u64 = 64 << 10;

/// Groups of at most this many ranks have a calling-thread path: every rank signals to every other.
pub const INLINE_RANKS: usize = 16;
/// The size of a slot for small data in the temporary memory of a pair of ranks, in bytes.
pub const SMALL_RECEIVE: u64 = 1 << 10;
/// The same for a rank's temporary memory.
pub const SMALL_SCRATCH: u64 = 2 << 10;
/// The bytes before the payload in its slot: flag, fingerprint, and the location of symmetric
/// memory.
pub const INLINE_HEADER: usize = 48;
/// The cache line of the header, in bytes: a payload that does not fit into it begins behind it.
pub const INLINE_LINE: u64 = 64;
/// How many inline operations use a channel before the next overwrites the first.
pub const INLINE_SLOTS: u64 = 8;
/// How many have their own temporary memory: no peer accesses it any more once the operation has
/// ended here.
pub const INLINE_SCRATCHES: u64 = 2;

/// The kind of slot that an inline operation uses, by the size of its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SlotSize {
    /// A payload that fits in a small slot.
    Small,
    /// Everything else.
    Large,
}

impl SlotSize {
    /// The most bytes that an inline operation can put for one peer.
    pub const fn receive_bytes(self) -> u64 {
        match self {
            SlotSize::Small => SMALL_RECEIVE - INLINE_LINE,
            SlotSize::Large => 32 << 10,
        }
    }

    /// The temporary memory of a rank for one inline operation, in bytes.
    pub const fn scratch_bytes(self) -> u64 {
        match self {
            SlotSize::Small => SMALL_SCRATCH,
            SlotSize::Large => 256 << 10,
        }
    }

    /// The distance between the slots of a channel, in bytes.
    #[inline]
    pub const fn stride(self) -> u64 {
        (INLINE_LINE + self.receive_bytes()).next_multiple_of(SPACING)
    }

    /// The part that has these slots.
    pub const fn part(self) -> ChannelPart {
        match self {
            SlotSize::Small => ChannelPart::FIRST,
            SlotSize::Large => ChannelPart::INLINE,
        }
    }
}

/// The distance between words, in bytes: no two share a cache line or its prefetched neighbour.
const SPACING: u64 = 128;

/// The sizes on which every rank of a group agrees, as a function of its number of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelLayout {
    /// The temporary memory per slot, and further bounds of a tile.
    pub limits: TileLimits,
    /// The most tiles of one operation under way.
    pub slots: usize,
    /// The most fragments of point-to-point messages under way from one rank to another.
    pub fragments: usize,
    /// The slots of inline operations: 0 where there are too many ranks for them.
    inline_slots: u64,
}

impl ChannelLayout {
    /// The layout of a group of `ranks` ranks, whose links have this round trip.
    pub fn new(ranks: u32, round_trip: Duration) -> Self {
        let limits = TileLimits::of_group(ranks);
        ChannelLayout {
            limits,
            slots: slots(ranks, limits, round_trip),
            fragments: fragments(round_trip),
            inline_slots: match ranks as usize <= INLINE_RANKS {
                true => INLINE_SLOTS,
                false => 0,
            },
        }
    }

    /// The size of a part of a channel, in bytes.
    pub fn channel_bytes(self, part: ChannelPart) -> u64 {
        match (part, part.lanes()) {
            (_, Some((_, lanes))) => (lanes * self.slots) as u64 * self.limits.receive_bytes,
            (ChannelPart::FIRST, _) => {
                self.inline(SlotSize::Small).offset + self.inline_bytes(SlotSize::Small)
            }
            (ChannelPart::SMALL_TILES, _) => (LANES * self.slots) as u64 * SMALL_RECEIVE,
            (ChannelPart::INLINE, _) => self.inline_bytes(SlotSize::Large),
            (ChannelPart::FRAGMENTS, _) => self.fragments as u64 * FRAGMENT_BYTES,
            _ => 0,
        }
    }

    /// The size of a part of a group's scratch memory, in bytes.
    pub fn scratch_bytes(self, part: ChannelPart) -> u64 {
        let inline = |room: SlotSize| match self.inline_slots {
            0 => 0,
            _ => INLINE_SCRATCHES * room.scratch_bytes(),
        };
        match (part, part.lanes()) {
            (_, Some((_, lanes))) => (lanes * self.slots) as u64 * self.limits.scratch_bytes,
            (ChannelPart::FIRST, _) => inline(SlotSize::Small),
            (ChannelPart::SMALL_TILES, _) => (LANES * self.slots) as u64 * SMALL_SCRATCH,
            (ChannelPart::INLINE, _) => inline(SlotSize::Large),
            (ChannelPart::CLAIMS, _) => self.claim(LANES, 0, 0).offset,
            _ => 0,
        }
    }

    fn inline_bytes(self, room: SlotSize) -> u64 {
        self.inline_slots * room.stride()
    }

    /// The slot of tile `g`, among those of its lane.
    #[inline]
    pub fn slot_of(self, g: u64) -> usize {
        (g % self.slots as u64) as usize
    }

    /// The offset of a slot's flag line among the words of the first part: a flag, and behind it
    /// the fingerprint of the operation.
    #[inline]
    pub fn flag(self, lane: usize, slot: usize) -> u64 {
        (lane * self.slots + slot) as u64 * SPACING
    }

    /// The offset of a lane's credit: the number of tiles that the peer has ended.
    #[inline]
    pub fn credit(self, lane: usize) -> u64 {
        self.flag(LANES, 0) + lane as u64 * SPACING
    }

    /// The offset of the number of fragments that the peer has sent.
    pub fn fragments_sent(self) -> u64 {
        self.credit(LANES)
    }

    /// The offset of the number of fragments that the peer has received.
    pub fn fragments_taken(self) -> u64 {
        self.fragments_sent() + SPACING
    }

    /// The offset of a word without meaning: the peer signals there to wake a thread that waits for
    /// data in symmetric memory.
    pub fn bell(self) -> u64 {
        self.fragments_taken() + SPACING
    }

    /// The place of the first slot of inline operations.
    pub fn inline(self, room: SlotSize) -> Place {
        Place {
            part: room.part(),
            offset: match room {
                SlotSize::Small => self.bell() + SPACING,
                SlotSize::Large => 0,
            },
        }
    }

    /// The place of a fragment.
    pub fn fragment(self, slot: usize) -> Place {
        Place {
            part: ChannelPart::FRAGMENTS,
            offset: slot as u64 * FRAGMENT_BYTES,
        }
    }

    /// The place of a slot's receive buffer.
    #[inline]
    pub fn receive(self, small: bool, lane: usize, slot: usize) -> Place {
        match small {
            true => self.slot(ChannelPart::SMALL_TILES, 0, (lane, slot), SMALL_RECEIVE),
            false => self.large_slot(lane, slot, self.limits.receive_bytes),
        }
    }

    /// The place of a slot in the group's scratch memory.
    #[inline]
    pub fn scratch(self, small: bool, lane: usize, slot: usize) -> Place {
        match small {
            true => self.slot(ChannelPart::SMALL_TILES, 0, (lane, slot), SMALL_SCRATCH),
            false => self.large_slot(lane, slot, self.limits.scratch_bytes),
        }
    }

    /// The place of a claimable step's word in its owner's scratch memory. See
    /// `weft_transport::claim`.
    pub fn claim(self, lane: usize, slot: usize, id: u32) -> Place {
        let words = u64::from(CLAIMS) * SPACING;
        let place = self.slot(ChannelPart::CLAIMS, 0, (lane, slot), words);
        place.plus(u64::from(id) * SPACING)
    }

    fn large_slot(self, lane: usize, slot: usize, bytes: u64) -> Place {
        let part = ChannelPart::tiles(lane);
        let first = part.lanes().map_or(0, |(first, _)| first);
        self.slot(part, first, (lane, slot), bytes)
    }

    /// The place of a slot in a part, with the lanes from `first` on and slots of `bytes` bytes.
    fn slot(
        self,
        part: ChannelPart,
        first: usize,
        (lane, slot): (usize, usize),
        bytes: u64,
    ) -> Place {
        Place {
            part,
            offset: ((lane - first) * self.slots + slot) as u64 * bytes,
        }
    }
}

/// The number of slots of a lane. See [Note: Windows].
fn slots(ranks: u32, limits: TileLimits, round_trip: Duration) -> usize {
    if round_trip.is_zero() {
        return SLOTS;
    }
    let peers = u64::from(ranks.saturating_sub(1).max(1));
    let under_way = peers * limits.receive_bytes;
    let wanted = match is_delayed(round_trip) {
        true => (ROUND_TRIPS * round_trip.as_secs_f64() * DELAYED_RATE) as u64 / under_way,
        false => 0,
    };
    let wanted = wanted.max(NETWORK_SLOTS as u64);
    let room = LANE_BYTES_MAX / (under_way + limits.scratch_bytes);
    (wanted.min(room) as usize).max(SLOTS)
}

/// The number of fragments of a pair of ranks. A fragment is free again after a round trip.
fn fragments(round_trip: Duration) -> usize {
    if round_trip.is_zero() {
        return FRAGMENTS;
    }
    let bytes = FRAGMENT_ROUND_TRIPS * round_trip.as_secs_f64() * DELAYED_RATE;
    let wanted = match is_delayed(round_trip) {
        true => (bytes / FRAGMENT_BYTES as f64) as usize,
        false => 0,
    };
    wanted.clamp(NETWORK_FRAGMENTS, DELAYED_FRAGMENTS_MAX)
}

/// The lane of operation `sequence`, of a level of priority.
#[inline]
pub fn lane_of(sequence: u64, level: usize) -> usize {
    match level {
        0 => (sequence % ORDINARY_LANES as u64) as usize,
        level => ORDINARY_LANES + level - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_transport::flag_value;

    const MILLIS: [u64; 4] = [0, 1, 10, 200];

    #[test]
    fn slots_depend_on_network_and_delay() {
        let slots = |ranks, micros| ChannelLayout::new(ranks, Duration::from_micros(micros)).slots;
        for ranks in [1, 2, 4, 64, 1000] {
            assert_eq!(slots(ranks, 0), SLOTS);
        }
        for ranks in [2, 4, 16, 64] {
            for micros in [1, 50, 1000] {
                assert_eq!(slots(ranks, micros), NETWORK_SLOTS, "{ranks}");
            }
        }
        assert_eq!(slots(10_000, 50), SLOTS, "no room for more");
    }

    #[test]
    fn windows_fill_links_with_delay_and_are_bounded() {
        for ranks in [2, 3, 4, 8, 16, 64] {
            let layout = ChannelLayout::new(ranks, Duration::from_millis(40));
            let slots = layout.slots as u64;
            let under_way = slots * u64::from(ranks - 1) * layout.limits.receive_bytes;
            // 1 Gbit/s for two and a half round trips.
            assert!(under_way > 125_000_000 * 100 / 1000, "{ranks}: {under_way}");
            let taken = under_way + slots * layout.limits.scratch_bytes;
            assert!(taken <= LANE_BYTES_MAX, "{ranks}: {taken}");
        }
        let slots = |millis| ChannelLayout::new(4, Duration::from_millis(millis)).slots;
        assert!(NETWORK_SLOTS < slots(2) && slots(2) < slots(10));
        assert_eq!(slots(40), slots(4000));
        assert_eq!(
            ChannelLayout::new(10_000, Duration::from_secs(1)).slots,
            SLOTS
        );
    }

    #[test]
    fn fragments_fill_links_with_delay() {
        let fragments = |micros| ChannelLayout::new(4, Duration::from_micros(micros)).fragments;
        assert_eq!(
            (fragments(0), fragments(100)),
            (FRAGMENTS, NETWORK_FRAGMENTS)
        );
        // 1 Gbit/s.
        assert!(fragments(40_000) as u64 * FRAGMENT_BYTES > 125_000_000 * 40 / 1000);
        assert_eq!(fragments(4_000_000), DELAYED_FRAGMENTS_MAX);
    }

    #[test]
    fn regions_do_not_overlap() {
        for (ranks, millis) in (MILLIS.into_iter())
            .flat_map(|millis| [1, 2, 3, 8, 33, 1000].map(|ranks| (ranks, millis)))
        {
            let layout = ChannelLayout::new(ranks, Duration::from_millis(millis));
            let slots = layout.slots;
            let mut words: Vec<u64> = (0..LANES)
                .flat_map(|lane| (0..slots).map(move |slot| layout.flag(lane, slot)))
                .chain((0..LANES).map(|lane| layout.credit(lane)))
                .chain([
                    layout.fragments_sent(),
                    layout.fragments_taken(),
                    layout.bell(),
                ])
                .collect();
            words.sort_unstable();
            assert!(words.windows(2).all(|pair| pair[0] + SPACING <= pair[1]));
            assert!(words[words.len() - 1] + SPACING <= layout.inline(SlotSize::Small).offset);
            let slots = || (0..LANES).flat_map(|lane| (0..slots).map(move |slot| (lane, slot)));
            let (receive, scratch) = (layout.limits.receive_bytes, layout.limits.scratch_bytes);
            check(layout.fragment_places(), FRAGMENT_BYTES, |part| {
                layout.channel_bytes(part)
            });
            for (small, receive, scratch) in [
                (true, SMALL_RECEIVE, SMALL_SCRATCH),
                (false, receive, scratch),
            ] {
                let places = slots().map(|(lane, slot)| layout.receive(small, lane, slot));
                check(places, receive, |part| layout.channel_bytes(part));
                let places = slots().map(|(lane, slot)| layout.scratch(small, lane, slot));
                check(places, scratch, |part| layout.scratch_bytes(part));
            }
            let words = |(lane, slot)| (0..CLAIMS).map(move |id| layout.claim(lane, slot, id));
            check(slots().flat_map(words), SPACING, |part| {
                layout.scratch_bytes(part)
            });
        }
    }

    impl ChannelLayout {
        fn fragment_places(self) -> impl Iterator<Item = Place> {
            (0..self.fragments).map(move |slot| self.fragment(slot))
        }
    }

    /// Checks that places of `bytes` bytes each do not overlap, and are within their parts, which
    /// they fill.
    fn check(places: impl Iterator<Item = Place>, bytes: u64, size: impl Fn(ChannelPart) -> u64) {
        let mut places: Vec<(u8, u64)> = places
            .map(|place| (place.part.number(), place.offset))
            .collect();
        places.sort_unstable();
        for part in ChannelPart::all() {
            let of_part = places.iter().filter(|(number, _)| *number == part.number());
            let offsets: Vec<u64> = of_part.map(|(_, offset)| *offset).collect();
            let expected = (0..offsets.len() as u64).map(|index| index * bytes);
            assert!(offsets.iter().copied().eq(expected), "{part:?}");
            if let Some(last) = offsets.last() {
                assert_eq!(last + bytes, size(part), "{part:?}");
            }
        }
    }

    #[test]
    fn small_group_uses_little_memory() {
        let layout = ChannelLayout::new(2, Duration::ZERO);
        assert!(layout.channel_bytes(ChannelPart::FIRST) <= 12 << 10);
        assert!(layout.scratch_bytes(ChannelPart::FIRST) <= 4 << 10);
        assert!(layout.channel_bytes(ChannelPart::SMALL_TILES) <= 16 << 10);
        assert!(layout.scratch_bytes(ChannelPart::SMALL_TILES) <= 32 << 10);
    }

    #[test]
    fn flags_of_later_tiles_are_larger() {
        assert!(flag_value(0, 0) > 0);
        assert!(flag_value(1, 0) > flag_value(0, 65_000));
    }
}
