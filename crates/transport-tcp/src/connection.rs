//! The connections of a link, and how it ended.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use weft_transport::{
    Doorbell, EndpointId, LinkError, LinkEvents, TrafficCounts, WatchedDescriptors,
};

use crate::address::TcpAddress;
use crate::broken::{broken_by, is_final};
use crate::carrier::{Break, Carrier};
use crate::dialer::Dialer;
use crate::encryption::Cipher;
use crate::lock::lock;
use crate::socket::Socket;
use crate::ways::{self, Way};

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
    /// If they are, by number the ways of each connection: its own, and the others.
    pub(crate) ways: Vec<Vec<Way>>,
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
        let ways_of = |renewal: &Renewal| {
            let numbered = sockets.iter().enumerate();
            let ways = numbered.map(|(number, socket)| renewal.ways(number, socket.ends()));
            ways.collect()
        };
        Ok(Self {
            ways: renewal.as_ref().map_or_else(Vec::new, ways_of),
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
            false if self.interrupt_by(number, &error) => io::ErrorKind::WouldBlock.into(),
            _ => error,
        })
    }

    /// [`TcpConnection::interrupt`] by an error of the socket.
    pub(crate) fn interrupt_by(self: &Arc<Self>, number: usize, error: &io::Error) -> bool {
        self.interrupt(number, Break::by(error, self.sockets[number].quiet()))
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
        let now = match line.aside {
            false => self.sockets[number].traffic(),
            true => None,
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

/// How the connections of a link are made anew.
pub(crate) struct Renewal {
    pub(crate) peer: EndpointId,
    pub(crate) address: TcpAddress,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) known: Arc<KnownLinks>,
    pub(crate) events: Option<Weak<dyn LinkEvents>>,
    pub(crate) cipher: Option<Cipher>,
    /// The number of the call that made the link.
    pub(crate) call: u64,
    /// Whether this end made it.
    pub(crate) calls: bool,
}

impl Renewal {
    /// Whether there are several networks between the ends, so that connections can be shifted.
    pub(crate) fn has_rails(&self) -> bool {
        ways::networks(&self.dialer.address, &self.address) > 1
    }

    /// The ways of a connection, its own first: that over the network whose turn it is, if there
    /// are several, otherwise that between these addresses, of its first socket.
    fn ways(&self, number: usize, ends: Option<(IpAddr, IpAddr)>) -> Vec<Way> {
        let mut ways = Way::all(number, &self.dialer.address, &self.address);
        if self.has_rails() {
            return ways;
        }
        let own = |way: &Way| ends.is_some_and(|ends| way.is_between(ends));
        if let Some(own) = ways.iter().position(own) {
            ways[..=own].rotate_right(1);
        }
        ways
    }
}

/// A link's peer, and the number of the call that made it.
type LinkName = (EndpointId, u64);

/// The links that a listener knows.
#[derive(Default)]
pub(crate) struct KnownLinks(pub(crate) Mutex<HashMap<LinkName, Weak<TcpConnection>>>);

impl KnownLinks {
    /// Adds a link, and forgets those that exist no more.
    pub(crate) fn add(&self, name: LinkName, connection: &Arc<TcpConnection>) {
        let mut links = lock(&self.0);
        links.retain(|_, link| link.strong_count() > 0);
        links.insert(name, Arc::downgrade(connection));
    }

    pub(crate) fn find(&self, name: LinkName) -> Option<Arc<TcpConnection>> {
        lock(&self.0).get(&name)?.upgrade()
    }
}
