//! The sockets of a link, and how it ended.

use std::io;
use std::net::Shutdown;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use weft_transport::{LinkError, TrafficCounts};

use crate::lock::lock;
use crate::socket::Socket;

/// How a link ended.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Closed,
    Left,
    Gone(String),
    Protocol(String),
}

impl Fate {
    fn error(&self) -> LinkError {
        match self {
            Fate::Closed => LinkError::Left,
            Fate::Left => LinkError::Left,
            Fate::Gone(why) => LinkError::Gone(why.clone()),
            Fate::Protocol(what) => LinkError::Protocol(what.clone()),
        }
    }
}

impl From<LinkError> for Fate {
    fn from(error: LinkError) -> Fate {
        match error {
            LinkError::Left => Fate::Left,
            LinkError::Protocol(what) => Fate::Protocol(what),
            LinkError::Gone(why) => Fate::Gone(why),
            other => Fate::Gone(other.to_string()),
        }
    }
}

/// What a link shares with the caretaker.
#[derive(Debug)]
pub(crate) struct TcpConnection {
    /// At least one. All of them end together.
    pub(crate) sockets: Vec<Socket>,
    fate: Mutex<Option<Fate>>,
    /// Why one of the sockets is of no more use, while there may be something to read at another.
    broken: Mutex<Option<String>>,
}

impl TcpConnection {
    pub(crate) fn new(sockets: Vec<Socket>) -> Self {
        Self {
            sockets,
            fate: Mutex::new(None),
            broken: Mutex::new(None),
        }
    }

    /// The first reason to end counts.
    pub(crate) fn end(&self, fate: Fate) {
        let mut ended = self.fate();
        if ended.is_none() {
            if matches!(fate, Fate::Gone(_) | Fate::Protocol(_)) {
                self.shut_down();
            }
            *ended = Some(fate);
        }
    }

    /// Takes note that one of the sockets is of no more use.
    pub(crate) fn note_broken(&self, why: String) {
        lock(&self.broken).get_or_insert(why);
    }

    /// Ends the connection if one of the sockets is of no more use.
    pub(crate) fn end_if_broken(&self) {
        if let Some(why) = lock(&self.broken).clone() {
            self.end(Fate::Gone(why));
        }
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        match &*self.fate() {
            None => Ok(()),
            Some(fate) => Err(fate.error()),
        }
    }

    /// Whether the peer may still be told something.
    pub(crate) fn can_be_told(&self) -> bool {
        matches!(*self.fate(), None | Some(Fate::Left))
    }

    /// The peer sees an end without a goodbye.
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
        let mut counts = self.sockets.iter().map(Socket::traffic);
        let first = counts.next()??;
        counts.try_fold(first, |sum, more| {
            let more = more?;
            Some(TrafficCounts {
                sent_bytes: sum.sent_bytes + more.sent_bytes,
                received_bytes: sum.received_bytes + more.received_bytes,
                retransmissions: sum.retransmissions + more.retransmissions,
            })
        })
    }

    fn fate(&self) -> MutexGuard<'_, Option<Fate>> {
        lock(&self.fate)
    }
}

/// What is said of a connection that an error has ended.
pub(crate) fn broken_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("its host was silent for too long: {error}"),
        _ => format!("the connection to it broke: {error}"),
    }
}
