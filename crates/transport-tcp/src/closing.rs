//! Background work without calls from users: sending of goodbyes, and detection of hosts that
//! vanish during traffic.
//!
//! Keepalive probes idle connections only. While bytes are unacknowledged, the kernel retransmits
//! for a quarter of an hour before it gives up. So one thread per process checks every connection a
//! few times within its peer timeout: if an acknowledgement has been missing for that long, the
//! peer is lost. A peer that is merely stopped still acknowledges.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{FlushState, PerProcess};

use crate::connection::{ConnectionEnd, TcpConnection};
use crate::frame::Frame;
use crate::outgoing::{Class, TcpOutgoing};
use crate::socket::IDLE;

/// The interval at which goodbyes under way are advanced.
const GOODBYE_PERIOD: Duration = Duration::from_millis(5);
/// The interval at which connections are checked. A peer whose acknowledgement is missing for less
/// is not silent.
pub(crate) const WATCH_PERIOD: Duration = Duration::from_millis(250);
/// By how much the age of a peer's last acknowledgement may exceed its peer timeout.
const IDLE_GRACE: Duration = Duration::from_millis(500);
/// The time after which a goodbye is dropped if the peer receives nothing.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Duties {
    watched: Vec<ClosingConnection>,
    goodbyes: Vec<Goodbye>,
    /// Whether the thread runs.
    running: bool,
}

struct ClosingConnection {
    connection: Weak<TcpConnection>,
    peer_timeout: Duration,
    /// The time since which the peer's acknowledgement is missing.
    silent_since: Option<Instant>,
}

/// A socket that is being closed: first everything queued is sent, then received bytes are
/// discarded until the peer closes too. Closing a socket with unread bytes would destroy bytes at
/// the peer that it has not read yet.
struct Goodbye {
    connection: Arc<TcpConnection>,
    /// The number of the socket within the connection.
    socket: usize,
    outgoing: TcpOutgoing,
    sent: bool,
    give_up: Instant,
}

static DUTIES: PerProcess<(Mutex<Duties>, Condvar)> = PerProcess::new(Default::default);

/// Checks a connection for as long as it exists.
pub(crate) fn watch(connection: &Arc<TcpConnection>, peer_timeout: Duration) {
    let watched = ClosingConnection {
        connection: Arc::downgrade(connection),
        peer_timeout,
        silent_since: None,
    };
    with_duties(|duties| duties.watched.push(watched));
}

/// Sends queued data and a goodbye on every socket, and ends the connection once the peer has
/// received them. `outgoing` is the queued data, by socket.
pub(crate) fn say_goodbye(
    connection: &Arc<TcpConnection>,
    outgoing: impl Iterator<Item = TcpOutgoing>,
) {
    for (socket, mut outgoing) in outgoing.enumerate() {
        outgoing.cancel_all();
        let mut send = |slices: &[io::IoSlice<'_>]| connection.sockets[socket].send(slices);
        let goodbye = outgoing.frame(Class::Ordinary, &Frame::Goodbye, &[], &mut send);
        if goodbye.is_err() {
            continue;
        }
        let mut goodbye = Goodbye {
            connection: connection.clone(),
            socket,
            outgoing,
            sent: false,
            give_up: Instant::now() + GOODBYE_TIMEOUT,
        };
        if !goodbye.advance() {
            with_duties(|duties| duties.goodbyes.push(goodbye));
        }
    }
}

/// See [`weft_transport::Transport::drain`].
pub(crate) fn drain(timeout: Duration) {
    let until = Instant::now() + timeout;
    let open = || !lock().goodbyes.is_empty();
    while open() && Instant::now() < until {
        thread::sleep(GOODBYE_PERIOD / 5);
    }
}

fn lock() -> MutexGuard<'static, Duties> {
    let (duties, _) = DUTIES.get();
    duties.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the duties, and starts the thread if necessary.
fn with_duties(change: impl FnOnce(&mut Duties)) {
    let mut duties = lock();
    change(&mut duties);
    if !duties.running {
        let started = thread::Builder::new()
            .name("weft-tcp-care".into())
            .spawn(run);
        // Without the thread (for lack of memory) a goodbye may be lost; the next connection tries
        // again.
        duties.running = started.is_ok();
    }
    DUTIES.get().1.notify_one();
}

fn run() {
    let mut next_watch = Instant::now();
    let mut duties = lock();
    loop {
        duties.goodbyes.retain_mut(|goodbye| !goodbye.advance());
        if Instant::now() >= next_watch {
            duties.watched.retain_mut(ClosingConnection::check);
            next_watch = Instant::now() + WATCH_PERIOD;
        }
        let nap = match (duties.goodbyes.is_empty(), duties.watched.is_empty()) {
            (false, _) => GOODBYE_PERIOD,
            (true, false) => WATCH_PERIOD,
            (true, true) => Duration::from_secs(3600),
        };
        let waited = DUTIES.get().1.wait_timeout(duties, nap);
        duties = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl ClosingConnection {
    /// Checks a connection; false when there is nothing more to check.
    fn check(&mut self) -> bool {
        let Some(connection) = self.connection.upgrade() else {
            return false;
        };
        let now = Instant::now();
        // Silence counts from its detection: before, no acknowledgement may have been missing.
        let missing = connection.silence();
        self.silent_since = missing
            .filter(|silence| *silence > WATCH_PERIOD)
            .map(|_| self.silent_since.unwrap_or(now));
        let silent_for = self
            .silent_since
            .map_or(Duration::ZERO, |since| now - since);
        let silence = missing.unwrap_or_default();
        // An idle peer is probed at intervals: after a cut, an acknowledgement may only be missing
        // that much later.
        let idle_for_long =
            silence >= self.peer_timeout + IDLE_GRACE && silent_for + IDLE >= self.peer_timeout;
        if silent_for < self.peer_timeout && !idle_for_long {
            return true;
        }
        let silent_for = silent_for.max(silence);
        connection.end(ConnectionEnd::Gone(format!(
            "its host was silent: it has not acknowledged anything for {:.1} s",
            silent_for.as_secs_f64()
        )));
        false
    }
}

impl Goodbye {
    /// Advances a goodbye; true when it is done.
    fn advance(&mut self) -> bool {
        if Instant::now() >= self.give_up {
            return true;
        }
        let socket = &self.connection.sockets[self.socket];
        if !self.sent {
            let mut progressed = false;
            let flushed = self.outgoing.flush(&mut |slices| {
                let sent = socket.send(slices);
                progressed |= sent.is_ok();
                sent
            });
            if progressed {
                self.give_up = Instant::now() + GOODBYE_TIMEOUT;
            }
            match flushed {
                Ok(FlushState::Pending) => {}
                Ok(FlushState::Done) => {
                    socket.shutdown(Shutdown::Write);
                    self.sent = true;
                }
                Err(_) => return true,
            }
        }
        discard(&mut socket.reader())
    }
}

/// Reads and discards received bytes; true at the end of the connection.
fn discard(reader: &mut impl io::Read) -> bool {
    let mut buffer = [0; 16 << 10];
    for _ in 0..64 {
        match reader.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
    false
}
