//! Memory that can be shared with other processes by passing its descriptor.

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::fork::Descriptor;
use crate::{checked, last_failure};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A sealed, mapped memory file.
///
/// Invariants: the mapping covers the file exactly, is readable and writable, shared unless it was
/// [made private](Segment::make_private), and keeps its address until the value is dropped; the
/// file is sealed against shrinking, so that no access within `len` reaches the end of the file.
///
/// Other processes write here at any moment. So the bytes are accessed by atomics
/// ([`Segment::word`]) or by raw pointers under a protocol that orders the accesses, never by
/// references to plain memory.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    descriptor: Descriptor,
    private: AtomicBool,
}

// SAFETY: the mapping is valid for all threads; every access goes through atomics or raw pointers,
// whose users order them.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a new segment of zeros. Its memory is virtual until it is
    /// [reserved](Segment::reserve).
    ///
    /// `name` is a label for humans, seen in the process's memory map.
    ///
    /// # Errors
    /// If the name contains a NUL byte, the length is invalid, or the system refuses the file or
    /// its mapping.
    pub fn create(name: &str, len: u64) -> io::Result<Segment> {
        let name = CString::new(name)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = Descriptor::make(|| {
            // SAFETY: the name is NUL-terminated and outlives the call.
            let raw = checked("memfd_create", unsafe {
                libc::memfd_create(name.as_ptr(), flags)
            })?;
            // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
            Ok(unsafe { OwnedFd::from_raw_fd(raw) })
        })?;
        let raw = file.as_raw_fd();
        let len = libc::off_t::try_from(len)
            .map_err(|_| invalid("the segment would exceed the largest file"))?;
        // First to length 0: for a moment it may have had the number of a closed standard stream,
        // to which the program printed.
        for len in [0, len] {
            // SAFETY: plain system call on a descriptor that we own.
            checked("ftruncate", unsafe { libc::ftruncate(raw, len) })?;
        }
        // SAFETY: plain system call on a descriptor that we own.
        checked("fcntl(F_ADD_SEALS)", unsafe {
            libc::fcntl(raw, libc::F_ADD_SEALS, SEALS | libc::F_SEAL_SEAL)
        })?;
        Segment::map(file)
    }

    /// Maps a segment whose descriptor was received from elsewhere. It must be sealed against
    /// shrinking.
    ///
    /// # Errors
    /// If it is not sealed, is empty, or cannot be mapped.
    pub fn map(descriptor: Descriptor) -> io::Result<Segment> {
        let raw = descriptor.as_raw_fd();
        // SAFETY: plain system call on a descriptor that we own.
        let seals = checked("fcntl(F_GET_SEALS)", unsafe {
            libc::fcntl(raw, libc::F_GET_SEALS)
        })?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(invalid("the segment is not sealed against shrinking"));
        }
        let len = file_len(descriptor.as_fd())?;
        if len == 0 {
            return Err(invalid("the segment is empty"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, placed by the kernel, affects no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, raw, 0) };
        if base == libc::MAP_FAILED {
            return Err(last_failure("mmap"));
        }
        let base =
            NonNull::new(base.cast()).expect("the kernel never maps at address zero unasked");
        Ok(Segment {
            base,
            len,
            descriptor,
            private: AtomicBool::new(false),
        })
    }

    /// The first byte, in this address space.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Always false: a segment has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor, for passing to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Whether the range is within the segment and does not run backwards.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.start <= range.end && range.end <= self.len()
    }

    /// The address of the start of a range, if the range is within the segment.
    pub fn at(&self, range: &Range<u64>) -> Option<NonNull<u8>> {
        if !self.contains(range) {
            return None;
        }
        // SAFETY: the offset is at most `len`, so the pointer stays within the mapping or one past
        // its end.
        Some(unsafe { self.base.add(range.start as usize) })
    }

    /// The 64-bit word at this offset.
    ///
    /// # Panics
    /// If the word is not within the segment or the offset is not a multiple of 8. For an offset
    /// from outside, use [`Segment::checked_word`].
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.checked_word(offset).unwrap_or_else(|| {
            panic!(
                "no aligned word at offset {offset} of a segment of {} bytes",
                self.len
            )
        })
    }

    /// The 64-bit word at this offset, if it is within the segment and aligned.
    #[inline]
    pub fn checked_word(&self, offset: u64) -> Option<&AtomicU64> {
        let pointer = self.aligned(offset, 8)?;
        // SAFETY: aligned, within the mapping, which lives as long as `self`; this memory is only
        // used atomically while it serves as a word.
        Some(unsafe { AtomicU64::from_ptr(pointer.cast().as_ptr()) })
    }

    /// The 32-bit word at this offset, if it is within the segment and aligned.
    #[inline]
    pub fn checked_half_word(&self, offset: u64) -> Option<&AtomicU32> {
        let pointer = self.aligned(offset, 4)?;
        // SAFETY: as in `checked_word`.
        Some(unsafe { AtomicU32::from_ptr(pointer.cast().as_ptr()) })
    }

    /// Allocates memory for the range, in whole pages: a lack of memory is an error here, not a
    /// fault (`SIGBUS`) later.
    ///
    /// # Errors
    /// If the range is outside the segment, or there is no memory.
    pub fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        if !self.contains(&range) {
            return Err(invalid("the range to reserve is not in the segment"));
        }
        let pages = self.pages_of(&range);
        if pages.is_empty() {
            return Ok(());
        }
        self.allocate(0, pages)?;
        self.enter(&range);
        Ok(())
    }

    /// Enters the allocated pages of the range into this process's page tables, so that first use
    /// causes no page fault. Nothing is entered outside the segment.
    pub fn enter(&self, range: &Range<u64>) {
        let pages = self.pages_of(range);
        let Some(start) = self.at(&pages) else { return };
        let len = (pages.end - pages.start) as usize;
        // SAFETY: the range is within our mapping, and populating it changes no contents. A
        // kernel without this advice refuses it, and the pages are faulted in when they are used.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
    }

    /// The pages of a range, up to the end of the segment.
    fn pages_of(&self, range: &Range<u64>) -> Range<u64> {
        let (page, end) = (page_len(), range.end.min(self.len()));
        range.start / page * page..end.next_multiple_of(page).min(self.len())
    }

    /// Frees the memory of the whole pages within the range. It then reads as zero.
    ///
    /// # Errors
    /// If the range is outside the segment, or the system call fails.
    pub fn release(&self, range: Range<u64>) -> io::Result<()> {
        if !self.contains(&range) {
            return Err(invalid("the range to release is not in the segment"));
        }
        let page = page_len();
        let start = range.start.next_multiple_of(page);
        let end = if range.end == self.len() {
            range.end
        } else {
            range.end / page * page
        };
        if start >= end {
            return Ok(());
        }
        self.allocate(
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            start..end,
        )
    }

    /// Fills the range with zeros, as [`Segment::release`] does, and keeps its memory.
    ///
    /// # Errors
    /// If the range is outside the segment.
    pub fn clear(&self, range: Range<u64>) -> io::Result<()> {
        let start = self.at(&range);
        let start = start.ok_or_else(|| invalid("the range to clear is not in the segment"))?;
        let len = (range.end - range.start) as usize;
        // SAFETY: the range is within our mapping, which lives as long as `self`. A concurrent
        // reader sees old bytes or zeros, as where memory is freed.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Ok(())
    }

    /// Makes this mapping private: it keeps the segment's contents, and later writes here are
    /// visible here only. A page that was not written here since may still change; a written one
    /// does not. Other mappings still show the segment. Idempotent.
    ///
    /// # Errors
    /// If the system refuses the mapping.
    pub fn make_private(&self) -> io::Result<()> {
        if self.private.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (base, raw) = (self.base.as_ptr().cast(), self.descriptor.as_raw_fd());
        // SAFETY: it replaces all of our own mapping, in one step, with the same bytes and rights.
        // A concurrent user accesses the one or the other.
        match unsafe { libc::mmap(base, self.len, protection, flags, raw, 0) } {
            libc::MAP_FAILED => Err(last_failure("mmap")),
            _ => Ok(()),
        }
    }

    fn allocate(&self, mode: i32, range: Range<u64>) -> io::Result<()> {
        let raw = self.descriptor.as_raw_fd();
        let (start, len) = (
            range.start as libc::off_t,
            (range.end - range.start) as libc::off_t,
        );
        loop {
            // SAFETY: plain system call on a descriptor that we own.
            match checked("fallocate", unsafe {
                libc::fallocate(raw, mode, start, len)
            }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    #[inline]
    fn aligned(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        if !offset.is_multiple_of(bytes) || offset.checked_add(bytes)? > self.len() {
            return None;
        }
        // SAFETY: the offset was just checked to lie within the mapping.
        Some(unsafe { self.base.add(offset as usize) })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: called once per mapping, by its owner, when nothing borrows it any more.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

fn file_len(file: BorrowedFd<'_>) -> io::Result<usize> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to writable memory of the right type.
    checked("fstat", unsafe {
        libc::fstat(file.as_raw_fd(), status.as_mut_ptr())
    })?;
    // SAFETY: the call succeeded, so it filled the structure.
    let status = unsafe { status.assume_init() };
    usize::try_from(status.st_size).map_err(|_| invalid("the segment's length is invalid"))
}

fn page_len() -> u64 {
    // SAFETY: plain query without arguments in memory.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(len).expect("the page size is always known")
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 16;

    fn segment() -> Segment {
        Segment::create("weft-test", PAGES * page_len()).unwrap()
    }

    /// The amount of memory that is allocated for a segment.
    fn resident(segment: &Segment) -> u64 {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the pointer is to writable memory of the right type.
        let result = unsafe { libc::fstat(segment.descriptor().as_raw_fd(), status.as_mut_ptr()) };
        assert_eq!(result, 0);
        // SAFETY: the call succeeded, so it filled the structure.
        let status = unsafe { status.assume_init() };
        status.st_blocks as u64 * 512
    }

    #[test]
    fn two_mappings_show_the_same_memory() {
        let first = segment();
        let second = Segment::map(Descriptor::copy_of(first.descriptor()).unwrap()).unwrap();
        assert_ne!(first.base(), second.base());
        assert_eq!(first.len(), second.len());
        first.word(8).store(77, Ordering::Release);
        assert_eq!(second.word(8).load(Ordering::Acquire), 77);
    }

    #[test]
    fn private_writes_stay_and_are_not_shared() {
        let segment = segment();
        let other = Segment::map(Descriptor::copy_of(segment.descriptor()).unwrap()).unwrap();
        let word = |segment: &Segment, offset| segment.word(offset).load(Ordering::Acquire);
        segment.word(0).store(1, Ordering::Release);
        let base = segment.base();
        segment.make_private().unwrap();
        assert_eq!((segment.base(), word(&segment, 0)), (base, 1));
        segment.word(0).store(2, Ordering::Release);
        assert_eq!(word(&other, 0), 1);
        other.word(0).store(3, Ordering::Release);
        // Also in the page that was written here.
        other.word(8).store(3, Ordering::Release);
        assert_eq!((word(&segment, 0), word(&segment, 8)), (2, 0));
        segment.make_private().unwrap();
        assert_eq!(word(&segment, 0), 2);
    }

    #[test]
    fn memory_is_reserved_and_released_by_pages() {
        let segment = segment();
        let page = page_len();
        assert_eq!(resident(&segment), 0);
        segment.reserve(page + 1..2 * page + 1).unwrap();
        assert_eq!(resident(&segment), 2 * page);
        segment.word(page).store(5, Ordering::Relaxed);
        // No whole page is in the range.
        segment.release(page + 8..2 * page + 8).unwrap();
        assert_eq!(segment.word(page).load(Ordering::Relaxed), 5);
        segment.release(page..2 * page).unwrap();
        assert_eq!(resident(&segment), page);
        assert_eq!(segment.word(page).load(Ordering::Relaxed), 0);
        segment.reserve(7..7).unwrap();
        segment.reserve(0..segment.len()).unwrap();
        assert_eq!(resident(&segment), segment.len());
    }

    /// How many bytes of a mapping are in this process's page tables.
    fn entered(segment: &Segment) -> u64 {
        let start = format!("{:x}-", segment.base().as_ptr() as u64);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    fn entered_pages_are_in_the_page_tables() {
        let segment = segment();
        segment.reserve(0..segment.len()).unwrap();
        let descriptor = Descriptor::copy_of(segment.descriptor()).unwrap();
        let other = Segment::map(descriptor).unwrap();
        assert_eq!(entered(&other), 0);
        other.enter(&(segment.len()..segment.len() + 1));
        other.enter(&(u64::MAX - 1..u64::MAX));
        assert_eq!(entered(&other), 0);
        let page = page_len();
        other.enter(&(page + 1..2 * page + 1));
        // A kernel before 5.14 has no such advice.
        assert!([0, 2 * page].contains(&entered(&other)));
    }

    #[test]
    fn ranges_outside_the_segment_are_refused() {
        let segment = segment();
        let len = segment.len();
        assert!(segment.reserve(0..len + 1).is_err());
        assert!(segment.release(len..len + 1).is_err());
        for offset in [1, 4, 7, len, len - 4, u64::MAX, u64::MAX - 7] {
            assert!(segment.checked_word(offset).is_none(), "{offset}");
        }
        assert!(segment.checked_word(len - 8).is_some());
        assert!(segment.checked_half_word(len - 4).is_some());
        assert!(segment.checked_half_word(2).is_none());
        assert!(segment.at(&(len..len)).is_some());
        assert!(segment.at(&(len..len + 1)).is_none());
        let (start, end) = (5, 3);
        assert!(segment.at(&(start..end)).is_none());
    }

    #[test]
    fn a_segment_cannot_shrink() {
        let segment = segment();
        let raw = segment.descriptor().as_raw_fd();
        // SAFETY: plain system calls.
        let shrunk = unsafe { libc::ftruncate(raw, 0) };
        assert_eq!(shrunk, -1);
    }

    #[test]
    fn only_sealed_files_are_mapped() {
        // SAFETY: the name is a literal.
        let raw = unsafe { libc::memfd_create(c"weft-test".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the kernel just gave us this descriptor, which stays open.
        let file = unsafe { BorrowedFd::borrow_raw(raw) };
        let error = Segment::map(Descriptor::copy_of(file).unwrap()).unwrap_err();
        assert!(error.to_string().contains("sealed"), "{error}");
    }

    #[test]
    fn descriptors_that_are_not_memory_are_refused() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let null = Descriptor::copy_of(null.as_fd()).unwrap();
        assert!(Segment::map(null).is_err());
        assert!(Segment::create("weft-test", 0).is_err());
        assert!(Segment::create("weft-test", u64::MAX).is_err());
        assert!(Segment::create("weft\0test", 4096).is_err());
    }
}
