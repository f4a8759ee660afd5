//! Replacement of mapped files: a segment's memory in the place of a file that is mapped already.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::Segment;

impl Segment {
    /// Puts the segment in the place of a file that this process has mapped, with the bytes that
    /// are there: the mapping at `address` shows the segment from now on, as does the descriptor.
    /// Who has mapped the file unmaps and closes what is there now, as it would have done before.
    ///
    /// Fails, and changes nothing, unless `address` is the beginning of a shared mapping of the
    /// whole file, as long as the segment, and the segment is not
    /// [private](Segment::make_private).
    ///
    /// # Safety
    /// Nobody else unmaps the file or writes there meanwhile, no other process has mapped it, and
    /// the descriptor's owner expects nothing of it but this memory.
    pub unsafe fn replace(&self, address: *mut u8, file: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_private() {
            let what = "the segment is no longer shared";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if !shows(address, self.pages(), file)? {
            let what = "not a shared mapping of a file as long as the segment";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let len = self.len() as usize;
        // SAFETY: the kernel has just told that there is a mapping of this length, to which nobody
        // writes, as the caller has promised; the segment is as long, and not the same memory.
        unsafe { ptr::copy_nonoverlapping(address, self.base().as_ptr(), len) };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let raw = self.descriptor().as_raw_fd();
        // SAFETY: it takes the place of whole pages of the one mapping that was found there, and
        // which the caller has put at our disposal. The bytes are the same.
        let mapped = unsafe { libc::mmap(address.cast(), len, protection, flags, raw, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // What is behind the file, which nobody maps any more, goes back to the system. Should that
        // fail, it does when the file is closed.
        // SAFETY: plain system call on a descriptor that its owner has put at our disposal.
        unsafe { libc::dup3(raw, file.as_raw_fd(), libc::O_CLOEXEC) };
        Ok(())
    }
}

/// Whether a file is mapped, shared and from its beginning, to so many bytes at this address.
fn shows(address: *const u8, bytes: u64, file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to writable memory of the right type.
    if unsafe { libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the structure.
    let status = unsafe { status.assume_init() };
    let device = (libc::major(status.st_dev), libc::minor(status.st_dev));
    let (start, inode) = (address as u64, status.st_ino);
    let expected = format!(
        "{start:x}-{:x} rw-s 00000000 {:02x}:{:02x} {inode} ",
        start + bytes,
        device.0,
        device.1
    );
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().any(|line| line.starts_with(&expected)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::fork::Descriptor;

    const BYTES: u64 = 10_000;

    /// A file that is mapped, as a library does it.
    struct Mapped {
        file: OwnedFd,
        base: *mut u8,
    }

    impl Mapped {
        fn new(bytes: u64, flags: i32) -> Mapped {
            // SAFETY: the name is a literal.
            let raw = unsafe { libc::memfd_create(c"library".as_ptr(), libc::MFD_CLOEXEC) };
            // SAFETY: the kernel just gave us this descriptor.
            let file = unsafe { OwnedFd::from_raw_fd(raw) };
            // SAFETY: plain system call on a descriptor that we own.
            assert_eq!(unsafe { libc::ftruncate(raw, bytes as libc::off_t) }, 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let len = bytes as usize;
            // SAFETY: a new mapping, placed by the kernel, touches no memory that exists.
            let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, raw, 0) };
            assert_ne!(base, libc::MAP_FAILED);
            let base = base.cast();
            Mapped { file, base }
        }

        fn byte(&self, at: usize) -> *mut u8 {
            self.base.wrapping_add(at)
        }
    }

    fn read(at: *const u8) -> u8 {
        // SAFETY: within a mapping of a test, which no other thread uses.
        unsafe { at.read() }
    }

    fn write(at: *mut u8, value: u8) {
        // SAFETY: as above.
        unsafe { at.write(value) }
    }

    fn replace(segment: &Segment, address: *mut u8, file: &Mapped) -> io::Result<()> {
        // SAFETY: the mapping is the test's own.
        unsafe { segment.replace(address, file.file.as_fd()) }
    }

    #[test]
    fn a_segment_takes_the_place_of_a_file() {
        let mapped = Mapped::new(BYTES, libc::MAP_SHARED);
        write(mapped.byte(9_999), 7);
        let segment = Segment::create("weft-test", BYTES).unwrap();
        replace(&segment, mapped.base, &mapped).unwrap();
        assert_eq!(read(mapped.byte(9_999)), 7);
        segment.word(8).store(77, Ordering::Relaxed);
        assert_eq!(read(mapped.byte(8)), 77);
        write(mapped.byte(16), 5);
        assert_eq!(segment.word(16).load(Ordering::Relaxed), 5);
        // The descriptor shows it, too.
        let again = Segment::map(Descriptor::copy_of(mapped.file.as_fd()).unwrap()).unwrap();
        assert_eq!(again.word(8).load(Ordering::Relaxed), 77);
        // What was mapped is unmapped by whoever did it; the segment stays.
        // SAFETY: the test's own mapping, which is not used any more.
        assert_eq!(unsafe { libc::munmap(mapped.base.cast(), 10_000) }, 0);
        assert_eq!(segment.word(16).load(Ordering::Relaxed), 5);
    }

    #[test]
    fn other_memory_is_left_alone() {
        let segment = Segment::create("weft-test", BYTES).unwrap();
        let (shared, private) = (libc::MAP_SHARED, libc::MAP_PRIVATE);
        let mapped = Mapped::new(BYTES, shared);
        let other = Mapped::new(BYTES, shared);
        for (address, file) in [
            (other.base, &mapped),
            (mapped.byte(4096), &mapped),
            (ptr::null_mut(), &mapped),
        ] {
            let error = replace(&segment, address, file).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        for mapped in [Mapped::new(BYTES, private), Mapped::new(3 * BYTES, shared)] {
            assert!(replace(&segment, mapped.base, &mapped).is_err());
        }
    }
}
