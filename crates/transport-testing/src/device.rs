//! Memory of a device, as far as adapters know it: addresses that no processor reaches, and a file.

use std::ptr::NonNull;

use weft_transport::{DmaBuf, Segment, TransportKind};

/// Where the memory begins in its file: at a page, as its addresses do.
const START: u64 = 8192;

/// Memory that crashes whoever touches it, and that adapters read by its file.
pub struct DeviceMemory {
    addresses: NonNull<u8>,
    file: Segment,
    len: usize,
}

// SAFETY: the addresses are numbers for whoever has them, and the file is not written any more.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Of these bytes, of which there are some.
    pub fn new(bytes: &[u8]) -> DeviceMemory {
        let len = bytes.len();
        let end = START + len as u64;
        let file = Segment::create("device", end).expect("a segment");
        let inside = file.at(&(START..end)).expect("a range within it");
        // SAFETY: the range has so many bytes, and nobody else knows the segment yet.
        unsafe { inside.as_ptr().copy_from(bytes.as_ptr(), len) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping, placed by the kernel, touches no memory that exists.
        let base = unsafe { libc::mmap(nowhere, len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        DeviceMemory {
            addresses: NonNull::new(base.cast()).expect("not at zero"),
            file,
            len,
        }
    }

    /// The address of a byte.
    pub fn at(&self, offset: usize) -> *const u8 {
        self.addresses.as_ptr().wrapping_add(offset)
    }

    /// Its file, as a driver would export it.
    pub fn file(&self) -> DmaBuf<'_> {
        DmaBuf {
            file: self.file.descriptor(),
            offset: START,
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.addresses.as_ptr().cast(), self.len) };
    }
}

/// Whether links of this kind must take such memory here: those of tests always, adapters where
/// their library is made to (tests/rdma/dma_buf.c).
#[expect(
    clippy::disallowed_methods,
    reason = "who preloads that library says so"
)]
pub fn must_take_device_memory(kind: TransportKind) -> bool {
    match kind {
        TransportKind::Custom => true,
        TransportKind::Rdma => std::env::var_os("TEST_DMA_BUF").is_some(),
        _ => false,
    }
}
