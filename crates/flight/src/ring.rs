//! Ring of the last operations, which all threads write to without a lock.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_kernels::DType;
use weft_transport::TickClock;

/// The number of operations that are remembered. A power of two.
pub(super) const CAPACITY: usize = 1024;
/// Flag in the end time of an operation that failed.
const FAILED: u64 = 1 << 63;
/// Positions in the packed word: 8 bits of kind, 4 of type and of reduction each, 16 of plan, 32 of
/// rank.
const DTYPE_SHIFT: u32 = 8;
const OP_SHIFT: u32 = 12;
const PLAN_SHIFT: u32 = 16;
const RANK_SHIFT: u32 = 32;
/// A root or peer that does not exist or is not known.
pub const NO_RANK: u32 = u32::MAX;

/// A one-sided operation on symmetric memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneSidedKind {
    /// A write to another rank's part.
    Put,
    /// A read of another rank's part.
    Get,
    /// An update of a cell.
    Signal,
    /// An update of a cell that returns its value.
    Atomic,
    /// A wait for the value of a cell.
    WaitSignal,
    /// A wait until all writes have arrived.
    Quiet,
}

impl OneSidedKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [OneSidedKind; 6] = [
        OneSidedKind::Put,
        OneSidedKind::Get,
        OneSidedKind::Signal,
        OneSidedKind::Atomic,
        OneSidedKind::WaitSignal,
        OneSidedKind::Quiet,
    ];

    /// The name in records and counters.
    pub fn name(self) -> &'static str {
        match self {
            OneSidedKind::Put => "put",
            OneSidedKind::Get => "get",
            OneSidedKind::Signal => "signal",
            OneSidedKind::Atomic => "atomic",
            OneSidedKind::WaitSignal => "wait-signal",
            OneSidedKind::Quiet => "quiet",
        }
    }
}

/// The kind of an operation: a collective, by its index in [`weft_schedule::Collective::NAMES`], a
/// message, or a one-sided operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub(super) u8);

impl Kind {
    /// A message that is sent.
    pub const SEND: Kind = Kind(0x10);
    /// A message that is received.
    pub const RECEIVE: Kind = Kind(0x11);
    /// The first of the one-sided operations.
    const ONE_SIDED: u8 = 0x18;
    /// Set for counts that differ between ranks.
    const PER_RANK: u8 = 0x40;
    /// Set for operations that weft itself calls.
    const INTERNAL: u8 = 0x80;

    /// A collective, by its index in [`weft_schedule::Collective::NAMES`].
    pub fn collective(index: u8) -> Kind {
        Kind(index)
    }

    /// A one-sided operation.
    pub fn one_sided(kind: OneSidedKind) -> Kind {
        Kind(Self::ONE_SIDED + kind as u8)
    }

    /// The same, with counts that differ between ranks if `per_rank`.
    pub fn per_rank(self, per_rank: bool) -> Kind {
        Kind(self.0 | if per_rank { Self::PER_RANK } else { 0 })
    }

    pub(super) fn base(self) -> Kind {
        Kind(self.0 & !(Self::PER_RANK | Self::INTERNAL))
    }

    pub(super) fn is_message(self) -> bool {
        matches!(self.base(), Kind::SEND | Kind::RECEIVE)
    }

    pub(super) fn as_one_sided(self) -> Option<OneSidedKind> {
        let index = self.base().0.checked_sub(Self::ONE_SIDED)?;
        OneSidedKind::ALL.get(usize::from(index)).copied()
    }

    pub(super) fn is_collective(self) -> bool {
        !self.is_message() && self.as_one_sided().is_none()
    }

    pub(super) fn is_per_rank(self) -> bool {
        self.0 & Self::PER_RANK != 0
    }

    pub(super) fn is_internal(self) -> bool {
        self.0 & Self::INTERNAL != 0
    }
}

/// The part of a plan's hash that a record stores.
pub fn short_plan(plan: u64) -> u16 {
    let folded = (plan ^ plan >> 16 ^ plan >> 32 ^ plan >> 48) as u16;
    folded.max(u16::from(plan != 0))
}

/// Description of an operation that is issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The kind of operation.
    pub kind: Kind,
    /// The type of its elements, by number.
    pub dtype: u8,
    /// Its reduction, by number.
    pub op: u8,
    /// The plan, by [`short_plan`]; 0 while it is not chosen.
    pub plan: u16,
    /// Its priority.
    pub priority: i32,
    /// The root of a collective, or the peer of another operation; or [`NO_RANK`].
    pub rank: u32,
    /// The number among the collectives of the group, the tag of a message, or the number of the
    /// symmetric buffer.
    pub sequence: u64,
    /// The call's number of elements; with counts per rank, the elements of the whole message as
    /// far as this rank knows them; the bytes of a message or of a one-sided operation.
    pub count: u64,
}

impl Entry {
    /// A one-sided operation of `bytes` bytes on a rank's part of a symmetric buffer.
    pub fn one_sided(kind: OneSidedKind, peer: u32, buffer: u64, bytes: u64) -> Entry {
        Entry::message(Kind::one_sided(kind), peer, buffer, bytes)
    }

    /// A message of `bytes` bytes to or from a rank.
    pub fn message(kind: Kind, peer: u32, tag: u64, bytes: u64) -> Entry {
        Entry {
            kind,
            dtype: DType::U8 as u8,
            op: 0,
            plan: 0,
            priority: 0,
            rank: peer,
            sequence: tag,
            count: bytes,
        }
    }
}

/// A copy of a record. Times are ticks; 0 for events that have not happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) group: u32,
    pub(super) entry: Entry,
    pub(super) issued: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) failed: bool,
}

/// A cache line with a record. The stamp is the record's number plus 1, or 0 while it is written. A
/// reader checks it before and after reading.
#[repr(align(64))]
#[derive(Default)]
struct RecordSlot {
    stamp: AtomicU64,
    /// The group, and the priority.
    group: AtomicU64,
    /// The small fields of an [`Entry`].
    packed: AtomicU64,
    sequence: AtomicU64,
    count: AtomicU64,
    issued: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The last [`CAPACITY`] operations.
///
/// Two threads write the same slot only if one of them is suspended while the other issues
/// [`CAPACITY`] operations. That record may then be a mixture of both, which does no harm.
pub(super) struct RecordRing {
    clock: TickClock,
    next: AtomicU64,
    slots: Box<[RecordSlot; CAPACITY]>,
}

impl RecordRing {
    pub(super) fn new(clock: TickClock) -> Self {
        RecordRing {
            clock,
            next: AtomicU64::new(0),
            slots: Box::new(std::array::from_fn(|_| RecordSlot::default())),
        }
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &RecordSlot {
        &self.slots[number as usize % CAPACITY]
    }

    /// Records an operation that is issued now and, if `begins`, begins now. Returns its number.
    #[inline(always)]
    pub(super) fn issue(&self, group: u32, entry: &Entry, begins: bool) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number);
        let now = self.clock.now();
        slot.stamp.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let store = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        store(
            &slot.group,
            u64::from(group) << 32 | u64::from(entry.priority as u32),
        );
        store(&slot.packed, packed(entry));
        store(&slot.sequence, entry.sequence);
        store(&slot.count, entry.count);
        store(&slot.issued, now);
        store(&slot.begun, if begins { now } else { 0 });
        store(&slot.ended, 0);
        slot.stamp.store(number + 1, Ordering::Release);
        number
    }

    /// Records that an operation ends now.
    #[inline(always)]
    pub(super) fn end(&self, number: u64, failed: bool) {
        if let Some(slot) = self.still(number) {
            let failed = if failed { FAILED } else { 0 };
            slot.ended
                .store(self.clock.now() & !FAILED | failed, Ordering::Relaxed);
        }
    }

    /// Records that an operation begins now, unless it has begun before, and its plan, unless
    /// `plan` is 0.
    pub(super) fn begin(&self, number: u64, plan: u16) {
        let Some(slot) = self.still(number) else {
            return;
        };
        if slot.begun.load(Ordering::Relaxed) == 0 {
            slot.begun.store(self.clock.now(), Ordering::Relaxed);
        }
        if plan != 0 {
            let packed = slot.packed.load(Ordering::Relaxed) & !(0xffff << PLAN_SHIFT);
            slot.packed
                .store(packed | u64::from(plan) << PLAN_SHIFT, Ordering::Relaxed);
        }
    }

    /// Marks an operation that weft itself calls.
    pub(super) fn mark_internal(&self, number: u64) {
        if let Some(slot) = self.still(number) {
            slot.packed
                .fetch_or(Kind::INTERNAL.into(), Ordering::Relaxed);
        }
    }

    /// Records the sender of a message that was received from any rank.
    pub(super) fn set_peer(&self, number: u64, peer: u32) {
        if let Some(slot) = self.still(number) {
            let packed = slot.packed.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << RANK_SHIFT);
            slot.packed
                .store(packed | u64::from(peer) << RANK_SHIFT, Ordering::Relaxed);
        }
    }

    /// An operation's slot, unless a later operation has overwritten it.
    #[inline(always)]
    fn still(&self, number: u64) -> Option<&RecordSlot> {
        let slot = self.slot(number);
        (slot.stamp.load(Ordering::Relaxed) == number + 1).then_some(slot)
    }

    /// How many operations were issued.
    pub(super) fn issued(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The records, in the order of issue, without those that are being written.
    pub(super) fn records(&self) -> Vec<Record> {
        let next = self.next.load(Ordering::Acquire);
        let first = next.saturating_sub(CAPACITY as u64);
        (first..next)
            .filter_map(|number| self.read(number))
            .collect()
    }

    fn read(&self, number: u64) -> Option<Record> {
        let slot = self.slot(number);
        let stamped = || slot.stamp.load(Ordering::Acquire) == number + 1;
        if !stamped() {
            return None;
        }
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (group, packed, ended) = (load(&slot.group), load(&slot.packed), load(&slot.ended));
        let record = Record {
            number,
            group: (group >> 32) as u32,
            entry: Entry {
                priority: group as i32,
                sequence: load(&slot.sequence),
                count: load(&slot.count),
                ..unpacked(packed)
            },
            issued: load(&slot.issued),
            begun: load(&slot.begun),
            ended: ended & !FAILED,
            failed: ended & FAILED != 0,
        };
        fence(Ordering::Acquire);
        stamped().then_some(record)
    }
}

#[inline(always)]
fn packed(entry: &Entry) -> u64 {
    u64::from(entry.kind.0)
        | u64::from(entry.dtype) << DTYPE_SHIFT
        | u64::from(entry.op) << OP_SHIFT
        | u64::from(entry.plan) << PLAN_SHIFT
        | u64::from(entry.rank) << RANK_SHIFT
}

fn unpacked(packed: u64) -> Entry {
    Entry {
        kind: Kind(packed as u8),
        dtype: (packed >> DTYPE_SHIFT) as u8 & 15,
        op: (packed >> OP_SHIFT) as u8 & 15,
        plan: (packed >> PLAN_SHIFT) as u16,
        rank: (packed >> RANK_SHIFT) as u32,
        priority: 0,
        sequence: 0,
        count: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64) -> Entry {
        Entry {
            kind: Kind::collective(8).per_rank(true),
            dtype: 12,
            op: 7,
            plan: 0xabcd,
            priority: -3,
            rank: 5,
            sequence,
            count: !sequence,
        }
    }

    fn ring() -> RecordRing {
        RecordRing::new(TickClock::of_this_machine())
    }

    #[test]
    fn stored_entry_is_read_unchanged() {
        let ring = ring();
        let number = ring.issue(9, &entry(3), false);
        ring.begin(number, 0x1234);
        ring.set_peer(number, 6);
        ring.mark_internal(number);
        ring.end(number, true);
        let found = ring.records();
        let expected = Entry {
            kind: Kind(8 | Kind::PER_RANK | Kind::INTERNAL),
            plan: 0x1234,
            rank: 6,
            ..entry(3)
        };
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].group, found[0].entry), (9, expected));
        assert!(found[0].failed && found[0].issued <= found[0].begun);
        assert!(found[0].begun <= found[0].ended);
        assert!(found[0].entry.kind.is_per_rank() && found[0].entry.kind.is_internal());
    }

    #[test]
    fn end_of_overwritten_record_changes_nothing() {
        let ring = ring();
        let all = CAPACITY as u64 + 10;
        let numbers: Vec<u64> = (0..all).map(|n| ring.issue(0, &entry(n), true)).collect();
        ring.end(numbers[3], false);
        ring.begin(numbers[3], 1);
        let found = ring.records();
        assert_eq!(found.len(), CAPACITY);
        assert_eq!(found[0].entry, entry(10));
        assert_eq!(found[CAPACITY - 1].number, all - 1);
        assert!(found.iter().all(|record| record.ended == 0));
    }

    #[test]
    fn reader_never_sees_mixed_records() {
        let ring = ring();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..50_000).for_each(|n| ring.end(ring.issue(1, &entry(n), true), false))
                });
            }
            for _ in 0..50 {
                for record in ring.records() {
                    assert_eq!(record.entry, entry(record.entry.sequence));
                }
            }
        });
        // A suspended thread may have overwritten a newer record with an old one.
        (0..CAPACITY as u64).for_each(|n| _ = ring.issue(1, &entry(n), true));
        assert_eq!(ring.records().len(), CAPACITY);
    }
}
