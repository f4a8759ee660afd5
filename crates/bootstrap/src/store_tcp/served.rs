//! One client's connection, on the server's side. Nothing here waits.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::fork::Descriptor;

use super::StoreAccess;
use super::channel::{CHUNK_BYTES_MAX, StoreChannel};
use super::protocol::{SET_BYTES_MAX, StoreFailure, StoreReply, StoreRequest, message};

/// The most bytes read in one turn, so that no client delays the others.
const TURN_BYTES_MAX: usize = 256 << 10;

/// A request for values that is not answered yet.
pub(super) struct PendingRequest {
    pub(super) keys: Vec<String>,
    /// The values of the first keys.
    pub(super) values: Vec<Arc<[u8]>>,
    pub(super) value_bytes: usize,
    pub(super) deadline: Instant,
    pub(super) heartbeat: Instant,
}

impl PendingRequest {
    /// The first key that has no value yet.
    pub(super) fn key(&self) -> Option<&String> {
        self.keys.get(self.values.len())
    }
}

/// A connection, with its incoming and outgoing data.
pub(super) struct ServedConnection {
    stream: Descriptor<TcpStream>,
    /// The client's address.
    pub(super) source: IpAddr,
    /// The processor time that it has taken as a stranger.
    pub(super) cost: Duration,
    channel: StoreChannel,
    /// The time of the last data in either direction.
    pub(super) moved: Instant,
    pub(super) wait: Option<PendingRequest>,
    /// Whether the client has asked for the job's status.
    pub(super) asks_status: bool,
    /// Replies to send. Values are shared with the store: only the bytes that the socket accepts
    /// next are copied.
    outgoing: VecDeque<Arc<[u8]>>,
    /// How many bytes of the first of `outgoing` are in `wire` already.
    outgoing_taken: usize,
    wire: Vec<u8>,
    wire_sent: usize,
}

impl ServedConnection {
    pub(super) fn new(
        (stream, source): (Descriptor<TcpStream>, IpAddr),
        access: &StoreAccess,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            source,
            cost: Duration::ZERO,
            channel: StoreChannel::of_server(access)?,
            moved: Instant::now(),
            wait: None,
            asks_status: false,
            outgoing: VecDeque::new(),
            outgoing_taken: 0,
            wire: Vec::new(),
            wire_sent: 0,
        })
    }

    /// Whether the client has proven that it may use the store.
    pub(super) fn is_proven(&self) -> bool {
        self.channel.is_proven()
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The client's address.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.stream.peer_addr().ok().map(|address| address.ip())
    }

    /// Whether the client waits for nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.wait.is_none() && self.is_flushed() && self.held() == 0
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.wire_sent == self.wire.len()
    }

    /// Whether the next request may be read.
    pub(super) fn takes_requests(&self) -> bool {
        self.wait.is_none() && !self.asks_status && self.is_flushed()
    }

    /// Bytes of an incomplete request.
    pub(super) fn held(&self) -> usize {
        self.channel.held()
    }

    /// The events to poll for. Nothing is read from a client that has not read its answer, nor from
    /// a stranger while strangers have taken too much time.
    pub(super) fn poll_entry(&self, attends_strangers: bool) -> libc::pollfd {
        let events = match (self.is_flushed(), &self.wait) {
            _ if !attends_strangers && !self.is_proven() => 0,
            (false, _) => libc::POLLOUT,
            (true, Some(_)) => 0,
            (true, None) => libc::POLLIN,
        };
        weft_transport_tcp::poll_entry(self.stream.as_raw_fd(), events | libc::POLLRDHUP)
    }

    /// Reads available data, up to a bound.
    pub(super) fn read(&mut self) -> Result<(), StoreFailure> {
        let mut buffer = [0; 16 << 10];
        let mut turn = 0;
        while turn < TURN_BYTES_MAX && !self.channel.has_body() {
            let bytes = match (&*self.stream).read(&mut buffer) {
                Ok(0) => return Err(StoreFailure::Ended),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreFailure::Io(error)),
            };
            if let Err(failure) = self.channel.feed(&buffer[..bytes], &mut self.wire) {
                // Sends an alert, if there is one, without waiting for it to be read.
                let _ = self.flush();
                return Err(failure);
            }
            turn += bytes;
        }
        if turn > 0 && self.is_proven() {
            self.moved = Instant::now();
        }
        Ok(())
    }

    /// The next request, if it is complete.
    pub(super) fn next_request(&mut self) -> Result<Option<StoreRequest>, StoreFailure> {
        match self.channel.next_body(SET_BYTES_MAX)? {
            Some(body) => Ok(Some(StoreRequest::decode(&body)?)),
            None => Ok(None),
        }
    }

    pub(super) fn reply(&mut self, reply: &StoreReply) {
        self.outgoing.push_back(message(reply).into());
    }

    /// Answers the waiting request, whose values are complete.
    pub(super) fn reply_values(&mut self, values: Vec<Arc<[u8]>>) {
        self.reply(&StoreReply::Values(values.len() as u32));
        for value in values {
            let length = (value.len() as u32).to_le_bytes();
            self.outgoing.push_back(Arc::new(length));
            self.outgoing.push_back(value);
        }
    }

    /// Writes as much as the socket accepts.
    pub(super) fn flush(&mut self) -> Result<(), StoreFailure> {
        loop {
            if self.wire_sent == self.wire.len() {
                self.wire.clear();
                self.wire_sent = 0;
                if self.outgoing.is_empty() {
                    return Ok(());
                }
                self.fill_wire();
            }
            match (&*self.stream).write(&self.wire[self.wire_sent..]) {
                Ok(bytes) => {
                    self.wire_sent += bytes;
                    if self.is_proven() {
                        self.moved = Instant::now();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreFailure::Io(error)),
            }
        }
    }

    /// Writes all replies. Each write waits for `timeout` at most.
    pub(super) fn wait_until_sent(&mut self, timeout: Duration) -> Result<(), StoreFailure> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(timeout))?;
        self.flush()
    }

    /// Makes the next chunk of the replies.
    fn fill_wire(&mut self) {
        let mut plain = Vec::new();
        while plain.len() < CHUNK_BYTES_MAX
            && let Some(first) = self.outgoing.front()
        {
            let rest = &first[self.outgoing_taken..];
            let taken = rest.len().min(CHUNK_BYTES_MAX - plain.len());
            plain.extend_from_slice(&rest[..taken]);
            self.outgoing_taken += taken;
            if taken == rest.len() {
                self.outgoing.pop_front();
                self.outgoing_taken = 0;
            }
        }
        self.channel.seal(&plain, &mut self.wire);
    }
}
