//! The memory of a connection's two rings, one for each direction, in a segment made by the
//! dialling side.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_transport::Segment;
use weft_transport::fork::Descriptor;
use weft_transport::ring::Circle;

/// A power of two: enough for several of the longest messages with their envelope, and little
/// enough for a core's own cache.
pub(crate) const RING_BYTES: u64 = 64 * 1024;
/// The bytes before the circle: the reader's word, alone in its cache line and in the adjacent one
/// that is fetched with it.
const BEFORE: u64 = 128;
const DIRECTIONS: u64 = 2;

/// Both rings of a connection, from one side's view.
pub(crate) struct Rings {
    memory: Arc<Segment>,
    pub(crate) outgoing: Ring,
    pub(crate) incoming: Ring,
}

impl Rings {
    /// New rings, for the side that dials.
    pub(crate) fn create() -> io::Result<Rings> {
        let memory = Segment::create("weft-rings", DIRECTIONS * (BEFORE + RING_BYTES))?;
        Rings::over(memory, [0, 1])
    }

    /// The rings that the peer has made.
    pub(crate) fn map(descriptor: Descriptor) -> io::Result<Rings> {
        Rings::over(Segment::map(descriptor)?, [1, 0])
    }

    fn over(memory: Segment, [outgoing, incoming]: [u64; 2]) -> io::Result<Rings> {
        memory.reserve(0..DIRECTIONS * (BEFORE + RING_BYTES))?;
        let memory = Arc::new(memory);
        let ring = |number: u64| Ring {
            memory: Arc::clone(&memory),
            start: number * (BEFORE + RING_BYTES),
        };
        Ok(Rings {
            outgoing: ring(outgoing),
            incoming: ring(incoming),
            memory,
        })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.descriptor()
    }
}

/// The memory of one ring.
pub(crate) struct Ring {
    memory: Arc<Segment>,
    start: u64,
}

impl Ring {
    /// The address of bytes of the circle.
    ///
    /// # Panics
    /// If they reach beyond the circle.
    fn at(&self, place: u64, len: u64) -> *mut u8 {
        assert!(place <= RING_BYTES && len <= RING_BYTES - place);
        let start = self.start + BEFORE + place;
        let start = self.memory.at(&(start..start + len));
        start.expect("both rings lie in the segment").as_ptr()
    }
}

impl Circle for Ring {
    #[inline]
    fn bytes(&self) -> u64 {
        RING_BYTES
    }

    #[inline]
    fn header(&self, place: u64) -> &AtomicU64 {
        self.memory.word(self.start + BEFORE + place)
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        self.memory.word(self.start)
    }

    #[inline]
    fn write(&self, place: u64, bytes: &[u8]) {
        let at = self.at(place, bytes.len() as u64);
        // SAFETY: `at` checked that the mapping has these bytes. No reference to them exists, and
        // the ring's protocol leaves them to the writer: a peer that violates it reads invalid
        // bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    #[inline]
    fn read(&self, place: u64, len: u64, into: &mut Vec<u8>) {
        let (from, len) = (self.at(place, len), len as usize);
        into.reserve(len);
        let room = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: `at` checked that the mapping has these bytes, and `reserve` made room for them.
        // The ring's protocol leaves them to the reader: if the peer violates it, invalid bytes are
        // copied.
        unsafe { std::ptr::copy_nonoverlapping(from, room, len) };
        // SAFETY: these bytes were just written.
        unsafe { into.set_len(into.len() + len) };
    }
}
