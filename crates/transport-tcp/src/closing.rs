//! Background work without calls from users: unsent goodbyes, and detection of hosts that vanish
//! during traffic.
//!
//! Keepalive probes an idle connection only. While bytes are on their way unacknowledged, the
//! kernel retransmits for a quarter of an hour before it gives up. So one thread per process looks
//! at every connection a few times within its peer timeout: one that owes a sign of life for that
//! long has lost its peer. A peer that is merely stopped still acknowledges.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{FlushState, PerProcess};

use crate::connection::{Fate, TcpConnection};
use crate::frame::Frame;
use crate::outgoing::{Class, TcpOutgoing};
use crate::socket::IDLE;

/// How often goodbyes under way are looked at.
const GOODBYE_PERIOD: Duration = Duration::from_millis(5);
/// How often connections are looked at. Who owes a sign of life for less is not silent.
pub(crate) const WATCH_PERIOD: Duration = Duration::from_millis(250);
/// How much longer than its peer timeout ago the last sign of life of a peer may be.
const IDLE_GRACE: Duration = Duration::from_millis(500);
/// A peer that takes nothing for this long does not get its goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Duties {
    watched: Vec<ClosingConnection>,
    goodbyes: Vec<Goodbye>,
    /// Whether there is a thread.
    running: bool,
}

struct ClosingConnection {
    connection: Weak<TcpConnection>,
    peer_timeout: Duration,
    /// Since when the peer has owed a sign of life.
    silent_since: Option<Instant>,
}

/// A socket that is being closed: first everything queued is sent, then whatever comes is
/// discarded until the peer closes too. Closing with unread bytes would destroy, at the peer, what
/// it has not read yet.
struct Goodbye {
    connection: Arc<TcpConnection>,
    /// Which of the connection's.
    socket: usize,
    outgoing: TcpOutgoing,
    sent: bool,
    give_up: Instant,
}

static DUTIES: PerProcess<(Mutex<Duties>, Condvar)> = PerProcess::new(Default::default);

/// Looks after a connection for as long as it exists.
pub(crate) fn watch(connection: &Arc<TcpConnection>, peer_timeout: Duration) {
    let watched = ClosingConnection {
        connection: Arc::downgrade(connection),
        peer_timeout,
        silent_since: None,
    };
    with_duties(|duties| duties.watched.push(watched));
}

/// Sends what is queued and a goodbye on every socket, and ends the connection once the peer has
/// them. `outgoing` is what is queued, by socket.
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

/// Changes the duties, and makes sure that there is a thread to do them.
fn with_duties(change: impl FnOnce(&mut Duties)) {
    let mut duties = lock();
    change(&mut duties);
    if !duties.running {
        let started = thread::Builder::new()
            .name("weft-tcp-care".into())
            .spawn(run);
        // Without the thread (no memory for one) a goodbye may be lost; the next connection tries
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
            duties.watched.retain_mut(ClosingConnection::look);
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
    /// False when there is nothing to look after any more.
    fn look(&mut self) -> bool {
        let Some(connection) = self.connection.upgrade() else {
            return false;
        };
        let now = Instant::now();
        // Silence counts from when it is seen: before, the peer may not have owed anything.
        let owing = connection.silence();
        self.silent_since = owing
            .filter(|silence| *silence > WATCH_PERIOD)
            .map(|_| self.silent_since.unwrap_or(now));
        let silent_for = self
            .silent_since
            .map_or(Duration::ZERO, |since| now - since);
        let silence = owing.unwrap_or_default();
        // An idle peer is asked now and then: it may owe nothing until that long after a cut.
        let idle_for_long =
            silence >= self.peer_timeout + IDLE_GRACE && silent_for + IDLE >= self.peer_timeout;
        if silent_for < self.peer_timeout && !idle_for_long {
            return true;
        }
        let silent_for = silent_for.max(silence);
        connection.end(Fate::Gone(format!(
            "its host was silent: it has not acknowledged anything for {:.1} s",
            silent_for.as_secs_f64()
        )));
        false
    }
}

impl Goodbye {
    /// True when it is over.
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

/// Reads and forgets what has come; true at the end of the connection.
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
