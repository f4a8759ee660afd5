//! Pieces of symmetric memory: the ranks' parts of them, and the position of a call's memory in
//! them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_call::Error;
use weft_call::{Call, Counts, mix};
use weft_schedule::Collective;
use weft_transport::{LinkError, RegionKey, Segment};

use super::{Bases, Region};

/// The most parts that peers may announce, together, of pieces that this rank has not made yet.
const AHEAD_PARTS_MAX: u64 = 1 << 20;
/// The least number of such pieces for any number of ranks.
const AHEAD_MIN: u64 = 1024;

/// Signals begin after the data, at a multiple of this number of bytes.
const SIGNALS_ALIGN: u64 = 64;
/// The size of a cell, and so of a signal, in bytes.
pub const CELL_BYTES: u64 = 8;

/// The size of each rank's part of a piece: data, followed by signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceSize {
    /// The bytes of data.
    pub bytes: u64,
    /// The number of signals.
    pub signals: u32,
}

impl PieceSize {
    /// The offset of the signals, in bytes.
    pub fn signals_at(self) -> u64 {
        self.bytes.next_multiple_of(SIGNALS_ALIGN)
    }

    /// The bytes of a part; `None` if that overflows.
    pub fn total(self) -> Option<u64> {
        match self.signals {
            0 => Some(self.bytes),
            signals => {
                let start = self.bytes.checked_next_multiple_of(SIGNALS_ALIGN)?;
                start.checked_add(CELL_BYTES * u64::from(signals))
            }
        }
    }
}

impl fmt::Display for PieceSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes and {} signals", self.bytes, self.signals)
    }
}

/// This rank's state of one piece of symmetric memory.
pub(crate) struct SymmetricPiece {
    /// The size that this rank requests, or another rank until this one does.
    size: PieceSize,
    /// Every rank's part, as mapped here; `None` for ranks on other hosts.
    parts: Vec<Option<Arc<Segment>>>,
    /// The key of every other rank's part for the link to that rank.
    regions: Vec<Option<RegionKey>>,
    /// The ranks whose announcement has arrived.
    announced: Vec<bool>,
    /// This rank's exposed part, once it is made.
    region: Option<Arc<Region>>,
    /// The ranks that have freed the piece.
    released: Arc<[AtomicBool]>,
    /// The rank whose part all ranks use, if there is one.
    holder: Option<u32>,
    /// A different size that some rank requests.
    other_size: Option<PieceSize>,
    /// The error of a rank that could not make its part.
    failure: Option<Error>,
}

/// This rank's part of a piece.
pub enum OwnPart {
    /// No such piece was made.
    Unknown,
    /// This rank has freed it.
    Freed,
    /// Its memory.
    Present(Arc<Segment>),
}

/// Access to the ranks' parts of a piece.
pub struct PieceParts {
    /// Every rank's part, as mapped here.
    pub mapped: Vec<Option<Arc<Segment>>>,
    /// The ranks that have freed the piece.
    pub released: Arc<[AtomicBool]>,
}

/// The progress of making a piece.
pub enum PieceProgress {
    /// These ranks have not announced their parts yet.
    Waiting(Vec<u32>),
    /// All ranks have announced their parts.
    Complete,
    /// Some rank requests this size instead.
    OtherSize(PieceSize),
    /// Some rank could not make its part.
    Failed(Error),
}

impl SymmetricPiece {
    fn new(size: PieceSize, ranks: u32) -> Self {
        SymmetricPiece {
            size,
            parts: vec![None; ranks as usize],
            regions: vec![None; ranks as usize],
            announced: vec![false; ranks as usize],
            region: None,
            released: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            holder: None,
            other_size: None,
            failure: None,
        }
    }

    fn complete(&self) -> bool {
        self.announced.iter().all(|announced| *announced)
    }

    fn missing(&self) -> Vec<u32> {
        let ranks = (0..).zip(&self.announced);
        ranks
            .filter_map(|(rank, announced)| (!announced).then_some(rank))
            .collect()
    }

    fn progress(&self) -> PieceProgress {
        match (&self.failure, self.other_size) {
            (Some(error), _) => PieceProgress::Failed(error.clone()),
            (None, Some(other)) => PieceProgress::OtherSize(other),
            (None, None) if self.complete() => PieceProgress::Complete,
            (None, None) => PieceProgress::Waiting(self.missing()),
        }
    }

    /// The offset of memory in this rank's part, if it is within it.
    fn offset(&self, rank: u32, address: *const u8, bytes: u64) -> Option<u64> {
        let part = self.parts[rank as usize].as_ref()?;
        let offset = (address as u64).checked_sub(part.base().as_ptr() as u64)?;
        (offset.checked_add(bytes)? <= self.size.total()?).then_some(offset)
    }
}

/// A group's symmetric memory. Operations on the calling-thread path use it without the engine.
#[derive(Default)]
pub struct Pieces {
    /// The number of pieces that this rank has made. The same on all ranks between two calls.
    made: AtomicU64,
    pieces: Mutex<HashMap<u64, SymmetricPiece>>,
}

/// The position of a call's symmetric memory.
struct Located<'a> {
    call: &'a Call,
    output: (u64, &'a SymmetricPiece, u64),
    input: (u64, &'a SymmetricPiece, u64),
    gathers_in_place: bool,
}

impl Pieces {
    /// Whether any piece was made.
    #[inline]
    pub fn made(&self) -> bool {
        self.made.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, SymmetricPiece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new piece, with this rank's part of it if it could be made. Returns the piece's
    /// number.
    pub fn announce(
        &self,
        rank: u32,
        ranks: u32,
        part: Option<&(Arc<Segment>, Arc<Region>)>,
        size: PieceSize,
    ) -> u64 {
        let mut pieces = self.lock();
        let piece = self.made.fetch_add(1, Ordering::AcqRel);
        let shared = pieces
            .entry(piece)
            .or_insert_with(|| SymmetricPiece::new(size, ranks));
        if shared.size != size {
            shared.other_size = Some(shared.size);
            shared.size = size;
        }
        shared.announced[rank as usize] = true;
        shared.parts[rank as usize] = part.map(|(segment, _)| segment.clone());
        shared.region = part.map(|(_, region)| region.clone());
        piece
    }

    /// Records a peer's part of a piece.
    ///
    /// # Errors
    ///
    /// [`LinkError::Protocol`] for a piece that cannot exist.
    pub fn arrived(
        &self,
        rank: u32,
        ranks: u32,
        piece: u64,
        size: PieceSize,
        (region, part): (Option<RegionKey>, Option<Arc<Segment>>),
    ) -> Result<(), LinkError> {
        let mut pieces = self.lock();
        let shared = self.announced_piece(&mut pieces, ranks, piece, size)?;
        shared.announced[rank as usize] = true;
        if shared.size != size {
            shared.other_size = Some(size);
        }
        let whole = |part: &Arc<Segment>| size.total().is_some_and(|total| part.len() >= total);
        shared.parts[rank as usize] = part.filter(whole);
        shared.regions[rank as usize] = region;
        Ok(())
    }

    /// A piece that a peer announces. The peer may be ahead of this rank by a limited number of
    /// pieces, and may not name a piece that all ranks have freed.
    fn announced_piece<'a>(
        &self,
        pieces: &'a mut HashMap<u64, SymmetricPiece>,
        ranks: u32,
        piece: u64,
        size: PieceSize,
    ) -> Result<&'a mut SymmetricPiece, LinkError> {
        let made = self.made.load(Ordering::Acquire);
        let ahead = (AHEAD_PARTS_MAX / u64::from(ranks)).max(AHEAD_MIN);
        match pieces.entry(piece) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) if (made..made.saturating_add(ahead)).contains(&piece) => {
                Ok(new.insert(SymmetricPiece::new(size, ranks)))
            }
            Entry::Vacant(_) => Err(LinkError::Protocol(format!(
                "an announcement of symmetric memory number {piece}, while this rank has made {made} \
                 and peers may be at most {ahead} ahead"
            ))),
        }
    }

    /// Access to the parts of a piece, unless all ranks have freed it.
    pub fn parts(&self, piece: u64) -> Option<PieceParts> {
        let pieces = self.lock();
        let shared = pieces.get(&piece)?;
        Some(PieceParts {
            mapped: shared.parts.clone(),
            released: shared.released.clone(),
        })
    }

    /// The key of a rank's part of a piece for the link to it.
    pub fn region(&self, piece: u64, rank: u32) -> Option<RegionKey> {
        self.lock().get(&piece)?.regions[rank as usize]
    }

    /// This rank's part of a piece.
    pub fn own_part(&self, piece: u64, rank: u32) -> OwnPart {
        if piece >= self.made.load(Ordering::Acquire) {
            return OwnPart::Unknown;
        }
        let pieces = self.lock();
        let shared = pieces.get(&piece);
        let there = shared.filter(|shared| !shared.released[rank as usize].load(Ordering::Acquire));
        match there.and_then(|shared| shared.parts[rank as usize].clone()) {
            Some(part) => OwnPart::Present(part),
            None => OwnPart::Freed,
        }
    }

    /// Whether memory is within this rank's part of a piece, and so in a region.
    pub fn covers(&self, rank: u32, address: *const u8, bytes: u64) -> bool {
        let pieces = self.lock();
        let mut pieces = pieces.values().filter(|piece| piece.region.is_some());
        pieces.any(|piece| piece.offset(rank, address, bytes).is_some())
    }

    /// Records that a peer could not make its part of a piece.
    ///
    /// # Errors
    ///
    /// [`LinkError::Protocol`] for a piece that cannot exist.
    pub fn failed(
        &self,
        ranks: u32,
        piece: u64,
        size: PieceSize,
        error: Error,
    ) -> Result<(), LinkError> {
        let mut pieces = self.lock();
        let shared = self.announced_piece(&mut pieces, ranks, piece, size)?;
        shared.failure.get_or_insert(error);
        Ok(())
    }

    /// Records that a rank has freed a piece, which is unmapped once all ranks have.
    pub fn released(&self, rank: u32, piece: u64) {
        let mut pieces = self.lock();
        if let Some(shared) = pieces.get_mut(&piece) {
            shared.released[rank as usize].store(true, Ordering::Release);
            let released = |rank: &AtomicBool| rank.load(Ordering::Acquire);
            if shared.released.iter().all(released) {
                pieces.remove(&piece);
            }
        }
    }

    /// Records that all ranks use this rank's part of a piece.
    pub fn held_by(&self, piece: u64, holder: u32) {
        if let Some(shared) = self.lock().get_mut(&piece) {
            shared.holder = Some(holder);
        }
    }

    /// Makes the parts that this rank uses as its own private: see [`Segment::make_private`].
    ///
    /// # Errors
    ///
    /// If the system refuses it.
    pub fn make_private(&self, rank: u32) -> std::io::Result<()> {
        let pieces = self.lock();
        let mut own = pieces.values().filter_map(|piece| {
            let used = piece.holder.unwrap_or(rank);
            piece.parts.get(used as usize)?.as_ref()
        });
        own.try_for_each(|part| part.make_private())
    }

    /// The progress of making a piece.
    pub fn progress_of(&self, piece: u64) -> PieceProgress {
        let pieces = self.lock();
        match pieces.get(&piece) {
            None => PieceProgress::Waiting(Vec::new()),
            Some(shared) => shared.progress(),
        }
    }

    /// The position of a call's memory as a number, and every rank's addresses. See
    /// [`Pieces::find`].
    pub fn bases(&self, call: &Call, rank: u32, ranks: u32) -> Option<(u64, Bases)> {
        let mut buffers = vec![(std::ptr::null(), std::ptr::null_mut()); ranks as usize];
        let place = self.find(call, rank, &mut buffers)?;
        let bases = Bases {
            input: call.input,
            output: call.output,
            peers: Some(buffers.into()),
        };
        Some((place, bases))
    }

    /// Finds the piece and offset of a call's memory. Returns them as one number, which is not 0
    /// and the same on all ranks that pass the same piece and offset, and stores every rank's
    /// `Input` and `Output` in `buffers`.
    #[inline]
    pub fn find(
        &self,
        call: &Call,
        rank: u32,
        buffers: &mut [(*const u8, *mut u8)],
    ) -> Option<u64> {
        let pieces = self.lock();
        let located = Located::of(&pieces, call, rank, buffers.len() as u32)?;
        for (rank, buffers) in buffers.iter_mut().enumerate() {
            *buffers = located.buffers(rank);
        }
        Some(located.place())
    }
}

impl<'a> Located<'a> {
    fn of(
        pieces: &'a HashMap<u64, SymmetricPiece>,
        call: &'a Call,
        rank: u32,
        ranks: u32,
    ) -> Option<Self> {
        let (input_bytes, output_bytes) = buffer_bytes(call, rank, ranks);
        let own = |address: *const u8, bytes: u64| {
            pieces.iter().find_map(|(piece, shared)| {
                let offset = shared.offset(rank, address, bytes)?;
                shared
                    .parts
                    .iter()
                    .all(Option::is_some)
                    .then_some((*piece, shared, offset))
            })
        };
        let output = own(call.output.cast_const(), output_bytes)?;
        let input = match call.collective.in_place() {
            true => output,
            false => own(call.input, input_bytes)?,
        };
        // Each rank's input of an all-gather may be its block of the output, at a different offset
        // on each rank.
        let own_block = block_start(call, rank as usize);
        let gathers_in_place = matches!(call.collective, Collective::AllGather)
            && (input.0, input.2) == (output.0, output.2 + own_block);
        Some(Located {
            call,
            output,
            input,
            gathers_in_place,
        })
    }

    /// A rank's `Input` and `Output`.
    fn buffers(&self, rank: usize) -> (*const u8, *mut u8) {
        let at = |shared: &SymmetricPiece, offset: u64| {
            let part = shared.parts[rank].as_ref();
            part.map_or(std::ptr::null_mut(), |part| {
                part.base().as_ptr().wrapping_add(offset as usize)
            })
        };
        let (_, output, output_offset) = self.output;
        let (_, input, mut input_offset) = self.input;
        if self.gathers_in_place {
            input_offset = output_offset + block_start(self.call, rank);
        }
        (
            at(input, input_offset).cast_const(),
            at(output, output_offset),
        )
    }

    fn place(&self) -> u64 {
        let (output_piece, _, output_offset) = self.output;
        let (input_piece, _, input_offset) = self.input;
        let input_place = match self.gathers_in_place {
            true => u64::MAX,
            false => input_offset,
        };
        [output_offset, input_piece, input_place]
            .into_iter()
            .fold(mix(1, output_piece), mix)
            .max(1)
    }
}

/// The sizes of a call's buffers on one rank.
fn buffer_bytes(call: &Call, rank: u32, ranks: u32) -> (u64, u64) {
    use Collective::{AllGather, Gather, ReduceScatter, Scatter};
    let message = call.message_bytes(ranks);
    let block = block_start(call, rank as usize + 1) - block_start(call, rank as usize);
    match call.collective {
        AllGather | Gather { .. } => (block, message),
        ReduceScatter | Scatter { .. } => (message, block),
        _ => (message, message),
    }
}

/// Where a rank's block begins in the message, in bytes.
fn block_start(call: &Call, rank: usize) -> u64 {
    let elements = match &call.counts {
        Counts::Equal(block) => block * rank as u64,
        Counts::PerRank(blocks) => blocks[..rank].iter().sum(),
        Counts::PerPair { .. } => 0,
    };
    elements * call.dtype.size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: PieceSize = PieceSize {
        bytes: 64,
        signals: 0,
    };

    #[test]
    fn signals_follow_the_data() {
        let size = |bytes, signals| PieceSize { bytes, signals };
        assert_eq!(size(100, 0).total(), Some(100));
        assert_eq!(
            (size(100, 3).signals_at(), size(100, 3).total()),
            (128, Some(152))
        );
        assert_eq!(size(u64::MAX, 0).total(), Some(u64::MAX));
        assert_eq!(size(u64::MAX, 1).total(), None);
        assert_eq!(size(u64::MAX - 100, u32::MAX).total(), None);
    }

    #[test]
    fn peer_may_be_ahead_by_a_limited_number() {
        for (ranks, most) in [(2, 1 << 19), (512, 2048), (10_000, 1024)] {
            let pieces = Pieces::default();
            let announce = |piece| pieces.arrived(1, ranks, piece, DATA, (None, None));
            announce(most - 1).unwrap();
            let error = announce(most).unwrap_err().to_string();
            assert!(error.contains("while this rank has made 0"), "{error}");
            assert!(announce(u64::MAX).is_err());
            assert_eq!(pieces.announce(0, ranks, None, DATA), 0);
            announce(most).unwrap();
        }
    }

    #[test]
    fn piece_freed_by_all_ranks_is_not_recreated() {
        let pieces = Pieces::default();
        assert_eq!(pieces.announce(0, 2, None, DATA), 0);
        pieces.arrived(1, 2, 0, DATA, (None, None)).unwrap();
        pieces.released(0, 0);
        pieces.arrived(1, 2, 0, DATA, (None, None)).unwrap();
        pieces.released(1, 0);
        assert!(pieces.arrived(1, 2, 0, DATA, (None, None)).is_err());
        let failure = Error::Config("no memory".into());
        assert!(pieces.failed(2, 0, DATA, failure).is_err());
        assert!(pieces.parts(0).is_none());
    }
}
