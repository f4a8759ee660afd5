//! One descriptor that watches several.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::checked;
use crate::fork::Descriptor;

/// Is readable when one of several descriptors is readable, or, where requested, writable.
#[derive(Debug)]
pub struct WatchedDescriptors {
    epoll: Descriptor,
}

impl WatchedDescriptors {
    /// Watches these descriptors, which must stay open while they are watched.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub fn new(watched: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        let this = Self {
            epoll: Descriptor::epoll()?,
        };
        watched
            .into_iter()
            .try_for_each(|descriptor| this.watch(descriptor))?;
        Ok(this)
    }

    /// Watches a further descriptor, or one whose file was replaced.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn watch(&self, descriptor: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, false)
    }

    /// The descriptor to watch for readability.
    pub fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Sets whether to watch one of them for writability too.
    ///
    /// # Errors
    /// If the descriptor is not watched.
    pub fn set_writing(&self, watched: RawFd, writing: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, watched, writing)
    }

    fn control(&self, operation: libc::c_int, watched: RawFd, writing: bool) -> io::Result<()> {
        let out = if writing { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | out) as u32,
            u64: 0,
        };
        // SAFETY: the event outlives the call.
        let done = unsafe { libc::epoll_ctl(self.descriptor(), operation, watched, &mut event) };
        checked("epoll_ctl", done).map(drop)
    }
}
