//! The process at the other end of a socket, and proof of its end.
//!
//! The end of the socket is no proof: a living process may close it and continue writing to mapped
//! memory. A descriptor of the process itself becomes readable when all of its threads are gone.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_transport::fork::Descriptor;

/// Linux 6.5; not yet in libc.
const SO_PEERPIDFD: i32 = 77;

/// A peer's process.
pub(crate) struct PeerProcess {
    /// Its number as seen by this process: 0 if it is not visible.
    number: i32,
    /// None where the kernel provides none. Then there is no proof.
    handle: Option<Descriptor>,
    ended: AtomicBool,
}

impl PeerProcess {
    /// The process that has made the other end of a socket.
    pub(crate) fn behind(socket: BorrowedFd<'_>) -> io::Result<PeerProcess> {
        let number = weft_transport::peer_credentials(socket)?.pid;
        let handles = Descriptor::make_all(|| {
            let handle = handle_of(socket).or_else(|| handle_by_number(socket, number));
            Ok(handle.into_iter().collect())
        })?;
        Ok(PeerProcess {
            number,
            handle: handles.into_iter().next(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    /// Whether the kernel has reported its end, or does so within this time. False in a forked
    /// child.
    pub(crate) fn has_ended(&self, within: Duration) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return true;
        }
        // An end that cannot be queried is not proven.
        let asked = |handle: &Descriptor| is_readable(handle.as_raw_fd(), within);
        let ended = self.handle.as_ref().is_some_and(asked);
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        ended
    }
}

fn handle_of(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut raw: i32 = -1;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let place = (&raw mut raw).cast();
    let (level, socket) = (libc::SOL_SOCKET, socket.as_raw_fd());
    // SAFETY: the place is writable, and `len` says how long it is.
    let found = unsafe { libc::getsockopt(socket, level, SO_PEERPIDFD, place, &mut len) };
    adopt(found, raw)
}

/// For older kernels. Numbers are reused, but not while their process lives: if its socket has not
/// ended after this, the process was still alive.
fn handle_by_number(socket: BorrowedFd<'_>, number: i32) -> Option<OwnedFd> {
    if number <= 0 {
        return None;
    }
    // SAFETY: plain system call.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) } as i32;
    let handle = adopt(raw.min(0), raw)?;
    let mut entry = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the one entry outlives the call.
    let ended = unsafe { libc::poll(&mut entry, 1, 0) } != 0;
    (!ended).then_some(handle)
}

fn adopt(result: i32, raw: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel has just made this descriptor for us.
    (result >= 0 && raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}

fn is_readable(handle: i32, within: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd: handle,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the one entry outlives the call. An interrupted caller asks again later.
    let ready = unsafe { libc::poll(&mut entry, 1, milliseconds) };
    ready == 1 && entry.revents & libc::POLLIN != 0
}
