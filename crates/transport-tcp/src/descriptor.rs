//! Descriptors of sockets that are not connected.

use std::io;
use std::net::TcpStream;
use std::os::fd::FromRawFd;

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
