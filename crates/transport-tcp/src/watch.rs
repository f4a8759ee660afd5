//! One descriptor for several sockets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use weft_transport::fork::Descriptor;

/// Is readable when one of the sockets can be read from, or, where that is asked for, written to.
#[derive(Debug)]
pub(crate) struct WatchedSockets {
    epoll: Descriptor,
}

impl WatchedSockets {
    pub(crate) fn new(sockets: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        let watched = Self {
            epoll: Descriptor::epoll()?,
        };
        for socket in sockets {
            watched.control(libc::EPOLL_CTL_ADD, socket, false)?;
        }
        Ok(watched)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Whether to watch a socket for writability too.
    pub(crate) fn set_writing(&self, socket: RawFd, writing: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, writing)
    }

    fn control(&self, operation: libc::c_int, socket: RawFd, writing: bool) -> io::Result<()> {
        let out = if writing { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | out) as u32,
            u64: 0,
        };
        // SAFETY: the event outlives the call.
        match unsafe { libc::epoll_ctl(self.descriptor(), operation, socket, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
