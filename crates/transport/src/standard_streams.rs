//! Descriptors 0 to 2, which belong to the program and its standard streams.
//!
//! Where a process runs with some of them closed, the kernel assigns their numbers, the lowest free
//! ones, to descriptors that are opened next. A pool that became descriptor 1 would be overwritten
//! by the output of any library. So while weft opens something, [placeholders](hold) take the free
//! numbers: they can be neither read nor written (`O_PATH`), so that other threads that print get
//! the same error (`EBADF`) as before. Moving a new descriptor upwards afterwards would not be
//! enough: until then it could be written to.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::last_failure;

/// The lowest number that is not a standard stream's.
pub(crate) const FIRST_PRIVATE: RawFd = 3;

/// The number of callers that keep the placeholders. It is locked only where no fork can happen.
static HOLDERS: Mutex<usize> = Mutex::new(0);

/// The numbers that placeholders have, one bit each. Changed only with [`HOLDERS`] locked.
static PLACED: AtomicU8 = AtomicU8::new(0);

/// Takes those of the three numbers that are free, until [`release`]. Must be called while no
/// thread can fork.
pub(crate) fn hold() -> io::Result<()> {
    let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    while (0..FIRST_PRIVATE).any(is_free) {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: the path is a NUL-terminated literal.
        let number = unsafe { libc::open(c"/".as_ptr(), flags) };
        if number < 0 {
            let error = last_failure("open /");
            close_unless_kept(*holders);
            return Err(error);
        }
        if number >= FIRST_PRIVATE {
            // Another thread has taken the free number meanwhile.
            close(number);
            break;
        }
        PLACED.fetch_or(1 << number, Ordering::Relaxed);
    }
    *holders += 1;
    Ok(())
}

/// Frees the numbers once no other caller keeps them. Must be called while no thread can fork.
pub(crate) fn release() {
    let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    *holders -= 1;
    close_unless_kept(*holders);
}

/// Frees the numbers in a forked child, which has none of the parent's threads.
pub(crate) fn release_in_child() {
    // It was not locked when the process forked, so this cannot fail.
    if let Ok(mut holders) = HOLDERS.try_lock() {
        *holders = 0;
        close_unless_kept(0);
    }
}

fn close_unless_kept(holders: usize) {
    if holders > 0 {
        return;
    }
    let placed = PLACED.swap(0, Ordering::Relaxed);
    for number in (0..FIRST_PRIVATE).filter(|number| placed & 1 << number != 0) {
        if is_placeholder(number) {
            close(number);
        }
    }
}

fn is_free(number: RawFd) -> bool {
    // SAFETY: plain system call; it fails for nothing but a number that is free.
    unsafe { libc::fcntl(number, libc::F_GETFD) < 0 }
}

/// False once the program has put its own stream there (`dup2`).
fn is_placeholder(number: RawFd) -> bool {
    // SAFETY: plain system call.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_PATH != 0
}

fn close(number: RawFd) {
    // SAFETY: the descriptor was opened here, and nothing else owns it.
    unsafe { libc::close(number) };
}
