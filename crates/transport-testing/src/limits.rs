//! Descriptor limits, for tests of processes without free descriptors.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Sets the number of descriptors that this process may have, and returns the previous limit.
pub fn limit_descriptors(most: libc::rlim_t) -> libc::rlim_t {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the place is writable and of the right type.
    let found = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    assert_eq!(found, 0);
    // SAFETY: it was written.
    let mut limit = unsafe { limit.assume_init() };
    let before = std::mem::replace(&mut limit.rlim_cur, most);
    // SAFETY: the limit is readable.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    before
}

/// The number that the next descriptor of this process gets.
pub fn next_descriptor() -> libc::rlim_t {
    let next = File::open("/dev/null").unwrap();
    next.as_raw_fd() as libc::rlim_t
}
