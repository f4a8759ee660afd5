//! A file that all measuring processes map, regardless of the library.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A file that is mapped for reading and writing.
///
/// Invariants: the mapping covers `len` bytes, begins on a page, and does not move until the value
/// is dropped. The file is not shortened meanwhile.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is valid for all threads; its content is accessed by atomics, or by raw
// pointers whose users state why they may.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, which is created if it does not exist, and extends it to at least `len` bytes
    /// with zeros.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, extended or mapped.
    pub fn open(path: &Path, len: usize) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.len() < len as u64 {
            file.set_len(len as u64)?;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = file.as_raw_fd();
        // SAFETY: a new mapping, placed by the kernel, touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).expect("the kernel does not map at address zero by itself");
        Ok(Self { base, len })
    }

    /// The byte at this offset.
    ///
    /// # Panics
    ///
    /// If it is beyond the mapping's end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "{offset} of {} bytes", self.len);
        self.base.as_ptr().wrapping_add(offset)
    }

    /// The 64-bit word at this offset.
    ///
    /// # Panics
    ///
    /// If it is not within the mapping, or not aligned.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.len,
            "{offset}"
        );
        // SAFETY: aligned, and within the mapping, which lives as long as `self`; this memory is
        // only used atomically.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
