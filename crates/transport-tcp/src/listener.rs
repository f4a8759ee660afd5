//! The listening side: acceptance of connections and reading of their hellos, many at a time.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::fork::Registration;
use weft_transport::{EndpointId, LinkEvents, Local, Regions};

use crate::handshake::{HELLO_BYTES, HandshakeVerdict, LinkPart, TcpHello};
use crate::link::TcpLink;
use crate::socket::{Socket, SocketOptions, poll, poll_entry};

/// Whoever has not said hello by then is dropped.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Strangers that may be waiting at a time. Beyond, the oldest makes room.
const CALLERS_MAX: usize = 512;
/// How long to leave the queue alone when the process has no descriptor left for another
/// connection.
const EXHAUSTION_PAUSE: Duration = Duration::from_millis(100);

/// The listening sockets of one endpoint, all with the same port.
pub(crate) struct Listener {
    pub(crate) local: Local,
    pub(crate) regions: Arc<Regions>,
    pub(crate) events: Arc<dyn LinkEvents>,
    pub(crate) options: SocketOptions,
    pub(crate) sockets: Arc<Vec<ListeningSocket>>,
    // Above the stream: it must be dropped first.
    pub(crate) _registration: Registration,
    /// Readable when it is time to stop.
    pub(crate) stop: UnixStream,
    pub(crate) callers: Vec<Caller>,
    /// Connections of links of which others have not been heard yet.
    pub(crate) heard: Vec<HeardCaller>,
}

pub(crate) struct ListeningSocket {
    // Above the listener: it must be dropped first.
    _registration: Registration,
    pub(crate) listener: TcpListener,
}

impl ListeningSocket {
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            _registration: Registration::new(listener.as_fd())?,
            listener,
        })
    }
}

/// A connection whose hello is not complete yet.
pub(crate) struct Caller {
    socket: Socket,
    hello: [u8; HELLO_BYTES],
    heard: usize,
    give_up: Instant,
}

/// A connection whose hello was right.
pub(crate) struct HeardCaller {
    peer: EndpointId,
    part: LinkPart,
    socket: Socket,
    give_up: Instant,
}

impl HeardCaller {
    fn is_part(&self, peer: EndpointId, call: u64, connection: u16) -> bool {
        (self.peer, self.part.call, self.part.connection) == (peer, call, connection)
    }
}

impl Listener {
    /// Serves until told to stop.
    pub(crate) fn run(mut self) {
        let mut paused_until = Instant::now();
        loop {
            let mut watched = vec![poll_entry(self.stop.as_raw_fd(), libc::POLLIN)];
            watched.extend(
                self.callers
                    .iter()
                    .map(|c| poll_entry(c.socket.descriptor(), libc::POLLIN)),
            );
            if Instant::now() >= paused_until {
                let sockets = self.sockets.iter();
                watched.extend(sockets.map(|s| poll_entry(s.listener.as_raw_fd(), libc::POLLIN)));
            }
            if poll(&mut watched, self.timeout(paused_until)).is_err() || watched[0].revents != 0 {
                return;
            }
            self.hear_callers();
            let now = Instant::now();
            self.heard.retain(|caller| now < caller.give_up);
            if Instant::now() >= paused_until && !self.take_in_callers() {
                paused_until = Instant::now() + EXHAUSTION_PAUSE;
            }
        }
    }

    /// How long nothing needs to be done without an event.
    fn timeout(&self, paused_until: Instant) -> Duration {
        let now = Instant::now();
        let callers = self.callers.iter().map(|caller| caller.give_up);
        let next = callers
            .chain(self.heard.iter().map(|caller| caller.give_up))
            .min();
        let resume = (paused_until > now).then_some(paused_until);
        let first = next.into_iter().chain(resume).min();
        first.map_or(Duration::from_secs(60), |at| {
            at.saturating_duration_since(now)
        })
    }

    /// False if the process cannot take more connections now.
    fn take_in_callers(&mut self) -> bool {
        let sockets = self.sockets.clone();
        for socket in sockets.iter() {
            loop {
                match socket.listener.accept() {
                    Ok((stream, _)) => self.take_in(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_exhaustion(&error) => return false,
                    // This connection broke before it was taken in; the next may be good.
                    Err(_) => {}
                }
            }
        }
        true
    }

    fn take_in(&mut self, stream: TcpStream) {
        // A connection that cannot be set up is dropped; its caller sees the end and tries again.
        let Ok(socket) = Socket::new(stream, self.options) else {
            return;
        };
        if self.callers.len() >= CALLERS_MAX {
            self.callers.remove(0);
        }
        self.callers.push(Caller {
            socket,
            hello: [0; HELLO_BYTES],
            heard: 0,
            give_up: Instant::now() + HELLO_TIMEOUT,
        });
        // Its hello is often there already.
        if let Some(caller) = self.callers.pop() {
            self.hear(caller);
        }
    }

    fn hear_callers(&mut self) {
        for caller in std::mem::take(&mut self.callers) {
            self.hear(caller);
        }
    }

    /// Reads on; keeps, answers or drops the caller.
    fn hear(&mut self, mut caller: Caller) {
        let read = caller
            .socket
            .reader()
            .read(&mut caller.hello[caller.heard..]);
        match read {
            Ok(0) => return,
            Ok(bytes) => caller.heard += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return,
            },
        }
        if !TcpHello::may_begin(&caller.hello[..caller.heard]) {
            return;
        }
        if caller.heard == HELLO_BYTES {
            self.answer(caller);
        } else if Instant::now() < caller.give_up {
            self.callers.push(caller);
        }
    }

    /// Makes a link when all of its connections are there.
    fn answer(&mut self, caller: Caller) {
        let local = &self.local;
        let Some((peer, part)) = TcpHello::caller(&caller.hello, &local.token, local.id) else {
            return;
        };
        if self.heard.len() >= CALLERS_MAX {
            self.heard.remove(0);
        }
        self.heard.push(HeardCaller {
            peer,
            part,
            socket: caller.socket,
            give_up: caller.give_up,
        });
        let place = |heard: &[HeardCaller], connection| {
            let is_part = |caller: &HeardCaller| caller.is_part(peer, part.call, connection);
            heard.iter().position(is_part)
        };
        let Some(first) = place(&self.heard, 0) else {
            return;
        };
        let others: Vec<u16> = self.heard[first].part.others().collect();
        if others
            .iter()
            .any(|other| place(&self.heard, *other).is_none())
        {
            return;
        }
        let connections = [0].into_iter().chain(others);
        let sockets = connections.filter_map(|connection| {
            let place = place(&self.heard, connection)?;
            Some(self.heard.remove(place).socket)
        });
        let sockets = sockets.collect();
        self.decide(peer, sockets);
    }

    fn decide(&self, peer: EndpointId, sockets: Vec<Socket>) {
        let verdict = match self.events.accept(peer) {
            true => HandshakeVerdict::Accept,
            false => HandshakeVerdict::Yield,
        };
        let reply = verdict.encode();
        // The first few bytes on a connection always fit.
        let sent = sockets[0].send(&[io::IoSlice::new(&reply)]);
        if verdict == HandshakeVerdict::Accept && matches!(sent, Ok(bytes) if bytes == reply.len())
        {
            let timeout = self.options.peer_timeout;
            // Without a descriptor for it there is no link; the caller sees the end.
            if let Ok(link) = TcpLink::new(&self.local, &self.regions, peer, sockets, timeout) {
                self.events.connected(link);
            }
        }
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    matches!(
        error.raw_os_error(),
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM)
    )
}

/// Tells the listener behind the other end to stop.
pub(crate) fn stop(signal: &mut UnixStream) {
    // If the other end is closed, it has stopped.
    let _ = signal.write(&[0]);
}
