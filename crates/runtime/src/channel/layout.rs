//! Layout of the part of a pool that one rank grants to one peer of one group.
//!
//! All words are written by the peer and read by the owner. Tiles are counted per lane, over all
//! operations that ran in it, the same on every rank: tile g uses slot g modulo slots. See
//! [Note: Lanes and slots] in `operation.rs`.
//!
//! [Note: Windows] What one operation may have under way is its slots, at all peers together. A
//! slot is free again when its bytes have crossed a link, what was made of them has crossed one,
//! and the credit has come back: after one and a half round trips where the schedule sends
//! everything at most twice, and twice that where bytes queue behind those of other tiles, as they
//! must if the link shall never idle. Two slots are enough where that takes microseconds: within a
//! host. Over a network every step waits for threads of several hosts, which compute as well: each
//! has its turn some milliseconds after it could go on, and a line of 1 Gbit/s with two slots is
//! idle half of that time. So there are eight. Links with delay get as many as they carry
//! meanwhile, as far as memory allows: of the size that slots have anyway, so that tiles stay as
//! they are, and for all lanes, so that priorities do not make an operation slower.

use std::time::Duration;

use weft_schedule::TileLimits;

use crate::bootstrap::is_delayed;
use crate::call::LEVELS;

/// Operations of priority 0 of one group that can be under way at once. Operation n uses lane `n %
/// ORDINARY_LANES`.
const ORDINARY_LANES: usize = 4;
/// All lanes of a group: the operations of every other level of priority have one of their own.
pub(crate) const LANES: usize = ORDINARY_LANES + LEVELS;
/// Tiles of one operation that can be under way at once, where no link crosses a network.
pub(crate) const SLOTS: usize = 2;
/// The same over a network without delay.
const NETWORK_SLOTS: usize = 8;
/// For so many round trips of a link with delay a lane has slots: see [Note: Windows].
const ROUND_TRIPS: f64 = 3.5;
/// What a link with delay is taken to carry, in bytes per second: 10 Gbit/s. Nobody knows before
/// it was tried.
const DELAYED_RATE: f64 = 1.25e9;
/// What the slots of a lane take of a rank's pool at most, in bytes, unless they are [`SLOTS`] or
/// fewer: receive buffers of all peers, and scratch memory.
const LANE_BYTES_MAX: u64 = 24 << 20;
/// Claimable steps that others than their owner may execute: those with lower numbers.
pub(crate) const CLAIMS: u32 = 64;
/// Fragments of point-to-point messages that can be under way at once.
pub(crate) const FRAGMENTS: usize = 4;
/// The size of such a fragment, in bytes.
pub(crate) const FRAGMENT_BYTES: u64 = 64 << 10;

/// Groups of at most so many ranks have a calling-thread path: everybody signals to everybody.
pub(crate) const INLINE_RANKS: usize = 16;
/// What an inline operation can put for one peer, in bytes. See `inline.rs`.
pub(crate) const INLINE_RECEIVE: u64 = 32 << 10;
/// The temporary memory of a rank for one inline operation, in bytes.
pub(crate) const INLINE_SCRATCH: u64 = 256 << 10;
/// What lies before the payload in its slot, in bytes: flag, fingerprint, and where symmetric
/// memory lies.
pub(crate) const INLINE_HEADER: usize = 48;
/// The cache line that the header is in, in bytes: a payload that does not fit in begins behind it.
pub(crate) const INLINE_LINE: u64 = 64;
/// How many inline operations leave something in a channel before the next overwrites the first.
pub(crate) const INLINE_SLOTS: u64 = 8;
/// How many have temporary memory of their own: no peer touches it any more once the operation has
/// ended here.
pub(crate) const INLINE_SCRATCHES: u64 = 2;
/// How far apart their slots lie, in bytes.
pub(crate) const INLINE_STRIDE: u64 = (INLINE_LINE + INLINE_RECEIVE).next_multiple_of(SPACING);

/// Words lie this far apart, in bytes, so that no two share a cache line or its prefetched
/// neighbour.
const SPACING: u64 = 128;

/// The sizes that every rank of a group agrees on, as a function of its number of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelLayout {
    /// The temporary memory per slot, and what else bounds a tile.
    pub(crate) limits: TileLimits,
    /// Tiles of one operation that can be under way at once.
    pub(crate) slots: usize,
    /// The slots of inline operations: none where there are too many ranks for any.
    inline_slots: u64,
}

impl ChannelLayout {
    /// For a group of so many ranks, whose links have this round trip.
    pub(crate) fn new(ranks: u32, round_trip: Duration) -> Self {
        let limits = TileLimits::of_group(ranks);
        ChannelLayout {
            limits,
            slots: slots(ranks, limits, round_trip),
            inline_slots: match ranks as usize <= INLINE_RANKS {
                true => INLINE_SLOTS,
                false => 0,
            },
        }
    }

    /// The size of a channel, in bytes.
    pub(crate) fn channel_bytes(self) -> u64 {
        self.receive(LANES - 1, self.slots - 1) + self.limits.receive_bytes
    }

    /// The size of a group's scratch memory, in bytes.
    pub(crate) fn scratch_total(self) -> u64 {
        self.claim(LANES, 0, 0)
    }

    /// The slot of tile `g`, among those of its lane.
    pub(crate) fn slot_of(self, g: u64) -> usize {
        (g % self.slots as u64) as usize
    }

    /// Where a slot's flag line lies: a flag, and behind it the fingerprint of the operation.
    pub(crate) fn flag(self, lane: usize, slot: usize) -> u64 {
        (lane * self.slots + slot) as u64 * SPACING
    }

    /// Where a lane's credit lies: the number of tiles that the peer has ended.
    pub(crate) fn credit(self, lane: usize) -> u64 {
        self.flag(LANES, 0) + lane as u64 * SPACING
    }

    /// Where the number of fragments lies that the peer has sent.
    pub(crate) fn fragments_sent(self) -> u64 {
        self.credit(LANES)
    }

    /// Where the number of fragments lies that the peer has taken in.
    pub(crate) fn fragments_taken(self) -> u64 {
        self.fragments_sent() + SPACING
    }

    /// Where a word lies that says nothing: the peer signals there to wake whoever waits for what
    /// it has written to symmetric memory.
    pub(crate) fn bell(self) -> u64 {
        self.fragments_taken() + SPACING
    }

    /// Where a slot of inline operations lies.
    pub(crate) fn inline(self, slot: u64) -> u64 {
        self.bell() + SPACING + slot * INLINE_STRIDE
    }

    /// Where a fragment lies.
    pub(crate) fn fragment(self, slot: usize) -> u64 {
        self.inline(self.inline_slots).next_multiple_of(4096) + slot as u64 * FRAGMENT_BYTES
    }

    /// Where a slot's receive buffer lies.
    pub(crate) fn receive(self, lane: usize, slot: usize) -> u64 {
        self.fragment(FRAGMENTS) + (lane * self.slots + slot) as u64 * self.limits.receive_bytes
    }

    /// Where the temporary memory of inline operations lies in the group's scratch memory, behind
    /// those of the lanes.
    pub(crate) fn inline_scratch(self, slot: u64) -> u64 {
        self.scratch(LANES, 0) + slot * INLINE_SCRATCH
    }

    /// Where the word of a claimable step lies in its owner's scratch memory, behind all slots. See
    /// `weft_transport::claim`.
    pub(crate) fn claim(self, lane: usize, slot: usize, id: u32) -> u64 {
        let words = (lane * self.slots + slot) as u64 * u64::from(CLAIMS) + u64::from(id);
        self.inline_scratch(INLINE_SCRATCHES) + words * SPACING
    }

    /// Where a slot lies in the group's scratch memory.
    pub(crate) fn scratch(self, lane: usize, slot: usize) -> u64 {
        (lane * self.slots + slot) as u64 * self.limits.scratch_bytes
    }
}

/// How many slots a lane has. See [Note: Windows].
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

/// The lane of operation `sequence`, of a level of priority.
pub(crate) fn lane_of(sequence: u64, level: usize) -> usize {
    match level {
        0 => (sequence % ORDINARY_LANES as u64) as usize,
        level => ORDINARY_LANES + level - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::flag_value;

    const MILLIS: [u64; 4] = [0, 1, 10, 200];

    #[test]
    fn groups_within_a_host_have_two_slots_and_others_more() {
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
            assert!(words[words.len() - 1] + SPACING <= layout.inline(0));
            assert!(layout.inline(layout.inline_slots) <= layout.fragment(0));
            assert_eq!(layout.fragment(FRAGMENTS), layout.receive(0, 0));
            assert!(layout.receive(LANES - 1, slots - 1) < layout.channel_bytes());
            assert_eq!(layout.claim(0, 0, CLAIMS), layout.claim(0, 1, 0));
            assert_eq!(layout.claim(0, slots, 0), layout.claim(1, 0, 0));
            assert!(layout.claim(LANES - 1, slots - 1, CLAIMS - 1) < layout.scratch_total());
        }
    }

    #[test]
    fn flags_of_later_tiles_are_larger() {
        assert!(flag_value(0, 0) > 0);
        assert!(flag_value(1, 0) > flag_value(0, 65_000));
    }
}
