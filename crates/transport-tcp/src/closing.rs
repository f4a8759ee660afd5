//! Background work without calls from users: sending of goodbyes, and detection of hosts that
//! vanish during traffic.
//!
//! Keepalive probes idle connections only. While bytes are unacknowledged, the kernel retransmits
//! for a quarter of an hour before it gives up. So one thread per process checks every connection a
//! few times within its peer timeout: if an acknowledgement has been missing for that long, the
//! peer is lost. A peer that is merely stopped still acknowledges. Connections of links over
//! several networks are checked more often.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{FlushState, PerProcess};

use crate::broken::is_final;
use crate::class::Class;
use crate::connection::{ConnectionEnd, TcpConnection};
use crate::frame::Frame;
use crate::last_calls::{self, LastCalls};
use crate::lock::lock;
use crate::rails::RailWatch;
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
    rails: Vec<RailWatch>,
    goodbyes: Vec<Goodbye>,
    /// Whether the thread runs.
    running: bool,
}

struct ClosingConnection {
    connection: Weak<TcpConnection>,
    peer_timeout: Duration,
    /// The time since which the peer's acknowledgement is missing.
    silent_since: Option<Instant>,
    last_calls: LastCalls,
}

/// A connection that is being closed: first everything queued is sent, then received bytes are
/// discarded until the peer closes too. Closing a socket with unread bytes would destroy bytes at
/// the peer that it has not read yet. If the connection breaks meanwhile, the peer may make it
/// anew.
struct Goodbye {
    connection: Arc<TcpConnection>,
    /// The number of the connection within the link.
    number: usize,
    /// The epoch of the socket on which everything is sent.
    sent: Option<u32>,
    give_up: Instant,
}

static DUTIES: PerProcess<(Mutex<Duties>, Condvar)> = PerProcess::new(Default::default);

/// Checks a connection for as long as it exists.
pub(crate) fn watch(connection: &Arc<TcpConnection>, peer_timeout: Duration) {
    let watched = ClosingConnection {
        connection: Arc::downgrade(connection),
        peer_timeout,
        silent_since: None,
        last_calls: LastCalls::default(),
    };
    with_duties(|duties| {
        duties.watched.push(watched);
        duties.rails.extend(RailWatch::new(connection));
    });
}

/// Sends queued data and a goodbye on every connection of a link that has been closed, and ends it
/// once the peer has received them.
pub(crate) fn say_goodbye(connection: &Arc<TcpConnection>) {
    let count = connection.sockets.len();
    connection.goodbyes.store(count, Ordering::Relaxed);
    for number in 0..count {
        let mut goodbye = Goodbye {
            connection: connection.clone(),
            number,
            sent: None,
            give_up: Instant::now() + GOODBYE_TIMEOUT,
        };
        if goodbye.queue().is_ok() && !goodbye.advance() {
            with_duties(|duties| duties.goodbyes.push(goodbye));
        }
    }
}

/// See [`weft_transport::Transport::drain`].
pub(crate) fn drain(timeout: Duration) {
    let until = Instant::now() + timeout;
    // Of a connection that broke nothing more can be sent, unless the peer calls.
    let open = || (duties().goodbyes.iter()).any(|goodbye| !goodbye.waits_for_peer());
    while open() && Instant::now() < until {
        thread::sleep(GOODBYE_PERIOD / 5);
    }
}

fn duties() -> MutexGuard<'static, Duties> {
    let (duties, _) = DUTIES.get();
    duties.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the duties, and starts the thread if necessary.
fn with_duties(change: impl FnOnce(&mut Duties)) {
    let mut duties = self::duties();
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
    let mut duties = self::duties();
    loop {
        duties.goodbyes.retain_mut(|goodbye| !goodbye.advance());
        if Instant::now() >= next_watch {
            duties.watched.retain_mut(ClosingConnection::check);
            next_watch = Instant::now() + WATCH_PERIOD;
        }
        duties.rails.retain_mut(RailWatch::check);
        let nap = duties.nap();
        let waited = DUTIES.get().1.wait_timeout(duties, nap);
        duties = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Duties {
    /// The time until something is to be done.
    fn nap(&self) -> Duration {
        match self {
            Duties { goodbyes, .. } if !goodbyes.is_empty() => GOODBYE_PERIOD,
            Duties { watched, .. } if !watched.is_empty() => self.until_look().min(WATCH_PERIOD),
            _ => Duration::from_secs(3600),
        }
    }

    fn until_look(&self) -> Duration {
        let looks = self.rails.iter().map(RailWatch::next_look);
        let next = looks
            .min()
            .map(|next| next.saturating_duration_since(Instant::now()));
        next.unwrap_or(WATCH_PERIOD)
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
        let is_lost_in = |time: Duration| {
            let idle_for_long = silence + time >= self.peer_timeout + IDLE_GRACE
                && silent_for + time + IDLE >= self.peer_timeout;
            silent_for + time >= self.peer_timeout || idle_for_long
        };
        let (soon, is_lost) = (is_lost_in(last_calls::BEFORE), is_lost_in(Duration::ZERO));
        match soon {
            true => self.last_calls.call(&connection, now),
            false => self.last_calls = LastCalls::default(),
        }
        if !is_lost || self.last_calls.give_time(self.peer_timeout, now) {
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
    /// Queues the goodbye behind everything else; an error if the connection is unusable.
    fn queue(&mut self) -> io::Result<()> {
        let mut outgoing = lock(&self.connection.carriers[self.number].outgoing);
        outgoing.cancel_all();
        let mut send = |slices: &[io::IoSlice<'_>]| self.connection.send(self.number, slices);
        outgoing.frame(Class::Ordinary, &Frame::Goodbye, &[], &mut send)
    }

    fn waits_for_peer(&self) -> bool {
        self.connection.carriers[self.number].is_broken()
    }

    /// Advances a goodbye; true when it is done.
    fn advance(&mut self) -> bool {
        if Instant::now() >= self.give_up {
            return true;
        }
        if self.waits_for_peer() {
            self.connection.set_aside(self.number);
            return false;
        }
        let carrier = &self.connection.carriers[self.number];
        let epoch = lock(&carrier.line).epoch;
        if self.sent != Some(epoch) {
            let mut progressed = false;
            let flushed = lock(&carrier.outgoing).flush(&mut |slices| {
                let sent = self.connection.send(self.number, slices);
                progressed |= sent.is_ok();
                sent
            });
            if progressed {
                self.give_up = Instant::now() + GOODBYE_TIMEOUT;
            }
            match flushed {
                Ok(FlushState::Pending) => {}
                Ok(FlushState::Done) => {
                    self.connection.sockets[self.number].shutdown(Shutdown::Write);
                    self.sent = Some(epoch);
                }
                Err(_) => return true,
            }
        }
        let _incoming = lock(&carrier.incoming);
        if carrier.is_broken() {
            return false;
        }
        match discard(&mut self.connection.sockets[self.number].reader()) {
            Ok(over) => over,
            Err(error) => is_final(&error) || !self.connection.interrupt_by(self.number, &error),
        }
    }
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        if self.connection.goodbyes.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connection.over.store(true, Ordering::Release);
        }
    }
}

/// Reads and discards received bytes; true at the end of the connection.
fn discard(reader: &mut impl io::Read) -> io::Result<bool> {
    let mut buffer = [0; 16 << 10];
    for _ in 0..64 {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
