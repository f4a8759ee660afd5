//! The sockets of a link, and how it ended.

use std::io;
use std::net::Shutdown;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use weft_transport::{LinkError, TrafficCounts};

use crate::lock::lock;
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
            other => ConnectionEnd::Gone(other.to_string()),
        }
    }
}

/// The part of a link that is shared with the background thread.
#[derive(Debug)]
pub(crate) struct TcpConnection {
    /// At least one. All of them end together.
    pub(crate) sockets: Vec<Socket>,
    end: Mutex<Option<ConnectionEnd>>,
    /// The reason that one of the sockets is unusable, while unread data may remain at another.
    broken: Mutex<Option<String>>,
}

impl TcpConnection {
    pub(crate) fn new(sockets: Vec<Socket>) -> Self {
        Self {
            sockets,
            end: Mutex::new(None),
            broken: Mutex::new(None),
        }
    }

    /// Ends the connection. The first reason counts.
    pub(crate) fn end(&self, end: ConnectionEnd) {
        let mut ended = self.ended();
        if ended.is_none() {
            if matches!(end, ConnectionEnd::Gone(_) | ConnectionEnd::Protocol(_)) {
                self.shut_down();
            }
            *ended = Some(end);
        }
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
        let mut counts = self.sockets.iter().map(Socket::traffic);
        let first = counts.next()??;
        counts.try_fold(first, |sum, more| {
            let more = more?;
            Some(TrafficCounts {
                sent_bytes: sum.sent_bytes + more.sent_bytes,
                received_bytes: sum.received_bytes + more.received_bytes,
                retransmissions: sum.retransmissions + more.retransmissions,
                queued_bytes: sum.queued_bytes + more.queued_bytes,
                quiet: sum.quiet.min(more.quiet),
            })
        })
    }

    fn ended(&self) -> MutexGuard<'_, Option<ConnectionEnd>> {
        lock(&self.end)
    }
}

/// The reason for a connection's end by this error.
pub(crate) fn broken_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("its host was silent for too long: {error}"),
        _ => format!("the connection to it broke: {error}"),
    }
}
