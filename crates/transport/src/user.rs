//! The user that this process runs as, and those of its peers on this host.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::checked;

/// The process's effective user, which owns the files that it makes.
pub fn effective_user() -> u32 {
    // SAFETY: a plain query, which cannot fail.
    unsafe { libc::geteuid() }
}

/// The process and the user at the other end of a Unix socket.
///
/// # Errors
///
/// The system call fails: the socket is no connected Unix socket.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let place = (&raw mut credentials).cast();
    // SAFETY: the place is writable, and `len` says how long it is.
    checked("getsockopt(SO_PEERCRED)", unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, place, &mut len)
    })?;
    Ok(credentials)
}
