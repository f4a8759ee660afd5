//! The own memory that operations read and write, registered piece by piece as it is used.
//!
//! A piece is registered the first time that something in it is, and stays so until its region is
//! withdrawn. Whoever exposes memory must not give its pages back to the system meanwhile: the
//! device would go on using those that it knows.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weft_transport::{LinkError, RegionKey, Segment};

use crate::verbs::{Access, OpenDevice, OwnMemory, RegisteredMemory};

/// The size of a piece, but for the last of a segment.
const PIECE_BYTES: u64 = 4 << 20;

/// The regions of an endpoint, as one device knows them.
pub(crate) struct Registered {
    device: Arc<OpenDevice>,
    regions: RwLock<Vec<(RegionKey, Arc<Pieces>)>>,
}

/// A region in pieces.
struct Pieces {
    segment: Arc<Segment>,
    start: u64,
    registered: Vec<OnceLock<RegisteredMemory>>,
}

impl Registered {
    pub(crate) fn new(device: &Arc<OpenDevice>, pool: &Arc<Segment>) -> Registered {
        let registered = Registered {
            device: Arc::clone(device),
            regions: RwLock::default(),
        };
        registered.expose(RegionKey::POOL, pool);
        registered
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    pub(crate) fn expose(&self, key: RegionKey, segment: &Arc<Segment>) {
        let pieces = Arc::new(Pieces {
            segment: Arc::clone(segment),
            start: segment.base().as_ptr() as u64,
            registered: (0..segment.len().div_ceil(PIECE_BYTES))
                .map(|_| OnceLock::new())
                .collect(),
        });
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.push((key, pieces));
    }

    pub(crate) fn withdraw(&self, key: RegionKey) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|(other, _)| *other != key);
    }

    /// Memory of this process as its device knows it: in order, in as many parts as there are
    /// pieces.
    pub(crate) fn parts(&self, start: *const u8, len: usize) -> Result<Vec<OwnMemory>, LinkError> {
        let range = start as u64..(start as u64).saturating_add(len as u64);
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let found = regions.iter().find(|(_, pieces)| pieces.covers(&range));
        let pieces = found.map(|(_, pieces)| Arc::clone(pieces));
        drop(regions);
        let pieces = pieces.ok_or(LinkError::Unregistered)?;
        Ok(pieces.parts(&self.device, range)?)
    }
}

impl Pieces {
    fn covers(&self, range: &Range<u64>) -> bool {
        self.start <= range.start && range.end <= self.start + self.segment.len()
    }

    fn parts(&self, device: &Arc<OpenDevice>, range: Range<u64>) -> io::Result<Vec<OwnMemory>> {
        let mut parts = Vec::with_capacity(1);
        let mut at = range.start;
        while at < range.end {
            let number = (at - self.start) / PIECE_BYTES;
            let piece = self.piece(device, number)?;
            let end = range.end.min(self.start + (number + 1) * PIECE_BYTES);
            parts.push(OwnMemory {
                address: at,
                bytes: (end - at) as u32,
                key: piece.local_key(),
            });
            at = end;
        }
        Ok(parts)
    }

    fn piece(&self, device: &Arc<OpenDevice>, number: u64) -> io::Result<&RegisteredMemory> {
        let slot = &self.registered[number as usize];
        if let Some(piece) = slot.get() {
            return Ok(piece);
        }
        let start = number * PIECE_BYTES;
        let range = start..self.segment.len().min(start + PIECE_BYTES);
        let piece = RegisteredMemory::register(device, &self.segment, &range, Access::Own)?;
        // Another thread's may have come first: then this one ends.
        Ok(slot.get_or_init(|| piece))
    }
}
