//! Device memory as adapters see it: addresses that the processor cannot access, and a file.

use std::ptr::NonNull;

use weft_transport::{DmaBuf, Segment, TransportKind};

/// The offset of the memory in its file: page-aligned, as its addresses are.
const START: u64 = 8192;

/// Memory that adapters read through its file; an access by the processor crashes.
pub struct DeviceMemory {
    addresses: NonNull<u8>,
    file: Segment,
    len: usize,
}

// SAFETY: the addresses are only numbers here, and the file is not written any more.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Device memory that holds these bytes, of which there is at least one.
    pub fn new(bytes: &[u8]) -> DeviceMemory {
        let len = bytes.len();
        let end = START + len as u64;
        let file = Segment::create("device", end).expect("a segment");
        let inside = file.at(&(START..end)).expect("a range within it");
        // SAFETY: the range is as long as the bytes, and nothing else uses the segment yet.
        unsafe { inside.as_ptr().copy_from(bytes.as_ptr(), len) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping, placed by the kernel, affects no existing memory.
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

    /// Its file, as a driver exports it.
    pub fn file(&self) -> DmaBuf<'_> {
        DmaBuf {
            file: self.file.descriptor(),
            offset: START,
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which nothing uses any more.
        unsafe { libc::munmap(self.addresses.as_ptr().cast(), self.len) };
    }
}

/// Whether links of this kind must accept such memory here: test links always, adapters where their
/// library is replaced by one that does (tests/rdma/dma_buf.c).
#[expect(
    clippy::disallowed_methods,
    reason = "set by the test that preloads that library"
)]
pub fn must_take_device_memory(kind: TransportKind) -> bool {
    match kind {
        TransportKind::Custom => true,
        TransportKind::Rdma => std::env::var_os("TEST_DMA_BUF").is_some(),
        _ => false,
    }
}
