//! Poller of descriptors for readiness.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use weft_transport::checked;
use weft_transport::fork::Descriptor;

/// An epoll set. Clones watch the same set.
#[derive(Clone)]
pub(crate) struct Poller {
    epoll: Arc<Descriptor>,
    /// Ends a wait when written to.
    wake: Arc<Descriptor>,
}

const EVENTS: usize = 64;
const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };
/// The key of the wake descriptor.
const WAKE: u64 = u64::MAX;

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let poller = Poller {
            epoll: Arc::new(Descriptor::epoll()?),
            wake: Arc::new(Descriptor::event()?),
        };
        let wake = poller.wake.as_raw_fd();
        poller.control(libc::EPOLL_CTL_ADD, wake, WAKE, libc::EPOLLIN)?;
        // Reports now if a sandbox refuses to wait, as no event would ever be seen.
        poller.wait_into(&mut [NO_EVENT; 1], 0)?;
        Ok(poller)
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the eight bytes live until the call returns. Failure means that the counter is
        // full: it wakes all the same.
        let _ = unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn drain(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: the array has room for the eight bytes. Failure means that another thread has
        // drained it.
        let _ = unsafe {
            libc::read(
                self.wake.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches for readability.
    pub(crate) fn add(&self, descriptor: RawFd, key: u64) {
        ignore_closed(self.control(libc::EPOLL_CTL_ADD, descriptor, key, libc::EPOLLIN));
    }

    /// Watches for readability and, if `writing`, for writability.
    pub(crate) fn change(&self, descriptor: RawFd, key: u64, writing: bool) {
        let events = if writing {
            libc::EPOLLIN | libc::EPOLLOUT
        } else {
            libc::EPOLLIN
        };
        ignore_closed(self.control(libc::EPOLL_CTL_MOD, descriptor, key, events));
    }

    pub(crate) fn remove(&self, descriptor: RawFd) {
        ignore_closed(self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0));
    }

    /// The keys of descriptors that are ready now.
    pub(crate) fn ready(&self) -> Vec<u64> {
        self.wait(Duration::ZERO)
    }

    /// Waits until a descriptor is ready. Returns the keys of those that are.
    pub(crate) fn wait(&self, time: Duration) -> Vec<u64> {
        let mut events = [NO_EVENT; EVENTS];
        let millis = time.as_millis().min(i32::MAX as u128) as i32;
        // After an interrupt, the caller waits again.
        let count = self.wait_into(&mut events, millis).unwrap_or(0);
        let mut keys: Vec<u64> = events[..count].iter().map(|event| event.u64).collect();
        if keys.contains(&WAKE) {
            self.drain();
            keys.retain(|key| *key != WAKE);
        }
        keys
    }

    /// Waits up to `millis` milliseconds. Returns the number of events.
    fn wait_into(&self, events: &mut [libc::epoll_event], millis: i32) -> io::Result<usize> {
        let (epoll, room) = (self.epoll.as_raw_fd(), events.len() as i32);
        // SAFETY: the slice has room for as many events as are asked for.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, millis) };
        checked("epoll_wait", count).map(|count| count as usize)
    }

    fn control(&self, operation: i32, descriptor: RawFd, key: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: key,
        };
        // SAFETY: the event lives until the call returns.
        let done = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                operation,
                descriptor,
                &raw mut event,
            )
        };
        checked("epoll_ctl", done).map(drop)
    }
}

/// A failure means that the descriptor is closed already: the end of its link is detected
/// elsewhere.
fn ignore_closed(_result: io::Result<()>) {}
