//! Local memory of operations: regions, registered in pieces on first use, and memory that is
//! registered separately.
//!
//! A piece is registered on its first use, and stays so until its region is withdrawn. The owner of
//! exposed memory must not return its pages to the system meanwhile: the device would continue to
//! use the pages that it knows.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weft_transport::{DmaBuf, Iovec, LinkError, RegionKey, RegistrationKey, Segment};

use crate::verbs::{DeviceRegistration, LocalMemory, MemoryAccess, OpenDevice};

/// The size of a piece, except for the last of a segment; and the most bytes of one request:
/// devices have limits, of which 8 MiB is the lowest.
const PIECE_BYTES: u64 = 4 << 20;

/// The regions of an endpoint, as registered at one device.
pub(crate) struct Registered {
    device: Arc<OpenDevice>,
    regions: RwLock<Vec<(RegionKey, Arc<RegionPieces>)>>,
    sources: RwLock<HashMap<RegistrationKey, Source>>,
}

/// Separately registered memory.
struct Source {
    range: Range<u64>,
    memory: DeviceRegistration,
}

/// A region in pieces.
struct RegionPieces {
    segment: Arc<Segment>,
    start: u64,
    registered: Vec<OnceLock<DeviceRegistration>>,
}

impl Registered {
    pub(crate) fn new(device: &Arc<OpenDevice>, pool: &Arc<Segment>) -> Registered {
        let registered = Registered {
            device: Arc::clone(device),
            regions: RwLock::default(),
            sources: RwLock::default(),
        };
        registered.expose(RegionKey::POOL, pool);
        registered
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    pub(crate) fn expose(&self, key: RegionKey, segment: &Arc<Segment>) {
        let pieces = Arc::new(RegionPieces {
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

    /// Registers memory separately, under a new key; device memory through its file.
    pub(crate) fn register(
        &self,
        key: RegistrationKey,
        memory: Iovec,
        file: Option<DmaBuf<'_>>,
    ) -> io::Result<()> {
        let source = Source {
            range: range_of(memory),
            memory: match file {
                None => DeviceRegistration::source(&self.device, memory)?,
                Some(file) => {
                    let range = (memory.start() as u64, memory.len());
                    DeviceRegistration::of_device(&self.device, range, file)?
                }
            },
        };
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        sources.insert(key, source);
        Ok(())
    }

    /// Ends a separate registration.
    pub(crate) fn deregister(&self, key: RegistrationKey) {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let ended = sources.remove(&key);
        drop(sources);
        // It takes a while, and puts of other memory need the lock.
        drop(ended);
    }

    /// The source of a put, as registered at the device: in order, in parts of at most a piece.
    pub(crate) fn source(&self, memory: Iovec) -> Result<Vec<LocalMemory>, LinkError> {
        let Some(key) = memory.registration() else {
            return self.parts(memory.start(), memory.len());
        };
        let range = range_of(memory);
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let source = sources
            .get(&key)
            .filter(|source| source.range.start <= range.start && range.end <= source.range.end);
        let key = source.ok_or(LinkError::Unregistered)?.memory.local_key();
        let part = |address: u64| LocalMemory {
            address,
            bytes: PIECE_BYTES.min(range.end - address) as u32,
            key,
        };
        Ok(range
            .clone()
            .step_by(PIECE_BYTES as usize)
            .map(part)
            .collect())
    }

    /// Memory of this process as registered at its device: in order, in parts that end with pieces.
    pub(crate) fn parts(
        &self,
        start: *const u8,
        len: usize,
    ) -> Result<Vec<LocalMemory>, LinkError> {
        let range = start as u64..(start as u64).saturating_add(len as u64);
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let found = regions.iter().find(|(_, pieces)| pieces.covers(&range));
        let pieces = found.map(|(_, pieces)| Arc::clone(pieces));
        drop(regions);
        let pieces = pieces.ok_or(LinkError::Unregistered)?;
        Ok(pieces.parts(&self.device, range)?)
    }
}

fn range_of(memory: Iovec) -> Range<u64> {
    let start = memory.start() as u64;
    start..start.saturating_add(memory.len() as u64)
}

impl RegionPieces {
    fn covers(&self, range: &Range<u64>) -> bool {
        self.start <= range.start && range.end <= self.start + self.segment.len()
    }

    fn parts(&self, device: &Arc<OpenDevice>, range: Range<u64>) -> io::Result<Vec<LocalMemory>> {
        let mut parts = Vec::with_capacity(1);
        let mut at = range.start;
        while at < range.end {
            let number = (at - self.start) / PIECE_BYTES;
            let piece = self.piece(device, number)?;
            let end = range.end.min(self.start + (number + 1) * PIECE_BYTES);
            parts.push(LocalMemory {
                address: at,
                bytes: (end - at) as u32,
                key: piece.local_key(),
            });
            at = end;
        }
        Ok(parts)
    }

    fn piece(&self, device: &Arc<OpenDevice>, number: u64) -> io::Result<&DeviceRegistration> {
        let slot = &self.registered[number as usize];
        if let Some(piece) = slot.get() {
            return Ok(piece);
        }
        let start = number * PIECE_BYTES;
        let range = start..self.segment.len().min(start + PIECE_BYTES);
        let piece = DeviceRegistration::register(device, &self.segment, &range, MemoryAccess::Own)?;
        // Another thread may have registered the piece first: then this registration ends.
        Ok(slot.get_or_init(|| piece))
    }
}
