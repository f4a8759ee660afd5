//! The connections of a link, and how it ended.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weft_transport::{Doorbell, LinkError, TrafficCounts, WatchedDescriptors};

use crate::carrier::Carrier;
use crate::lock::lock;
use crate::renewal::Renewal;
use crate::socket::Socket;

/// How a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEnd {
    Closed,
    Left,
    Gone(String),
    Protocol(String),
}

impl ConnectionEnd {
    fn error(&self) -> LinkError {
        match self {
            ConnectionEnd::Closed => LinkError::Left,
            ConnectionEnd::Left => LinkError::Left,
            ConnectionEnd::Gone(why) => LinkError::Gone(why.clone()),
            ConnectionEnd::Protocol(what) => LinkError::Protocol(what.clone()),
        }
    }
}

impl From<LinkError> for ConnectionEnd {
    fn from(error: LinkError) -> ConnectionEnd {
        match error {
            LinkError::Left => ConnectionEnd::Left,
            LinkError::Protocol(what) => ConnectionEnd::Protocol(what),
            LinkError::Gone(why) => ConnectionEnd::Gone(why),
            LinkError::Io(error) => ConnectionEnd::Gone(broken_by(&error)),
            other => ConnectionEnd::Gone(other.to_string()),
        }
    }
}

/// The part of a link that is shared with background threads.
pub(crate) struct TcpConnection {
    /// At least one, and by number the state of its connection. All of them end together. They are
    /// used by their numbers, and keep their descriptors, when a connection is made anew.
    pub(crate) sockets: Vec<Socket>,
    pub(crate) carriers: Vec<Carrier>,
    /// Only with several connections.
    pub(crate) watched: Option<WatchedDescriptors>,
    pub(crate) doorbell: Arc<Doorbell>,
    /// How its connections are made anew, if they are.
    pub(crate) renewal: Option<Renewal>,
    end: Mutex<Option<ConnectionEnd>>,
    /// Nothing is sent or received any more, not even a goodbye.
    pub(crate) over: AtomicBool,
    /// Goodbyes under way.
    pub(crate) goodbyes: AtomicUsize,
    /// See [`weft_transport::Link::take_change`].
    pub(crate) changed: AtomicBool,
    /// The reason that one of the sockets is unusable, while unread data may remain at another.
    broken: Mutex<Option<String>>,
}

impl TcpConnection {
    pub(crate) fn new(
        sockets: Vec<Socket>,
        carriers: Vec<Carrier>,
        doorbell: Arc<Doorbell>,
        renewal: Option<Renewal>,
    ) -> io::Result<Self> {
        let count = sockets.len();
        let watched = match count {
            1 => None,
            _ => Some(WatchedDescriptors::new(
                sockets.iter().map(Socket::descriptor),
            )?),
        };
        for socket in &sockets {
            socket.share_unsent(count)?;
        }
        Ok(Self {
            sockets,
            carriers,
            watched,
            doorbell,
            renewal,
            end: Mutex::new(None),
            over: AtomicBool::new(false),
            goodbyes: AtomicUsize::new(0),
            changed: AtomicBool::new(false),
            broken: Mutex::new(None),
        })
    }

    /// Ends the connection. The first reason counts.
    pub(crate) fn end(&self, end: ConnectionEnd) {
        let mut ended = self.ended();
        if ended.is_some() {
            return;
        }
        let fails = matches!(end, ConnectionEnd::Gone(_) | ConnectionEnd::Protocol(_));
        if !matches!(end, ConnectionEnd::Closed) {
            self.over.store(true, Ordering::Release);
        }
        *ended = Some(end);
        drop(ended);
        if fails {
            self.shut_down();
            if self.renewal.is_some() {
                // There may be no socket whose end the link's watcher sees.
                self.announce();
            }
        }
    }

    /// Makes the watcher of the link look at it.
    pub(crate) fn announce(&self) {
        self.changed.store(true, Ordering::Release);
        for carrier in &self.carriers {
            carrier.repaired.notify_all();
        }
        self.doorbell.notify();
    }

    /// Accepts some of the bytes for sending, as [`Socket::send`]; `WouldBlock` also while a
    /// connection is made anew.
    pub(crate) fn send(
        self: &Arc<Self>,
        number: usize,
        slices: &[io::IoSlice<'_>],
    ) -> io::Result<usize> {
        if self.carriers[number].is_broken() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = self.sockets[number].send(slices);
        sent.map_err(|error| match is_final(&error) {
            false if self.interrupt(number, broken_by(&error)) => io::ErrorKind::WouldBlock.into(),
            _ => error,
        })
    }

    /// Whether the peer has left on all connections.
    pub(crate) fn has_left(&self) -> bool {
        self.carriers.iter().all(Carrier::has_left)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.carriers.iter().any(Carrier::is_broken)
    }

    /// Records that one of the sockets is unusable.
    pub(crate) fn note_broken(&self, why: String) {
        lock(&self.broken).get_or_insert(why);
    }

    /// Ends the connection if one of the sockets is unusable.
    pub(crate) fn end_if_broken(&self) {
        if let Some(why) = lock(&self.broken).clone() {
            self.end(ConnectionEnd::Gone(why));
        }
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        match &*self.ended() {
            None => Ok(()),
            Some(end) => Err(end.error()),
        }
    }

    /// Whether a goodbye can still be sent to the peer.
    pub(crate) fn can_send_goodbye(&self) -> bool {
        matches!(*self.ended(), None | Some(ConnectionEnd::Left))
    }

    /// Shuts the sockets down: the peer sees an end without a goodbye.
    pub(crate) fn shut_down(&self) {
        self.sockets
            .iter()
            .for_each(|socket| socket.shutdown(Shutdown::Both));
    }

    /// See [`Socket::silence`].
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.sockets.iter().filter_map(Socket::silence).max()
    }

    /// See [`weft_transport::LinkStatus::traffic`].
    pub(crate) fn traffic(&self) -> Option<TrafficCounts> {
        let numbers = 0..self.sockets.len();
        let counts = numbers.map(|number| self.traffic_of(number));
        counts.reduce(|sum, more| Some(sum?.plus(more?))).flatten()
    }

    /// The traffic of a connection, over all of its sockets.
    pub(crate) fn traffic_of(&self, number: usize) -> Option<TrafficCounts> {
        let line = lock(&self.carriers[number].line);
        let now = match line.broken {
            None => self.sockets[number].traffic(),
            Some(_) => None,
        };
        let past = line.past.map(|past| TrafficCounts {
            renewals: line.renewals,
            ..past
        });
        match (past, now) {
            (Some(past), Some(now)) => Some(TrafficCounts {
                quiet: now.quiet,
                ..past.plus(now)
            }),
            (past, now) => past.or(now),
        }
    }

    pub(crate) fn ended(&self) -> MutexGuard<'_, Option<ConnectionEnd>> {
        lock(&self.end)
    }
}

/// Whether an error of a connection is the end of its link too: its host was silent until TCP gave
/// it up, or what arrives is not the peer's. Otherwise the connection may be made anew.
pub(crate) fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    !matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
    )
}

/// The reason for the end of a connection that the peer's system has closed.
pub(crate) const CLOSED: &str = "the connection to it ended without a goodbye";

/// The reason for a connection's end by this error.
pub(crate) fn broken_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("its host was silent for too long: {error}"),
        io::ErrorKind::UnexpectedEof => CLOSED.into(),
        _ => format!("the connection to it broke: {error}"),
    }
}
