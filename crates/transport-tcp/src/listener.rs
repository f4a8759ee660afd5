//! The listening side: acceptance of connections and their handshakes, many at a time.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_transport::fork::Descriptor;
use weft_transport::{EndpointId, LinkEvents, Local, Regions, Shortage, is_own_limit};

use crate::encryption::CipherOffer;
use crate::handshake::{
    CONFIRMATION_BYTES, CONNECTIONS_MAX, HELLO_BYTES, HandshakeVerdict, Hello, KeyPair, LinkPart,
    PublicKey, Session, others,
};
use crate::link::TcpLink;
use crate::socket::{Socket, SocketOptions, is_called, poll, poll_entry};

/// Whoever has not taken the next step of its handshake by then is dropped.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Callers that may be waiting in each stage. Beyond, of the host that has the most of them there
/// the oldest makes room: a flood pushes out itself.
const CALLERS_MAX: usize = 256;
/// Connections that may be taken in before those that are there have their turn again.
const TAKEN_IN_MAX: usize = 64;
/// Connections of links that a member may have begun: two links' worth.
const HEARD_MAX: usize = 2 * CONNECTIONS_MAX;
/// Who has proven to have a key, but is not known yet, has so long: this endpoint may be stopped in
/// its own meeting.
const MEETING_TIMEOUT: Duration = Duration::from_secs(60);
/// How often to look whether callers that nobody knew have become members.
const MEMBERS_POLL: Duration = Duration::from_millis(10);
/// How long to leave the queue alone when the process has no descriptor left for another
/// connection.
const EXHAUSTION_PAUSE: Duration = Duration::from_millis(100);

/// The listening sockets of one endpoint, all with the same port.
pub(crate) struct Listener {
    pub(crate) local: Local,
    pub(crate) keys: Arc<KeyPair>,
    pub(crate) ciphers: CipherOffer,
    pub(crate) members: Arc<Members>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) events: Arc<dyn LinkEvents>,
    pub(crate) options: SocketOptions,
    pub(crate) sockets: Arc<Vec<Descriptor<TcpListener>>>,
    /// Given up when the process has no descriptor left, so that a member that calls can still be
    /// taken in: over its link it is told why this endpoint cannot go on.
    pub(crate) reserve: Option<Descriptor>,
    /// Readable when it is time to stop.
    pub(crate) stop: Descriptor<UnixStream>,
    pub(crate) callers: Vec<Caller>,
    /// Connections of links of which others have not been heard yet.
    pub(crate) heard: Vec<HeardCaller>,
}

/// What the address of a member says of it.
type KeyAndCiphers = (PublicKey, CipherOffer);

/// Who may call, by the keys in their addresses.
#[derive(Default)]
pub(crate) struct Members(Mutex<HashMap<EndpointId, KeyAndCiphers>>);

impl Members {
    /// The first key of an endpoint counts.
    pub(crate) fn add(&self, peer: EndpointId, member: KeyAndCiphers) {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        members.entry(peer).or_insert(member);
    }

    fn get(&self, peer: EndpointId) -> Option<KeyAndCiphers> {
        let members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        members.get(&peer).copied()
    }
}

/// A connection in its handshake.
pub(crate) struct Caller {
    socket: Socket,
    host: IpAddr,
    stage: Stage,
    give_up: Instant,
}

enum Stage {
    /// So many bytes of its hello have come.
    Hello([u8; HELLO_BYTES], usize),
    /// Its hello is right, but it is not known as a member yet: it may be ahead of this endpoint's
    /// own meeting.
    Unknown(Box<Hello>),
    /// It has its answer, and so many bytes of its confirmation have come.
    Answered {
        peer: EndpointId,
        part: LinkPart,
        session: Box<Session>,
        confirmation: [u8; CONFIRMATION_BYTES],
        heard: usize,
    },
}

/// A connection whose caller has proven who it is.
pub(crate) struct HeardCaller {
    peer: EndpointId,
    part: LinkPart,
    /// The link's other connections, as the first one's confirmation names them.
    others: u16,
    session: Box<Session>,
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
        let mut shortage = Shortage::default();
        loop {
            let mut watched = vec![poll_entry(self.stop.as_raw_fd(), libc::POLLIN)];
            watched.extend(
                self.callers
                    .iter()
                    .map(|c| poll_entry(c.socket.descriptor(), libc::POLLIN)),
            );
            if Instant::now() >= paused_until {
                let sockets = self.sockets.iter();
                watched.extend(sockets.map(|s| poll_entry(s.as_raw_fd(), libc::POLLIN)));
            }
            if poll(&mut watched, self.timeout(paused_until)).is_err() || watched[0].revents != 0 {
                return;
            }
            let ready: Vec<bool> = (watched[1..].iter())
                .map(|entry| entry.revents != 0)
                .collect();
            self.hear_callers(&ready);
            let now = Instant::now();
            self.heard.retain(|caller| now < caller.give_up);
            if Instant::now() < paused_until {
                continue;
            }
            if self.take_in_callers() {
                shortage.end();
                continue;
            }
            paused_until = Instant::now() + EXHAUSTION_PAUSE;
            if shortage.goes_on() {
                self.events.exhausted();
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
        let unknown = |caller: &Caller| matches!(caller.stage, Stage::Unknown(_));
        let look = self.callers.iter().any(unknown).then(|| now + MEMBERS_POLL);
        let first = next.into_iter().chain(resume).chain(look).min();
        first.map_or(Duration::from_secs(60), |at| {
            at.saturating_duration_since(now)
        })
    }

    /// False if somebody waits and the process cannot take more connections now. Where it can
    /// take none, who has not said who it is makes room.
    fn take_in_callers(&mut self) -> bool {
        if self.reserve.is_none() {
            self.reserve = Descriptor::event().ok();
        }
        let sockets = self.sockets.clone();
        for socket in sockets.iter() {
            for _ in 0..TAKEN_IN_MAX {
                match Descriptor::make(|| socket.accept().map(|(stream, _)| stream)) {
                    Ok(stream) => self.take_in(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The kernel says so even where nobody waits.
                    Err(error) if is_own_limit(&error) && !is_called(socket) => break,
                    Err(error) if is_own_limit(&error) => match self.reserve.take() {
                        Some(reserve) => drop(reserve),
                        None if self.push_out_unproven() => {}
                        None => return false,
                    },
                    // This connection broke before it was taken in; the next may be good.
                    Err(_) => {}
                }
            }
        }
        true
    }

    /// Drops the oldest caller of which no whole hello has come. False if there is none.
    fn push_out_unproven(&mut self) -> bool {
        let unproven = |caller: &Caller| matches!(caller.stage, Stage::Hello(..));
        let oldest = self.callers.iter().position(unproven);
        oldest.map(|place| self.callers.remove(place)).is_some()
    }

    fn take_in(&mut self, stream: Descriptor<TcpStream>) {
        let host = stream.peer_addr().map(|address| address.ip());
        // A connection that cannot be set up is dropped; its caller sees the end and tries again.
        let (Ok(host), Ok(socket)) = (host, Socket::new(stream, self.options)) else {
            return;
        };
        // Its hello is often there already.
        self.hear(Caller {
            socket,
            host,
            stage: Stage::Hello([0; HELLO_BYTES], 0),
            give_up: Instant::now() + HELLO_TIMEOUT,
        });
    }

    /// Goes on with those of which something came, with those who wait to become members, and drops
    /// those whose time is over. Tells of each in their order whether something came.
    fn hear_callers(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let callers = std::mem::take(&mut self.callers);
        for (caller, ready) in callers.into_iter().zip(ready) {
            if *ready || matches!(caller.stage, Stage::Unknown(_)) {
                self.hear(caller);
            } else if now < caller.give_up {
                self.callers.push(caller);
            }
        }
    }

    /// Keeps a caller for when more has come. Where there are too many, somebody makes room.
    fn keep(&mut self, caller: Caller) {
        let stage = std::mem::discriminant(&caller.stage);
        self.callers.push(caller);
        let is_there = |other: &Caller| std::mem::discriminant(&other.stage) == stage;
        let there = || (self.callers.iter().enumerate()).filter(|(_, other)| is_there(other));
        if there().count() <= CALLERS_MAX {
            return;
        }
        let mut hosts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, other) in there() {
            *hosts.entry(other.host).or_default() += 1;
        }
        let crowd = hosts.into_iter().max_by_key(|(_, count)| *count);
        let oldest = crowd.and_then(|(host, _)| there().find(|(_, other)| other.host == host));
        if let Some(place) = oldest.map(|(place, _)| place) {
            self.callers.remove(place);
        }
    }

    /// Goes on with a caller as far as it has come; keeps it, takes it as a part of a link, or
    /// drops it.
    fn hear(&mut self, mut caller: Caller) {
        loop {
            let Caller {
                socket,
                host,
                stage,
                give_up,
            } = caller;
            match self.go_on(&socket, stage) {
                Step::Over => return,
                Step::Stay(stage) => {
                    if Instant::now() < give_up {
                        self.keep(Caller {
                            socket,
                            host,
                            stage,
                            give_up,
                        });
                    }
                    return;
                }
                Step::Next(stage) => {
                    let patience = match stage {
                        Stage::Unknown(_) => MEETING_TIMEOUT,
                        Stage::Hello(..) | Stage::Answered { .. } => HELLO_TIMEOUT,
                    };
                    caller = Caller {
                        socket,
                        host,
                        stage,
                        give_up: Instant::now() + patience,
                    };
                }
                Step::Proven(proven) => {
                    return self.take_part(HeardCaller {
                        peer: proven.peer,
                        part: proven.part,
                        others: proven.others,
                        session: proven.session,
                        socket,
                        give_up,
                    });
                }
            }
        }
    }

    fn go_on(&self, socket: &Socket, stage: Stage) -> Step {
        match stage {
            Stage::Hello(mut hello, heard) => {
                let Some(heard) = read_on(socket, &mut hello, heard) else {
                    return Step::Over;
                };
                if !Hello::may_begin(&hello[..heard]) {
                    return Step::Over;
                }
                if heard < HELLO_BYTES {
                    return Step::Stay(Stage::Hello(hello, heard));
                }
                match Hello::read(&hello, &self.keys, self.local.id) {
                    Some(hello) => Step::Next(Stage::Unknown(Box::new(hello))),
                    None => Step::Over,
                }
            }
            Stage::Unknown(hello) => match self.members.get(hello.caller) {
                // Nobody goes on before the answer: who does, or hangs up, is not waited for.
                None if socket.has_input() => Step::Over,
                None => Step::Stay(Stage::Unknown(hello)),
                Some(member) if self.is_of(&hello, member) => answer(socket, *hello),
                Some(_) => Step::Over,
            },
            Stage::Answered {
                peer,
                part,
                mut session,
                mut confirmation,
                heard,
            } => {
                let Some(heard) = read_on(socket, &mut confirmation, heard) else {
                    return Step::Over;
                };
                if heard < CONFIRMATION_BYTES {
                    return Step::Stay(Stage::Answered {
                        peer,
                        part,
                        session,
                        confirmation,
                        heard,
                    });
                }
                match session.confirmed(part.connection, &confirmation) {
                    Some(others) => Step::Proven(Proven {
                        peer,
                        part,
                        others,
                        session,
                    }),
                    None => Step::Over,
                }
            }
        }
    }

    /// Whether it is this member's, and names the cipher of links to it.
    fn is_of(&self, hello: &Hello, (key, ciphers): KeyAndCiphers) -> bool {
        let cipher = self.ciphers.common(ciphers);
        key == hello.key && cipher.is_ok_and(|cipher| cipher == hello.part.cipher)
    }

    /// Makes a link when all of its connections are there.
    fn take_part(&mut self, caller: HeardCaller) {
        let (peer, part) = (caller.peer, caller.part);
        let of_peer = |other: &HeardCaller| other.peer == peer;
        if self.heard.iter().filter(|other| of_peer(other)).count() >= HEARD_MAX {
            // The oldest is of a link that does not come about.
            let oldest = self.heard.iter().position(of_peer);
            self.heard.remove(oldest.expect("there are some"));
        }
        self.heard.push(caller);
        let place = |heard: &[HeardCaller], connection| {
            let is_part = |caller: &HeardCaller| caller.is_part(peer, part.call, connection);
            heard.iter().position(is_part)
        };
        let Some(first) = place(&self.heard, 0) else {
            return;
        };
        let others: Vec<u16> = others(self.heard[first].others).collect();
        if others
            .iter()
            .any(|other| place(&self.heard, *other).is_none())
        {
            return;
        }
        let connections = [0].into_iter().chain(others);
        let parts = connections.filter_map(|connection| {
            let place = place(&self.heard, connection)?;
            Some(self.heard.remove(place))
        });
        let parts: Vec<HeardCaller> = parts.collect();
        self.decide(peer, parts);
    }

    fn decide(&self, peer: EndpointId, mut parts: Vec<HeardCaller>) {
        let verdict = match self.events.accept(peer) {
            true => HandshakeVerdict::Accept,
            false => HandshakeVerdict::Yield,
        };
        let reply = parts[0].session.verdict(verdict);
        // The first few bytes on a connection always fit.
        let sent = parts[0].socket.send(&[io::IoSlice::new(&reply)]);
        let sealed = |part: HeardCaller| part.socket.seal(part.session.records());
        let sockets: Vec<Socket> = parts.into_iter().map(sealed).collect();
        if verdict == HandshakeVerdict::Yield {
            return;
        }
        if !matches!(sent, Ok(bytes) if bytes == reply.len()) {
            return self.events.failed(peer);
        }
        let timeout = self.options.peer_timeout;
        match TcpLink::new(&self.local, &self.regions, peer, sockets, timeout) {
            Ok(link) => self.events.connected(link),
            Err(error) => {
                self.events.failed(peer);
                // The caller sees the end and calls again, as it would for ever.
                if is_own_limit(&error) {
                    self.events.exhausted();
                }
            }
        }
    }
}

/// How a caller's handshake goes on.
enum Step {
    /// It is dropped.
    Over,
    /// Something has to come first.
    Stay(Stage),
    Next(Stage),
    Proven(Proven),
}

struct Proven {
    peer: EndpointId,
    part: LinkPart,
    others: u16,
    session: Box<Session>,
}

fn answer(socket: &Socket, hello: Hello) -> Step {
    let (peer, part) = (hello.caller, hello.part);
    let Some((session, answer)) = hello.answer() else {
        return Step::Over;
    };
    // The first few bytes on a connection always fit.
    match socket.send(&[io::IoSlice::new(&answer)]) {
        Ok(bytes) if bytes == answer.len() => Step::Next(Stage::Answered {
            peer,
            part,
            session: Box::new(session),
            confirmation: [0; CONFIRMATION_BYTES],
            heard: 0,
        }),
        _ => Step::Over,
    }
}

/// Reads what has come. How much of the buffer is filled then; nothing if the connection is over.
fn read_on(socket: &Socket, buffer: &mut [u8], filled: usize) -> Option<usize> {
    match socket.reader().read(&mut buffer[filled..]) {
        Ok(0) => None,
        Ok(bytes) => Some(filled + bytes),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(filled),
            _ => None,
        },
    }
}

/// Tells the listener behind the other end to stop.
pub(crate) fn stop(mut signal: &UnixStream) {
    // If the other end is closed, it has stopped.
    let _ = signal.write(&[0]);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use weft_transport::Transport;
    use weft_transport_testing::conformance::{Subject, deadline, listening};

    use super::*;
    use crate::interface::Interface;
    use crate::socket::connect_from;
    use crate::{TcpOptions, TcpTransport};

    const SUBJECT: Subject = Subject {
        make: |local| {
            let options = TcpOptions {
                interface: Interface::Named("127.0.0.1".into()),
                ..TcpOptions::default()
            };
            Arc::new(TcpTransport::new(local, options).unwrap())
        },
    };

    /// A connection to the endpoint from one of this host's addresses.
    fn dial(transport: &Arc<dyn Transport>, from: [u8; 4]) -> Descriptor<TcpStream> {
        let address = transport.address();
        let port = u16::from_le_bytes([address[0], address[1]]);
        let never = AtomicBool::new(false);
        let to = ([127, 0, 0, 1], port).into();
        let stream = connect_from(Some(from.into()), to, deadline(), &never).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    }

    #[test]
    fn a_flood_from_one_host_pushes_out_itself() {
        let ((_local, transport), _events) = listening(&SUBJECT);
        let slow = dial(&transport, [127, 0, 0, 3]);
        (&*slow).write_all(b"weft").unwrap();
        let flood: Vec<_> = (0..2 * CALLERS_MAX)
            .map(|_| dial(&transport, [127, 0, 0, 2]))
            .collect();
        // The first of the flood is ended, the one that was there before is not.
        flood[0].set_read_timeout(Some(HELLO_TIMEOUT / 2)).unwrap();
        assert_eq!((&*flood[0]).read(&mut [0]).unwrap(), 0);
        slow.set_nonblocking(true).unwrap();
        let waits = (&*slow).read(&mut [0]).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    }
}
