//! The TCP transport: one port per endpoint, one connection or several per link.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_transport::fork::{self, Descriptor};
use weft_transport::{
    Capabilities, EndpointId, Link, LinkError, LinkEvents, Local, RegionKey, Regions, Segment,
    TrafficClass, Transport, TransportKind, failed, random,
};

use crate::address::TcpAddress;
use crate::closing;
use crate::congestion::CongestionChoice;
use crate::connection::KnownLinks;
use crate::connection::Renewal;
use crate::dialer::{ADDRESS_TIMEOUT, Dialer, say};
use crate::encryption::Encryption;
use crate::handshake::{
    CONNECTIONS_MAX, HandshakeVerdict, KeyPair, LinkPart, Purpose, VERDICT_BYTES,
};
use crate::interface::Interface;
use crate::link::{self, TcpLink};
use crate::listener::{self, Listener, Members};
use crate::patience::Patience;
use crate::resumption::Resumption;
use crate::socket::{self, Socket, SocketOptions};
use crate::ways::{self, Way, connect_any};

/// How long to wait before an unreachable host is called again.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(50);
/// Lines with a longer round trip are long: the window of one connection does not fill them.
const LONG: Duration = Duration::from_millis(2);
/// Connections of a link over such a line.
const LONG_CONNECTIONS: usize = 4;

/// The settings of a [`TcpTransport`].
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The network to listen on, or several to use at once.
    pub interface: Interface,
    /// The number of connections of every link that this endpoint makes. Without it: one per
    /// network, and several per network on a long line.
    pub connections: Option<usize>,
    /// After this long without an acknowledgement, a host counts as vanished.
    pub peer_timeout: Duration,
    /// The treatment of packets that is requested from the network.
    pub traffic_class: TrafficClass,
    /// The congestion control of every connection.
    pub congestion: CongestionChoice,
    /// Whether links are encrypted, and with which cipher.
    pub encryption: Encryption,
    /// Whether a connection that breaks while both processes live is made anew.
    pub resumption: Resumption,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            interface: Interface::Default,
            connections: None,
            peer_timeout: Duration::from_secs(10),
            traffic_class: TrafficClass::default(),
            congestion: CongestionChoice::default(),
            encryption: Encryption::default(),
            resumption: Resumption::default(),
        }
    }
}

/// Makes links over TCP for one endpoint.
pub struct TcpTransport {
    local: Local,
    pub(crate) dialer: Arc<Dialer>,
    members: Arc<Members>,
    pub(crate) known: Arc<KnownLinks>,
    regions: Arc<Regions>,
    connections: Option<usize>,
    resumption: Resumption,
    /// The events of the listener.
    events: Mutex<Option<Weak<dyn LinkEvents>>>,
    /// The current port, or the last one.
    port: AtomicU16,
    state: Mutex<ListenState>,
}

enum ListenState {
    /// Connections queue up in the kernel.
    Bound(Vec<Descriptor<TcpListener>>),
    Listening(Listening),
    /// No peer can connect for now.
    Resting,
    Closed,
}

struct Listening {
    stop: Descriptor<UnixStream>,
    thread: JoinHandle<()>,
    /// The generation (number of forks) of the thread's process.
    generation: u64,
}

impl Listening {
    /// Ends the thread, and with it the listening sockets.
    fn end(self) {
        listener::stop(&self.stop);
        // The listener's own thread may be the one that closes, from within an event.
        fork::join(self.thread, self.generation);
    }
}

impl TcpTransport {
    /// Binds a port. Connections are accepted after [`Transport::listen`].
    ///
    /// # Errors
    /// [`LinkError::Setup`] if the options name no usable network or too many connections,
    /// [`LinkError::Io`] if no port can be bound.
    pub fn new(local: Local, options: TcpOptions) -> Result<Self, LinkError> {
        let ips = options.interface.addresses()?;
        if let Some(connections) = options.connections
            && !(1..=CONNECTIONS_MAX).contains(&connections)
        {
            return Err(LinkError::Setup(format!(
                "{connections} connections per link are not allowed: 1 to {CONNECTIONS_MAX} are"
            )));
        }
        let (sockets, port) = bind(&distinct(&ips))?;
        let keys = KeyPair::generate()?;
        let address = TcpAddress {
            port,
            key: keys.public,
            ciphers: options.encryption.offer(),
            ips,
        };
        Ok(Self {
            regions: Regions::new(local.pool.clone()),
            members: Arc::default(),
            known: Arc::default(),
            connections: options.connections,
            resumption: options.resumption,
            events: Mutex::new(None),
            port: AtomicU16::new(port),
            dialer: Arc::new(Dialer {
                id: local.id,
                keys: Arc::new(keys),
                options: SocketOptions {
                    peer_timeout: options.peer_timeout,
                    traffic_class: options.traffic_class,
                    congestion: options.congestion,
                },
                address,
            }),
            local,
            state: Mutex::new(ListenState::Bound(sockets)),
        })
    }

    fn state(&self) -> MutexGuard<'_, ListenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(
        &self,
        sockets: Vec<Descriptor<TcpListener>>,
        events: Arc<dyn LinkEvents>,
    ) -> io::Result<Listening> {
        let [stop, stopped] = Descriptor::pair()?;
        *crate::lock::lock(&self.events) = Some(Arc::downgrade(&events));
        let listener = Listener {
            local: self.local.clone(),
            dialer: self.dialer.clone(),
            members: self.members.clone(),
            known: self.known.clone(),
            regions: self.regions.clone(),
            events,
            resumption: self.resumption,
            sockets: Arc::new(sockets),
            reserve: Some(Descriptor::event()?),
            stop: stopped,
            callers: Vec::new(),
            proven: Vec::new(),
        };
        let thread = thread::Builder::new().name("weft-tcp-listen".into());
        let thread = thread.spawn(move || listener.run());
        let thread = thread.map_err(|error| failed("starting the thread weft-tcp", error))?;
        Ok(Listening {
            stop,
            thread,
            generation: fork::generation(),
        })
    }

    /// One attempt over a connection to one of the peer's addresses.
    fn call(
        &self,
        peer: EndpointId,
        address: &TcpAddress,
        stream: Descriptor<TcpStream>,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let first = Socket::new(stream, self.dialer.options)?;
        let call = u64::from_le_bytes(random()?);
        let cipher = self.dialer.address.ciphers.common(address.ciphers)?;
        let prove = |socket: &Socket, connection: usize, deadline| {
            let part = LinkPart {
                call,
                connection: connection as u16,
                cipher,
                purpose: Purpose::Make,
                epoch: 0,
            };
            let patience = Patience { deadline, cancel };
            self.dialer.prove(socket, (peer, address), part, patience)
        };
        let mut session = prove(&first, 0, deadline)?;
        let count = self.connections_for(first.round_trip(), address);
        let mut further_sockets = Vec::new();
        let mut others = 0;
        for number in 1..count {
            let until = deadline.min(Instant::now() + ADDRESS_TIMEOUT);
            let patience = Patience {
                deadline: until,
                cancel,
            };
            let elsewhere = self.resumption.keeps();
            let further = (self.dialer).connect_further(number, address, elsewhere, patience);
            // One that cannot be made is left out.
            if let Ok(further) = further
                && let Ok(mut session) = prove(&further, number, until)
                && say(&further, &session.confirm(0)).is_ok()
            {
                others |= 1 << number;
                further_sockets.push(further.seal(session.records()));
            }
        }
        say(&first, &session.confirm(others))?;
        let mut verdict = [0; VERDICT_BYTES];
        first.receive_exactly(&mut verdict, deadline, cancel)?;
        match session.read_verdict(&verdict) {
            Some(HandshakeVerdict::Accept) => {
                let mut sockets = vec![first.seal(session.records())];
                sockets.append(&mut further_sockets);
                let timeout = self.dialer.options.peer_timeout;
                // It calls back when a connection breaks.
                self.members.add(peer, address.clone());
                let renewal = self.resumption.keeps().then(|| Renewal {
                    peer,
                    address: address.clone(),
                    dialer: self.dialer.clone(),
                    known: self.known.clone(),
                    events: crate::lock::lock(&self.events).clone(),
                    cipher,
                    call,
                    calls: true,
                });
                let link = TcpLink::new(
                    &self.local,
                    &self.regions,
                    peer,
                    sockets,
                    timeout,
                    (self.resumption, renewal),
                )?;
                Ok(Some(link))
            }
            Some(HandshakeVerdict::Yield) => Ok(None),
            None => Err(LinkError::Refused(
                "the answer after the handshake is not the peer's".into(),
            )),
        }
    }

    /// Attempts at the peer's addresses, until one succeeds: at whichever answers first, while
    /// better ones are tried a moment earlier.
    fn call_any(
        &self,
        peer: EndpointId,
        address: &TcpAddress,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let mut ways = Way::all(0, &self.dialer.address, address);
        // Last as the routes lead, from any address.
        let routed = (address.sockets()).map(|target| Way {
            source: None,
            target,
        });
        for way in routed {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        let mut failure = None;
        while !ways.is_empty() {
            let soon = deadline.min(Instant::now() + ADDRESS_TIMEOUT);
            // If one has failed, the others may never answer.
            let patience = Patience {
                deadline: if failure.is_some() { soon } else { deadline },
                cancel,
            };
            let stream = match connect_any(&ways, ADDRESS_TIMEOUT, patience) {
                Err(LinkError::Cancelled) => return Err(LinkError::Cancelled),
                Err(error) => return Err(failure.unwrap_or(error)),
                Ok(stream) => stream,
            };
            let at = stream.peer_addr();
            let at = at.map_err(|error| failed("getpeername", error))?;
            ways.retain(|way| way.target != at);
            let until = if ways.is_empty() { deadline } else { soon };
            match self.call(peer, address, stream, until, cancel) {
                Err(LinkError::Cancelled) => return Err(LinkError::Cancelled),
                Err(LinkError::Refused(why)) => {
                    failure = Some(LinkError::Refused(format!("{at}: {why}")));
                }
                Err(error) => failure = Some(error),
                answer => return answer,
            }
        }
        Err(failure.unwrap_or_else(|| LinkError::Refused("the peer has no address".into())))
    }

    /// The number of connections of a link to a peer.
    fn connections_for(&self, round_trip: Duration, peer: &TcpAddress) -> usize {
        let networks = ways::networks(&self.dialer.address, peer);
        let each = match round_trip < LONG {
            true => 1,
            false => LONG_CONNECTIONS,
        };
        self.connections
            .unwrap_or((networks * each).min(CONNECTIONS_MAX))
    }
}

impl Transport for TcpTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn capabilities(&self) -> Capabilities {
        link::CAPABILITIES
    }

    fn address(&self) -> Vec<u8> {
        let address = TcpAddress {
            port: self.port.load(Ordering::SeqCst),
            ..self.dialer.address.clone()
        };
        address.encode()
    }

    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
        Ok(self.regions.expose(segment))
    }

    fn withdraw(&self, region: RegionKey) {
        self.regions.withdraw(region);
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, ListenState::Closed) {
            ListenState::Bound(sockets) => {
                *state = ListenState::Listening(self.start(sockets, events)?);
                Ok(())
            }
            ListenState::Resting => {
                *state = ListenState::Resting;
                let (sockets, port) = bind(&distinct(&self.dialer.address.ips))?;
                *state = ListenState::Listening(self.start(sockets, events)?);
                self.port.store(port, Ordering::SeqCst);
                Ok(())
            }
            other => {
                *state = other;
                let reason = "the transport listens already, or is closed";
                Err(LinkError::Io(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    reason,
                )))
            }
        }
    }

    fn admit(&self, peer: EndpointId, address: &[u8]) -> Result<(), LinkError> {
        let address = TcpAddress::decode(address)?;
        self.members.add(peer, address);
        Ok(())
    }

    fn cipher(&self, address: &[u8]) -> Option<&'static str> {
        let theirs = TcpAddress::decode(address).ok()?.ciphers;
        let cipher = self.dialer.address.ciphers.common(theirs).ok()??;
        Some(cipher.name())
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let address = TcpAddress::decode(address)?;
        // The network also reports an unreachable host for a moment after its line was repaired,
        // until outstanding address requests are answered. So that counts as silence.
        let until = deadline.min(Instant::now() + self.dialer.options.peer_timeout);
        loop {
            match self.call_any(peer, &address, deadline, cancel) {
                Err(LinkError::Io(error))
                    if error.kind() == io::ErrorKind::HostUnreachable && Instant::now() < until =>
                {
                    thread::sleep(UNREACHABLE_PAUSE);
                }
                answer => return answer,
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(LinkError::Cancelled);
            }
        }
    }

    fn rest(&self) -> bool {
        let mut state = self.state();
        match std::mem::replace(&mut *state, ListenState::Resting) {
            ListenState::Listening(listening) => {
                drop(state);
                listening.end();
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }

    fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), ListenState::Closed);
        if let ListenState::Listening(listening) = state {
            listening.end();
        }
    }

    fn drain(&self, timeout: Duration) {
        closing::drain(timeout);
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.close();
    }
}

/// The addresses, without duplicates.
fn distinct(ips: &[(u8, IpAddr)]) -> Vec<IpAddr> {
    let mut distinct = Vec::new();
    for (_, ip) in ips {
        if !distinct.contains(ip) {
            distinct.push(*ip);
        }
    }
    distinct
}

/// Binds the same port, any, on every address. With several addresses a port that is free on the
/// first may be taken on another; then another port is tried.
fn bind(ips: &[IpAddr]) -> Result<(Vec<Descriptor<TcpListener>>, u16), LinkError> {
    const ATTEMPTS: usize = 20;
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        match bind_once(ips) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = Some(error),
        }
    }
    let failure = failure.expect("there was at least one attempt");
    let call = format!("listening on {ips:?}");
    Err(LinkError::Io(failed(call, socket::explained(failure))))
}

fn bind_once(ips: &[IpAddr]) -> io::Result<(Vec<Descriptor<TcpListener>>, u16)> {
    let mut sockets: Vec<Descriptor<TcpListener>> = Vec::with_capacity(ips.len());
    let mut port = 0;
    for ip in ips {
        let socket = socket::listen(&[(*ip, port).into()])?;
        socket.set_nonblocking(true)?;
        port = socket.local_addr()?.port();
        sockets.push(socket);
    }
    Ok((sockets, port))
}
