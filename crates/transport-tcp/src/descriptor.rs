//! Descriptors of sockets that are not connected, and the replacement of a socket.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

use weft_transport::checked;
use weft_transport::fork::Descriptor;

/// A new non-blocking TCP socket.
pub(crate) fn unconnected(family: i32) -> io::Result<Descriptor<TcpStream>> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    Descriptor::make(|| {
        // SAFETY: plain system call.
        let raw = checked("socket", unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
        Ok(unsafe { TcpStream::from_raw_fd(raw) })
    })
}

/// Replaces a file by another: the second descriptor's file is closed, and its number
/// stands for the first one's from now on. An epoll set that watched the closed file does not watch
/// the new one.
pub(crate) fn replace(file: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let (file, place) = (file.as_raw_fd(), place.as_raw_fd());
    // SAFETY: plain system call. Who owns the number owns the new file, which stays open as long.
    checked("dup3", unsafe { libc::dup3(file, place, libc::O_CLOEXEC) }).map(drop)
}
