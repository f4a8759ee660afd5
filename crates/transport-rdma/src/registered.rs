//! The own memory that operations read and write: regions, registered piece by piece as they are
//! used, and what is registered by itself.
//!
//! A piece is registered the first time that something in it is, and stays so until its region is
//! withdrawn. Whoever exposes memory must not give its pages back to the system meanwhile: the
//! device would go on using those that it knows.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weft_transport::{DmaBuf, Iovec, LinkError, RegionKey, RegistrationKey, Segment};

use crate::verbs::{Access, OpenDevice, OwnMemory, RegisteredMemory};

/// The size of a piece, but for the last of a segment; and the most bytes of one request: devices
/// have bounds, of which 8 MiB is the lowest.
const PIECE_BYTES: u64 = 4 << 20;

/// The regions of an endpoint, as one device knows them.
pub(crate) struct Registered {
    device: Arc<OpenDevice>,
    regions: RwLock<Vec<(RegionKey, Arc<Pieces>)>>,
    sources: RwLock<HashMap<RegistrationKey, Source>>,
}

/// Memory that is registered by itself.
struct Source {
    range: Range<u64>,
    memory: RegisteredMemory,
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
            sources: RwLock::default(),
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

    /// Registers memory by itself, under a key that was not used before; that of a device by its
    /// file.
    pub(crate) fn register(
        &self,
        key: RegistrationKey,
        memory: Iovec,
        file: Option<DmaBuf<'_>>,
    ) -> io::Result<()> {
        let source = Source {
            range: range_of(memory),
            memory: match file {
                None => RegisteredMemory::source(&self.device, memory)?,
                Some(file) => {
                    let range = (memory.start() as u64, memory.len());
                    RegisteredMemory::of_device(&self.device, range, file)?
                }
            },
        };
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        sources.insert(key, source);
        Ok(())
    }

    /// Ends that.
    pub(crate) fn deregister(&self, key: RegistrationKey) {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let ended = sources.remove(&key);
        drop(sources);
        // It takes a while, and puts of other memory need the lock.
        drop(ended);
    }

    /// What a put reads, as the device knows it: in order, in parts of at most a piece.
    pub(crate) fn source(&self, memory: Iovec) -> Result<Vec<OwnMemory>, LinkError> {
        let Some(key) = memory.registration() else {
            return self.parts(memory.start(), memory.len());
        };
        let range = range_of(memory);
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let source = sources
            .get(&key)
            .filter(|source| source.range.start <= range.start && range.end <= source.range.end);
        let key = source.ok_or(LinkError::Unregistered)?.memory.local_key();
        let part = |address: u64| OwnMemory {
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

fn range_of(memory: Iovec) -> Range<u64> {
    let start = memory.start() as u64;
    start..start.saturating_add(memory.len() as u64)
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
