//! The thread that monitors one transport's sockets in place of polling.
//!
//! It accepts connections, sends queued data when a socket has room, and rings its own endpoint's
//! doorbell when a peer ends: a process that sleeps on its futex detects a death as fast as a
//! signal. Ordinary traffic does not wake it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weft_transport::fork::{self, Descriptor};
use weft_transport::{
    Doorbell, FlushState, LinkError, Shortage, checked, effective_user, failed, is_own_limit,
    os_code,
};

use crate::socket;

const KEY_WAKE: u64 = 0;
const KEY_LISTENER: u64 = 1;
const KEY_FIRST_CONNECTION: u64 = 2;

/// Only the end of a peer, and only once: received data is not this thread's concern.
const PEER_ENDED: u32 = (libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const EVENTS_MAX: usize = 16;
/// The most callers that have sent nothing yet. Beyond, the oldest is dropped.
const CALLERS_MAX: usize = 256;
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Receives callers. Called on the watching thread, so it must not block.
pub(crate) trait Reception: Send + Sync {
    /// Takes a connection on which the caller has sent something.
    fn take(&self, caller: Descriptor);

    /// Reports that a caller waits to be accepted while this process has no descriptor left.
    fn exhausted(&self);
}

/// The shared state of the watching thread and its users.
///
/// The thread runs until the transport is closed and the last connection is removed.
pub(crate) struct ConnectionWatcher<C> {
    epoll: Descriptor,
    wake: Descriptor,
    doorbell: Arc<Doorbell>,
    next_key: AtomicU64,
    born: u64,
    watched: Mutex<WatchedConnections<C>>,
}

struct WatchedConnections<C> {
    connections: HashMap<u64, Watching<C>>,
    listener: Option<(Descriptor, Option<Arc<dyn Reception>>)>,
    shortage: Shortage,
    /// Callers that have sent nothing yet; the oldest has the smallest key.
    callers: BTreeMap<u64, Descriptor>,
    /// Until a thread joins it.
    thread: Option<JoinHandle<()>>,
    stopped: bool,
}

impl<C> Default for WatchedConnections<C> {
    fn default() -> Self {
        WatchedConnections {
            connections: HashMap::new(),
            listener: None,
            shortage: Shortage::default(),
            callers: BTreeMap::new(),
            thread: None,
            stopped: false,
        }
    }
}

impl<C> WatchedConnections<C> {
    /// Whether nothing is left to watch. Then nothing is added any more.
    fn stop_if_idle(&mut self) -> bool {
        self.stopped = self.listener.is_none() && self.connections.is_empty();
        self.stopped
    }
}

/// A connection that is watched.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Its key in the watching thread.
    fn key(&self) -> u64;

    /// Its socket.
    fn raw_socket(&self) -> RawFd;

    /// Sends queued data, as far as the socket has room.
    fn flush(&self) -> Result<FlushState, LinkError>;
}

enum Watching<C> {
    /// The link is in use.
    Link(Weak<C>),
    /// Closed, and perhaps dropped, but the goodbye still waits for room in the socket.
    Lingering(Arc<C>),
}

impl<C: Watched> ConnectionWatcher<C> {
    /// Starts watching this listening socket, without accepting anything yet.
    pub(crate) fn start(
        listener: Descriptor,
        doorbell: Arc<Doorbell>,
    ) -> io::Result<Arc<ConnectionWatcher<C>>> {
        let watch = Arc::new(ConnectionWatcher {
            epoll: Descriptor::epoll()?,
            wake: Descriptor::event()?,
            doorbell,
            next_key: AtomicU64::new(KEY_FIRST_CONNECTION),
            born: fork::generation(),
            watched: Mutex::new(WatchedConnections {
                listener: Some((listener, None)),
                ..WatchedConnections::default()
            }),
        });
        let wake = watch.wake.as_raw_fd();
        watch.control(libc::EPOLL_CTL_ADD, wake, KEY_WAKE, libc::EPOLLIN as u32)?;
        let running = Arc::clone(&watch);
        let thread = thread::Builder::new().name("weft-shm".into());
        let thread = thread.spawn(move || running.run());
        let thread = thread.map_err(|error| failed("starting the thread weft-shm", error))?;
        watch.locked().thread = Some(thread);
        Ok(watch)
    }

    /// Starts accepting connections. False if the transport is closed.
    pub(crate) fn start_accepting(&self, incoming: Arc<dyn Reception>) -> io::Result<bool> {
        let mut watched = self.locked();
        let Some((listener, reception)) = &mut watched.listener else {
            return Ok(false);
        };
        let raw = listener.as_raw_fd();
        if reception.replace(incoming).is_none() {
            self.control(libc::EPOLL_CTL_ADD, raw, KEY_LISTENER, libc::EPOLLIN as u32)?;
        }
        Ok(true)
    }

    /// Stops accepting connections. Without any connection left, the thread has ended on return,
    /// and holds no descriptor.
    pub(crate) fn close(&self) {
        if fork::generation() != self.born {
            return;
        }
        // Dropped outside of the lock: the reception may hold the last reference to an object that
        // locks.
        let mut watched = self.locked();
        let (listener, callers) = (
            watched.listener.take(),
            std::mem::take(&mut watched.callers),
        );
        let ends = watched.stop_if_idle();
        let thread = watched.thread.take_if(|_| ends);
        drop(watched);
        drop((listener, callers));
        self.wake_up();
        if let Some(thread) = thread {
            fork::join(thread, self.born);
        }
    }

    pub(crate) fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches a connection until it is removed.
    pub(crate) fn add(&self, connection: &Arc<C>) -> io::Result<()> {
        let mut watched = self.locked();
        if watched.stopped {
            return Err(io::Error::other("the transport is closed"));
        }
        let raw = connection.raw_socket();
        self.control(libc::EPOLL_CTL_ADD, raw, connection.key(), PEER_ENDED)?;
        let entry = Watching::Link(Arc::downgrade(connection));
        watched.connections.insert(connection.key(), entry);
        Ok(())
    }

    /// Removes a connection whose link is dropped.
    pub(crate) fn remove(&self, connection: &C) {
        // A forked child has neither the thread nor the sockets, and perhaps a lock that is never
        // released.
        if fork::generation() != self.born {
            return;
        }
        let mut watched = self.locked();
        if let Some(Watching::Lingering(_)) = watched.connections.get(&connection.key()) {
            return;
        }
        watched.connections.remove(&connection.key());
        // The kernel removes the socket when it is closed, which may be a moment later.
        let _ = self.control(
            libc::EPOLL_CTL_DEL,
            connection.raw_socket(),
            connection.key(),
            0,
        );
        if watched.connections.is_empty() {
            self.wake_up();
        }
    }

    /// The connections of all existing links.
    pub(crate) fn connections(&self) -> Vec<Arc<C>> {
        let watched = self.locked();
        let links = watched
            .connections
            .values()
            .filter_map(|entry| match entry {
                Watching::Link(connection) => connection.upgrade(),
                Watching::Lingering(_) => None,
            });
        links.collect()
    }

    /// Whether a goodbye waits for room.
    pub(crate) fn is_lingering(&self) -> bool {
        let is_lingering = |entry: &Watching<C>| matches!(entry, Watching::Lingering(_));
        fork::generation() == self.born && self.locked().connections.values().any(is_lingering)
    }

    /// Keeps a closed connection until its goodbye is sent.
    pub(crate) fn linger(&self, connection: &Arc<C>) {
        let entry = Watching::Lingering(Arc::clone(connection));
        self.locked().connections.insert(connection.key(), entry);
        // It may have been sent meanwhile: then no other event would end the lingering.
        self.wake_up();
    }

    /// Starts or stops waiting for room in the connection's socket.
    pub(crate) fn await_room(&self, connection: &C, wait: bool) -> io::Result<()> {
        let room = if wait { libc::EPOLLOUT as u32 } else { 0 };
        let raw = connection.raw_socket();
        match self.control(
            libc::EPOLL_CTL_MOD,
            raw,
            connection.key(),
            PEER_ENDED | room,
        ) {
            // Not watched any more, since its link is dropped.
            Err(error) if os_code(&error) == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    fn run(&self) {
        loop {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
            let (raw, count) = (self.epoll.as_raw_fd(), EVENTS_MAX as i32);
            // SAFETY: the array outlives the call, and `count` is its length.
            let count = unsafe { libc::epoll_wait(raw, events.as_mut_ptr(), count, -1) };
            for event in &events[..usize::try_from(count).unwrap_or(0)] {
                self.handle(event.u64, event.events);
            }
            if self.locked().stop_if_idle() {
                return;
            }
        }
    }

    fn handle(&self, key: u64, events: u32) {
        match key {
            KEY_WAKE => {
                self.drain_wake();
                self.flush_lingering();
            }
            KEY_LISTENER => self.accept(),
            _ if self.hand_over(key) => {}
            _ => {
                if events & libc::EPOLLOUT as u32 != 0 {
                    self.flush(key);
                }
                if events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0 {
                    self.flush(key);
                    self.doorbell.notify();
                }
            }
        }
    }

    fn accept(&self) {
        loop {
            let mut watched = self.locked();
            let Some((listener, Some(reception))) = &watched.listener else {
                return;
            };
            match socket::accept(listener.as_fd()) {
                Ok(socket) => {
                    watched.shortage.end();
                    self.wait_for(&mut watched, socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel reports it even if no caller waits.
                Err(error) if is_own_limit(&error) && !has_waiting_caller(listener.as_fd()) => {
                    return;
                }
                // Callers are still waiting: retry, but not in a hot loop.
                Err(error) => {
                    let reception = Arc::clone(reception);
                    let report = is_own_limit(&error) && watched.shortage.persists();
                    drop(watched);
                    if report {
                        reception.exhausted();
                    }
                    return thread::sleep(ACCEPT_RETRY);
                }
            }
        }
    }

    /// Keeps a caller until it sends something. A caller of another user is dropped.
    fn wait_for(&self, watched: &mut WatchedConnections<C>, caller: Descriptor) {
        if !same_user(&caller) {
            return;
        }
        let key = self.new_key();
        let raw = caller.as_raw_fd();
        // A caller that cannot be watched is dropped, and sees the end.
        if self
            .control(libc::EPOLL_CTL_ADD, raw, key, libc::EPOLLIN as u32)
            .is_ok()
        {
            watched.callers.insert(key, caller);
        }
        if watched.callers.len() > CALLERS_MAX {
            watched.callers.pop_first();
        }
    }

    /// Hands over a caller that has sent something. False if the key is not a caller's.
    fn hand_over(&self, key: u64) -> bool {
        let mut watched = self.locked();
        let Some(caller) = watched.callers.remove(&key) else {
            return false;
        };
        let reception = match &watched.listener {
            Some((_, Some(reception))) => Arc::clone(reception),
            _ => return true,
        };
        drop(watched);
        if self
            .control(libc::EPOLL_CTL_DEL, caller.as_raw_fd(), key, 0)
            .is_ok()
        {
            reception.take(caller);
        }
        true
    }

    /// Sends queued data. Data that cannot be sent because the peer has ended is dropped.
    fn flush(&self, key: u64) {
        let (connection, lingering) = match self.locked().connections.get(&key) {
            Some(Watching::Link(weak)) => (weak.upgrade(), false),
            Some(Watching::Lingering(connection)) => (Some(Arc::clone(connection)), true),
            None => (None, false),
        };
        let Some(connection) = connection else { return };
        let pending = matches!(connection.flush(), Ok(FlushState::Pending));
        if !pending {
            // There is room again for operations that were not accepted.
            self.doorbell.ring();
        }
        if lingering && !pending {
            let done = self.locked().connections.remove(&key);
            drop(done);
        }
    }

    fn flush_lingering(&self) {
        let is_lingering = |entry: &Watching<C>| matches!(entry, Watching::Lingering(_));
        let watched = self.locked();
        let lingering = watched
            .connections
            .iter()
            .filter(|(_, entry)| is_lingering(entry));
        let keys: Vec<u64> = lingering.map(|(key, _)| *key).collect();
        drop(watched);
        for key in keys {
            self.flush(key);
        }
    }

    fn control(&self, operation: i32, descriptor: RawFd, key: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        let raw = self.epoll.as_raw_fd();
        // SAFETY: the event outlives the call.
        let done = unsafe { libc::epoll_ctl(raw, operation, descriptor, &mut event) };
        checked("epoll_ctl", done).map(drop)
    }

    fn wake_up(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer outlives the call. A full counter wakes, too.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn drain_wake(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is writable and outlives the call.
        unsafe {
            libc::read(
                self.wake.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }

    /// Every change under the lock is a single step, so the state is consistent even if the lock is
    /// poisoned.
    fn locked(&self) -> MutexGuard<'_, WatchedConnections<C>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names in the abstract namespace are open to every user, so the caller's user is checked. The
/// token decides; this check avoids reading from strangers.
fn same_user(socket: &Descriptor) -> bool {
    let own = effective_user();
    weft_transport::peer_credentials(socket.as_fd())
        .is_ok_and(|peer| peer.uid == own || peer.uid == 0)
}

/// Whether a caller waits to be accepted.
fn has_waiting_caller(listener: BorrowedFd<'_>) -> bool {
    socket::wait(listener, Duration::ZERO).is_ok_and(|called| called)
}
