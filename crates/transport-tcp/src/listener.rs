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

use crate::address::TcpAddress;
use crate::connection::KnownLinks;
use crate::connection::Renewal;
use crate::dialer::Dialer;
use crate::handshake::{
    CONNECTIONS_MAX, HELLO_BYTES, HandshakeVerdict, Hello, LinkPart, Position, Purpose, Session,
    others,
};
use crate::link::TcpLink;
use crate::resumption::Resumption;
use crate::socket::{Socket, has_waiting_caller, poll, poll_entry};

/// A caller that has not taken the next step of its handshake by then is dropped.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The most callers that may wait in each stage. Beyond, the oldest caller of the host with the
/// most callers in that stage is dropped: a flood displaces itself.
const CALLERS_MAX: usize = 256;
/// The most connections that are accepted before pending handshakes are advanced again.
const ACCEPTED_MAX: usize = 64;
/// The most connections of incomplete links per member: two links' worth.
const PROVEN_MAX: usize = 2 * CONNECTIONS_MAX;
/// The timeout for a caller that has proven its key but is not a known member yet: this endpoint
/// may be delayed in its own rendezvous.
const MEETING_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of checks whether unknown callers have become members.
const MEMBERS_POLL: Duration = Duration::from_millis(10);
/// The pause in accepting when the process has no descriptor left for another connection.
const EXHAUSTION_PAUSE: Duration = Duration::from_millis(100);

/// The listening sockets of one endpoint, all with the same port.
pub(crate) struct Listener {
    pub(crate) local: Local,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) members: Arc<Members>,
    pub(crate) known: Arc<KnownLinks>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) events: Arc<dyn LinkEvents>,
    pub(crate) resumption: Resumption,
    pub(crate) sockets: Arc<Vec<Descriptor<TcpListener>>>,
    /// Freed when the process has no descriptor left, so that a member's call can still be
    /// accepted: over its link this endpoint reports why it fails.
    pub(crate) reserve: Option<Descriptor>,
    /// Readable when the listener must stop.
    pub(crate) stop: Descriptor<UnixStream>,
    pub(crate) callers: Vec<Caller>,
    /// Proven connections of links whose other connections are still missing.
    pub(crate) proven: Vec<ProvenCaller>,
}

/// The members that may call, with their addresses.
#[derive(Default)]
pub(crate) struct Members(Mutex<HashMap<EndpointId, TcpAddress>>);

impl Members {
    /// Adds a member. The first key of an endpoint counts; its port may change.
    pub(crate) fn add(&self, peer: EndpointId, address: TcpAddress) {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let member = members.entry(peer).or_insert_with(|| address.clone());
        if (member.key, member.ciphers) == (address.key, address.ciphers) {
            *member = address;
        }
    }

    fn get(&self, peer: EndpointId) -> Option<TcpAddress> {
        let members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        members.get(&peer).cloned()
    }
}

/// A connection in its handshake.
pub(crate) struct Caller {
    socket: Socket,
    host: IpAddr,
    stage: HandshakeStage,
    give_up: Instant,
}

enum HandshakeStage {
    /// This many bytes of its hello have arrived.
    Hello([u8; HELLO_BYTES], usize),
    /// Its hello is valid, but it is not known as a member yet: it may be ahead of this endpoint's
    /// own rendezvous.
    Unknown(Box<Hello>),
    /// It was sent its answer, and `received` bytes of its confirmation have arrived.
    Answered {
        peer: EndpointId,
        part: LinkPart,
        session: Box<Session>,
        confirmation: Vec<u8>,
        received: usize,
    },
}

/// A connection whose caller has proven its identity.
pub(crate) struct ProvenCaller {
    peer: EndpointId,
    part: LinkPart,
    /// The link's other connections, as the first one's confirmation lists them.
    others: u16,
    session: Box<Session>,
    socket: Socket,
    give_up: Instant,
}

impl ProvenCaller {
    fn is_part(&self, peer: EndpointId, call: u64, connection: u16) -> bool {
        (self.peer, self.part.call, self.part.connection) == (peer, call, connection)
    }
}

impl Listener {
    /// Serves until it is stopped.
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
            self.advance_callers(&ready);
            let now = Instant::now();
            self.proven.retain(|caller| now < caller.give_up);
            if Instant::now() < paused_until {
                continue;
            }
            if self.accept_callers() {
                shortage.end();
                continue;
            }
            paused_until = Instant::now() + EXHAUSTION_PAUSE;
            if shortage.persists() {
                self.events.exhausted();
            }
        }
    }

    /// The time until something is to be done without an event.
    fn timeout(&self, paused_until: Instant) -> Duration {
        let now = Instant::now();
        let callers = self.callers.iter().map(|caller| caller.give_up);
        let next = callers
            .chain(self.proven.iter().map(|caller| caller.give_up))
            .min();
        let resume = (paused_until > now).then_some(paused_until);
        let unknown = |caller: &Caller| matches!(caller.stage, HandshakeStage::Unknown(_));
        let look = self.callers.iter().any(unknown).then(|| now + MEMBERS_POLL);
        let first = next.into_iter().chain(resume).chain(look).min();
        first.map_or(Duration::from_secs(60), |at| {
            at.saturating_duration_since(now)
        })
    }

    /// Accepts waiting callers. Returns false if a caller waits and the process cannot accept more
    /// connections now. If it can accept none, an unproven caller is dropped first.
    fn accept_callers(&mut self) -> bool {
        if self.reserve.is_none() {
            self.reserve = Descriptor::event().ok();
        }
        let sockets = self.sockets.clone();
        for socket in sockets.iter() {
            for _ in 0..ACCEPTED_MAX {
                match Descriptor::make(|| socket.accept().map(|(stream, _)| stream)) {
                    Ok(stream) => self.set_up(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The kernel reports it even if no caller waits.
                    Err(error) if is_own_limit(&error) && !has_waiting_caller(socket) => break,
                    Err(error) if is_own_limit(&error) => match self.reserve.take() {
                        Some(reserve) => drop(reserve),
                        None if self.drop_unproven() => {}
                        None => return false,
                    },
                    // This connection broke before it was accepted; the next may be usable.
                    Err(_) => {}
                }
            }
        }
        true
    }

    /// Drops the oldest caller whose hello is incomplete. False if there is none.
    fn drop_unproven(&mut self) -> bool {
        let unproven = |caller: &Caller| matches!(caller.stage, HandshakeStage::Hello(..));
        let oldest = self.callers.iter().position(unproven);
        oldest.map(|place| self.callers.remove(place)).is_some()
    }

    fn set_up(&mut self, stream: Descriptor<TcpStream>) {
        let host = stream.peer_addr().map(|address| address.ip());
        // A connection that cannot be set up is dropped; its caller sees the end and tries again.
        let (Ok(host), Ok(socket)) = (host, Socket::new(stream, self.dialer.options)) else {
            return;
        };
        // Its hello has often arrived already.
        self.advance(Caller {
            socket,
            host,
            stage: HandshakeStage::Hello([0; HELLO_BYTES], 0),
            give_up: Instant::now() + HELLO_TIMEOUT,
        });
    }

    /// Advances callers with new data and callers that wait to become members, and drops those that
    /// timed out. `ready` lists, in their order, which callers have data.
    fn advance_callers(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let callers = std::mem::take(&mut self.callers);
        for (caller, ready) in callers.into_iter().zip(ready) {
            if *ready || matches!(caller.stage, HandshakeStage::Unknown(_)) {
                self.advance(caller);
            } else if now < caller.give_up {
                self.callers.push(caller);
            }
        }
    }

    /// Keeps a caller until more data arrives. If there are too many, one is dropped.
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

    /// Advances a caller as far as possible; keeps it, adds it as a part of a link, or drops it.
    fn advance(&mut self, mut caller: Caller) {
        loop {
            let Caller {
                socket,
                host,
                stage,
                give_up,
            } = caller;
            match self.next_step(&socket, stage) {
                HandshakeStep::Over => return,
                HandshakeStep::Stay(stage) => {
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
                HandshakeStep::Next(stage) => {
                    let patience = match stage {
                        HandshakeStage::Unknown(_) => MEETING_TIMEOUT,
                        HandshakeStage::Hello(..) | HandshakeStage::Answered { .. } => {
                            HELLO_TIMEOUT
                        }
                    };
                    caller = Caller {
                        socket,
                        host,
                        stage,
                        give_up: Instant::now() + patience,
                    };
                }
                HandshakeStep::Proven(proof) => {
                    return self.take_part(ProvenCaller {
                        peer: proof.peer,
                        part: proof.part,
                        others: proof.others,
                        session: proof.session,
                        socket,
                        give_up,
                    });
                }
                HandshakeStep::Reported(peer, part, session, position) => {
                    return self.known.answer(peer, part, position, *session, socket);
                }
            }
        }
    }

    fn next_step(&self, socket: &Socket, stage: HandshakeStage) -> HandshakeStep {
        match stage {
            HandshakeStage::Hello(mut hello, received) => {
                let Some(received) = read_more(socket, &mut hello, received) else {
                    return HandshakeStep::Over;
                };
                if !Hello::may_begin(&hello[..received]) {
                    return HandshakeStep::Over;
                }
                if received < HELLO_BYTES {
                    return HandshakeStep::Stay(HandshakeStage::Hello(hello, received));
                }
                match Hello::read(&hello, &self.dialer.keys, self.local.id) {
                    Some(hello) => HandshakeStep::Next(HandshakeStage::Unknown(Box::new(hello))),
                    None => HandshakeStep::Over,
                }
            }
            HandshakeStage::Unknown(hello) => match self.members.get(hello.caller) {
                // A caller waits for the answer: one that sends more, or hangs up, is dropped.
                None if socket.has_input() => HandshakeStep::Over,
                None => HandshakeStep::Stay(HandshakeStage::Unknown(hello)),
                Some(member) if self.is_of(&hello, &member) => answer(socket, *hello),
                Some(_) => HandshakeStep::Over,
            },
            HandshakeStage::Answered {
                peer,
                part,
                session,
                mut confirmation,
                received,
            } => {
                let Some(received) = read_more(socket, &mut confirmation, received) else {
                    return HandshakeStep::Over;
                };
                if received < confirmation.len() {
                    return HandshakeStep::Stay(HandshakeStage::Answered {
                        peer,
                        part,
                        session,
                        confirmation,
                        received,
                    });
                }
                finish(peer, part, session, &confirmation)
            }
        }
    }

    /// Whether it is this member's, and names the cipher of links to it.
    fn is_of(&self, hello: &Hello, member: &TcpAddress) -> bool {
        let cipher = self.dialer.address.ciphers.common(member.ciphers);
        member.key == hello.key && cipher.is_ok_and(|cipher| cipher == hello.part.cipher)
    }

    /// Makes a link when all of its connections are complete.
    fn take_part(&mut self, caller: ProvenCaller) {
        let (peer, part) = (caller.peer, caller.part);
        let of_peer = |other: &ProvenCaller| other.peer == peer;
        if self.proven.iter().filter(|other| of_peer(other)).count() >= PROVEN_MAX {
            // The oldest belongs to a link that does not get complete.
            let oldest = self.proven.iter().position(of_peer);
            self.proven.remove(oldest.expect("there are some"));
        }
        self.proven.push(caller);
        let place = |proven: &[ProvenCaller], connection| {
            let is_part = |caller: &ProvenCaller| caller.is_part(peer, part.call, connection);
            proven.iter().position(is_part)
        };
        let Some(first) = place(&self.proven, 0) else {
            return;
        };
        let others: Vec<u16> = others(self.proven[first].others).collect();
        if others
            .iter()
            .any(|other| place(&self.proven, *other).is_none())
        {
            return;
        }
        let connections = [0].into_iter().chain(others);
        let parts = connections.filter_map(|connection| {
            let place = place(&self.proven, connection)?;
            Some(self.proven.remove(place))
        });
        let parts: Vec<ProvenCaller> = parts.collect();
        self.decide(peer, parts);
    }

    fn decide(&self, peer: EndpointId, mut parts: Vec<ProvenCaller>) {
        let verdict = match self.events.accept(peer) {
            true => HandshakeVerdict::Accept,
            false => HandshakeVerdict::Yield,
        };
        let reply = parts[0].session.verdict(verdict);
        // The first few bytes on a connection always fit.
        let sent = parts[0].socket.send(&[io::IoSlice::new(&reply)]);
        let renewal = self.renewal(peer, parts[0].part);
        let sealed = |part: ProvenCaller| part.socket.seal(part.session.records());
        let sockets: Vec<Socket> = parts.into_iter().map(sealed).collect();
        if verdict == HandshakeVerdict::Yield {
            return;
        }
        if !matches!(sent, Ok(bytes) if bytes == reply.len()) {
            return self.events.failed(peer);
        }
        let timeout = self.dialer.options.peer_timeout;
        let resumption = (self.resumption, renewal);
        match TcpLink::new(
            &self.local,
            &self.regions,
            peer,
            sockets,
            timeout,
            resumption,
        ) {
            Ok(link) => self.events.connected(link),
            Err(error) => {
                self.events.failed(peer);
                // The caller sees the end and calls again, without result.
                if is_own_limit(&error) {
                    self.events.exhausted();
                }
            }
        }
    }
}

impl Listener {
    /// How a connection of a link to this peer is made anew, which the peer has called for.
    fn renewal(&self, peer: EndpointId, part: LinkPart) -> Option<Renewal> {
        self.resumption.keeps().then_some(Renewal {
            peer,
            address: self.members.get(peer)?,
            dialer: self.dialer.clone(),
            known: self.known.clone(),
            events: Some(Arc::downgrade(&self.events)),
            cipher: part.cipher,
            call: part.call,
            calls: false,
        })
    }
}

/// The next step of a caller's handshake.
enum HandshakeStep {
    /// It is dropped.
    Over,
    /// More data is needed.
    Stay(HandshakeStage),
    Next(HandshakeStage),
    Proven(Proof),
    /// It reported its position on a connection of a link that exists, or existed.
    Reported(EndpointId, LinkPart, Box<Session>, Position),
}

struct Proof {
    peer: EndpointId,
    part: LinkPart,
    others: u16,
    session: Box<Session>,
}

fn answer(socket: &Socket, hello: Hello) -> HandshakeStep {
    let (peer, part) = (hello.caller, hello.part);
    let Some((session, answer)) = hello.answer() else {
        return HandshakeStep::Over;
    };
    // The first few bytes on a connection always fit.
    match socket.send(&[io::IoSlice::new(&answer)]) {
        Ok(bytes) if bytes == answer.len() => HandshakeStep::Next(HandshakeStage::Answered {
            peer,
            part,
            session: Box::new(session),
            confirmation: vec![0; part.purpose.confirmation_bytes()],
            received: 0,
        }),
        _ => HandshakeStep::Over,
    }
}

/// The end of a handshake whose confirmation has arrived.
fn finish(
    peer: EndpointId,
    part: LinkPart,
    mut session: Box<Session>,
    confirmation: &[u8],
) -> HandshakeStep {
    let proven = match part.purpose {
        Purpose::Make => confirmation.try_into().ok().and_then(|confirmation| {
            let others = session.confirmed(part.connection, confirmation)?;
            Some(HandshakeStep::Proven(Proof {
                peer,
                part,
                others,
                session,
            }))
        }),
        Purpose::Renew | Purpose::Knock => confirmation.try_into().ok().and_then(|report| {
            let position = session.reported(report)?;
            Some(HandshakeStep::Reported(peer, part, session, position))
        }),
    };
    proven.unwrap_or(HandshakeStep::Over)
}

/// Reads available bytes. Returns how much of the buffer is filled then; None if the connection is
/// over.
fn read_more(socket: &Socket, buffer: &mut [u8], filled: usize) -> Option<usize> {
    match socket.reader().read(&mut buffer[filled..]) {
        Ok(0) => None,
        Ok(bytes) => Some(filled + bytes),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(filled),
            _ => None,
        },
    }
}

/// Stops the listener behind the other end.
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
    fn a_flood_from_one_host_displaces_itself() {
        let ((_local, transport), _events) = listening(&SUBJECT);
        let slow = dial(&transport, [127, 0, 0, 3]);
        (&*slow).write_all(b"weft").unwrap();
        let flood: Vec<_> = (0..2 * CALLERS_MAX)
            .map(|_| dial(&transport, [127, 0, 0, 2]))
            .collect();
        // The first connection of the flood is dropped, the earlier one from elsewhere is not.
        flood[0].set_read_timeout(Some(HELLO_TIMEOUT / 2)).unwrap();
        assert_eq!((&*flood[0]).read(&mut [0]).unwrap(), 0);
        slow.set_nonblocking(true).unwrap();
        let waits = (&*slow).read(&mut [0]).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    }
}
