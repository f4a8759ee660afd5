//! The doorbell: sleep of an endpoint until a peer or another thread wakes it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::fork::Descriptor;
use crate::presence::{self, Presence, PresenceGuard};
use crate::protocol::{self, Woken};
use crate::{Segment, last_failure, os_code};

/// The bytes at the start of every pool that belong to the transports. The owner may grant the
/// rest.
///
/// Layout: the doorbell's state (32 bits) at 0, its notification word (32 bits) at 128, the pool's
/// random label (128 bits) at [`POOL_LABEL`], the owner's presence (32 bits) at 384.
pub const POOL_HEADER: u64 = 4096;

/// The offset in the header at which a transport may keep a random label. A peer reads it to prove
/// that it has mapped this pool.
pub const POOL_LABEL: u64 = 256;

const STATE: u64 = 0;
const NOTIFIED: u64 = 128;
const PRESENCE: u64 = 384;

/// The ways to sleep.
#[derive(Clone, Copy, Debug)]
pub enum Sleep<'a> {
    /// On a futex in the pool: the fastest way to be woken, but only by the doorbell.
    Futex,
    /// In a poll, until the doorbell rings or this epoll descriptor has an event.
    Descriptors(BorrowedFd<'a>),
}

/// One endpoint's doorbell. Its state is in the header of the pool, where peers that map the pool
/// can reach it.
///
/// It supports two operations. A *ring* wakes the sleeper, if it sleeps, and leaves no trace: it is
/// for a caller that has just stored something that the sleeper's `ready` reads. A *notification*
/// stays until it is taken: it is for events that `ready` does not see, above all a message in a
/// socket.
///
/// One thread at a time may sleep.
#[derive(Debug)]
pub struct Doorbell {
    ringer: Ringer,
    occupied: AtomicBool,
}

impl Doorbell {
    /// Makes the doorbell of this pool and reserves the pool's header. There must be only one.
    ///
    /// # Errors
    /// If there is no memory for the header, or no descriptor left.
    pub fn new(pool: Arc<Segment>) -> io::Result<Doorbell> {
        pool.reserve(0..POOL_HEADER)?;
        Ok(Doorbell {
            ringer: Ringer {
                pool,
                event: Descriptor::event()?,
            },
            occupied: AtomicBool::new(false),
        })
    }

    /// Wakes the sleeper, if it sleeps. Call this after storing the value that the sleeper waits
    /// for.
    #[inline]
    pub fn ring(&self) {
        self.ringer.ring();
    }

    /// Leaves a notification until it is taken, and wakes the sleeper.
    pub fn notify(&self) {
        self.ringer.notify();
    }

    /// Takes the notification, if there is one: the caller must then check the links' messages.
    /// Costs one load if there is none.
    #[inline]
    pub fn take_notification(&self) -> bool {
        protocol::take_notification(self.ringer.word(NOTIFIED))
    }

    /// Shows peers that the calling thread is inside a call, until the guard is dropped.
    #[inline]
    pub fn enter(&self) -> PresenceGuard<'_> {
        PresenceGuard::new(self.ringer.word(PRESENCE))
    }

    /// The event descriptor, for passing to a peer, which makes a [`PeerDoorbell`] from it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ringer.event.as_fd()
    }

    /// Sleeps until the doorbell rings, the time is over, or (with [`Sleep::Descriptors`]) the
    /// epoll descriptor has an event.
    ///
    /// `ready` is called once, after the sleep was announced: every later store rings the doorbell.
    /// The sleep may also end for no reason, so callers check in a loop.
    ///
    /// # Panics
    /// If another thread sleeps on this doorbell.
    pub fn sleep(
        &self,
        mode: Sleep<'_>,
        ready: &mut dyn FnMut() -> bool,
        timeout: Duration,
    ) -> Woken {
        let _turn = SleepTurn::take(&self.occupied);
        let state = self.ringer.word(STATE);
        let notify = self.ringer.word(NOTIFIED);
        match mode {
            Sleep::Futex => protocol::sleep(state, notify, protocol::ON_FUTEX, ready, || {
                wait_on_futex(state, protocol::ON_FUTEX, timeout)
            }),
            Sleep::Descriptors(epoll) => {
                protocol::sleep(state, notify, protocol::IN_POLL, ready, || {
                    self.wait_in_poll(epoll, timeout)
                })
            }
        }
    }

    fn wait_in_poll(&self, epoll: BorrowedFd<'_>, timeout: Duration) -> bool {
        let event = self.ringer.event.as_raw_fd();
        let mut watched = [poll_entry(epoll.as_raw_fd()), poll_entry(event)];
        let timeout = timespec(timeout);
        // SAFETY: the array and the time outlive the call, and the count is the array's.
        let count = unsafe { libc::ppoll(watched.as_mut_ptr(), 2, &timeout, std::ptr::null()) };
        if watched[1].revents != 0 {
            drain(event);
        }
        count != 0
    }
}

/// A peer's doorbell, reached through the peer's pool, which this process maps.
#[derive(Debug)]
pub struct PeerDoorbell {
    ringer: Ringer,
}

impl PeerDoorbell {
    /// The doorbell of the peer whose pool and event descriptor these are.
    ///
    /// # Errors
    /// If the pool has no header.
    pub fn new(pool: Arc<Segment>, event: Descriptor) -> io::Result<PeerDoorbell> {
        if pool.len() < POOL_HEADER {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the peer's pool has no header",
            ));
        }
        Ok(PeerDoorbell {
            ringer: Ringer { pool, event },
        })
    }

    /// Wakes the peer, if it sleeps. Call this after storing the value that the peer waits for.
    #[inline]
    pub fn ring(&self) {
        self.ringer.ring();
    }

    /// The peer's presence.
    pub fn presence(&self) -> Presence {
        let state = self.ringer.word(STATE).load(Ordering::Relaxed);
        presence::read(self.ringer.word(PRESENCE), state == protocol::AWAKE)
    }

    /// Leaves a notification for the peer until it is taken, and wakes it.
    pub fn notify(&self) {
        self.ringer.notify();
    }
}

/// The parts needed for ringing: the words in the pool's header, and the event descriptor.
#[derive(Debug)]
struct Ringer {
    pool: Arc<Segment>,
    event: Descriptor,
}

impl Ringer {
    #[inline]
    fn ring(&self) {
        let state = self.word(STATE);
        match protocol::claim_wake(state) {
            protocol::AWAKE => {}
            protocol::ON_FUTEX => wake_futex(state),
            // Any peer can overwrite the word. A superfluous event does no harm.
            _ => post(self.event.as_raw_fd()),
        }
    }

    #[cold]
    fn notify(&self) {
        protocol::leave_notification(self.word(NOTIFIED));
        self.ring();
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU32 {
        self.pool
            .checked_half_word(offset)
            .expect("the pool holds its header")
    }
}

/// Marks the doorbell's only place for a sleeper as taken.
struct SleepTurn<'a>(&'a AtomicBool);

impl<'a> SleepTurn<'a> {
    fn take(occupied: &'a AtomicBool) -> SleepTurn<'a> {
        assert!(
            !occupied.swap(true, Ordering::Acquire),
            "two threads sleep on one doorbell"
        );
        SleepTurn(occupied)
    }
}

impl Drop for SleepTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Returns false on timeout. The futex is shared between processes, so it has no private flag.
fn wait_on_futex(word: &AtomicU32, expected: u32, timeout: Duration) -> bool {
    let timeout = timespec(timeout);
    let (operation, word) = (libc::FUTEX_WAIT, word.as_ptr());
    // SAFETY: the word and the time outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, operation, expected, &timeout) };
    result == 0 || os_code(&last_failure("futex")) != Some(libc::ETIMEDOUT)
}

#[cold]
fn wake_futex(word: &AtomicU32) {
    // SAFETY: the word outlives the call, which only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cold]
fn post(event: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the buffer outlives the call. A full counter is readable, too.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
}

fn drain(event: RawFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer is writable and outlives the call. With nothing to read, nothing needs
    // draining.
    unsafe { libc::read(event, count.as_mut_ptr().cast(), count.len()) };
}

fn poll_entry(descriptor: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos() as _,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(15);
    const SHORT: Duration = Duration::from_millis(20);

    fn doorbell() -> (Arc<Segment>, Doorbell) {
        let pool = Arc::new(Segment::create("weft-test", 1 << 16).unwrap());
        (Arc::clone(&pool), Doorbell::new(pool).unwrap())
    }

    /// Runs the test with both ways of sleeping.
    fn check(test: impl Fn(Sleep<'_>)) {
        test(Sleep::Futex);
        test(Sleep::Descriptors(Descriptor::epoll().unwrap().as_fd()));
    }

    #[test]
    fn a_sleep_ends_at_its_timeout() {
        check(|mode| {
            let (_, doorbell) = doorbell();
            let started = Instant::now();
            assert_eq!(doorbell.sleep(mode, &mut || false, SHORT), Woken::TimedOut);
            assert!(started.elapsed() >= SHORT);
            assert_eq!(
                doorbell.sleep(mode, &mut || false, Duration::ZERO),
                Woken::TimedOut
            );
        });
    }

    #[test]
    fn ready_condition_prevents_the_sleep() {
        check(|mode| {
            let (_, doorbell) = doorbell();
            assert_eq!(doorbell.sleep(mode, &mut || true, LONG), Woken::Ready);
        });
    }

    #[test]
    fn a_notification_is_taken_once() {
        check(|mode| {
            let (_, doorbell) = doorbell();
            doorbell.notify();
            doorbell.notify();
            assert_eq!(doorbell.sleep(mode, &mut || false, LONG), Woken::Notified);
            assert!(!doorbell.take_notification());
            doorbell.notify();
            assert!(doorbell.take_notification());
            assert_eq!(doorbell.sleep(mode, &mut || false, SHORT), Woken::TimedOut);
        });
    }

    /// The ring occurs between the last check and the sleep: the critical window.
    #[test]
    fn a_ring_after_the_last_check_wakes() {
        check(|mode| {
            let (_, doorbell) = doorbell();
            let mut look = || {
                doorbell.ring();
                false
            };
            assert_eq!(doorbell.sleep(mode, &mut look, LONG), Woken::Rung);
            assert_eq!(doorbell.sleep(mode, &mut || false, SHORT), Woken::TimedOut);
        });
    }

    #[test]
    fn a_peer_rings_through_its_own_mapping() {
        check(|mode| {
            let (pool, doorbell) = doorbell();
            let mapping = Segment::map(Descriptor::copy_of(pool.descriptor()).unwrap()).unwrap();
            let event = Descriptor::copy_of(doorbell.descriptor()).unwrap();
            let mapping = Arc::new(mapping);
            let peer = PeerDoorbell::new(Arc::clone(&mapping), event).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    mapping.word(POOL_HEADER).store(9, Ordering::Release);
                    peer.ring();
                });
                let word = pool.word(POOL_HEADER);
                while word.load(Ordering::Acquire) != 9 {
                    let woken =
                        doorbell.sleep(mode, &mut || word.load(Ordering::Acquire) == 9, LONG);
                    assert_ne!(woken, Woken::TimedOut);
                }
            });
        });
    }

    #[test]
    fn a_descriptor_ends_a_sleep() {
        let (_, doorbell) = doorbell();
        let (_, other) = self::doorbell();
        let epoll = Descriptor::epoll().unwrap();
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        let (raw, watched) = (epoll.as_raw_fd(), other.descriptor().as_raw_fd());
        // SAFETY: both descriptors are open, and the event outlives the call.
        let result = unsafe { libc::epoll_ctl(raw, libc::EPOLL_CTL_ADD, watched, &mut event) };
        assert_eq!(result, 0);
        post(watched);
        let woken = doorbell.sleep(Sleep::Descriptors(epoll.as_fd()), &mut || false, LONG);
        assert_eq!(woken, Woken::Rung);
    }

    #[test]
    fn a_pool_without_a_header_has_no_doorbell() {
        let small = Arc::new(Segment::create("weft-test", POOL_HEADER - 8).unwrap());
        assert!(Doorbell::new(Arc::clone(&small)).is_err());
        let (_, doorbell) = doorbell();
        let event = Descriptor::copy_of(doorbell.descriptor()).unwrap();
        assert!(PeerDoorbell::new(small, event).is_err());
    }
}
