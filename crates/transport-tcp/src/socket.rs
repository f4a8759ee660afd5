//! A connected, non-blocking TCP socket, and the few system calls that the standard library lacks.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::fork::Descriptor;
use weft_transport::{LinkError, TrafficClass, TrafficCounts, checked, failed, os_code};

use crate::congestion::CongestionChoice;
use crate::descriptor::{self, unconnected};
use crate::records::{RecordReader, Records};

/// How soon a blocking call detects that it has been cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(30);

/// The kernel accepts more only while fewer bytes than this are waiting to be sent: urgent frames
/// cannot overtake them.
const UNSENT_BYTES_MAX: u64 = 128 << 10;
/// The least share of that for each connection of a link.
const UNSENT_BYTES_MIN: u64 = 32 << 10;

/// A peer that has sent nothing for this long is probed.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// How connections are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    /// How long a vanished host may stay undetected.
    pub(crate) peer_timeout: Duration,
    pub(crate) traffic_class: TrafficClass,
    pub(crate) congestion: CongestionChoice,
}

/// A connection whose bytes or probes nobody answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    /// The age of the last sign of the peer's host.
    pub(crate) silence: Duration,
    pub(crate) round_trip: Duration,
    /// How often the kernel has repeated something or probed, since the last sign at least.
    pub(crate) tries: u32,
    /// Nothing but probes is under way.
    pub(crate) is_idle: bool,
}

/// A connection. Forked children do not keep it open.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Descriptor<TcpStream>,
    /// The encryption of the connection, if any.
    records: Option<Records>,
}

impl Socket {
    /// Sets up a connected stream.
    pub(crate) fn new(stream: Descriptor<TcpStream>, options: SocketOptions) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        set(
            &stream,
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            UNSENT_BYTES_MAX,
        )?;
        keep_alive(&stream, options.peer_timeout)?;
        retry_often(&stream, options.peer_timeout);
        classify(&stream, options.traffic_class)?;
        let socket = Self {
            stream,
            records: None,
        };
        let congestion = options.congestion;
        congestion.apply(socket.stream.as_fd(), socket.round_trip())?;
        Ok(socket)
    }

    /// Divides the limit of unsent bytes among the connections of a link.
    pub(crate) fn share_unsent(&self, connections: usize) -> io::Result<()> {
        let share = (UNSENT_BYTES_MAX / connections as u64).max(UNSENT_BYTES_MIN);
        set(
            &self.stream,
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            share,
        )
    }

    /// Encrypts the connection from now on.
    pub(crate) fn seal(self, records: Option<Records>) -> Self {
        Self { records, ..self }
    }

    /// Replaces the connection by another; this one is closed. It must be encrypted if
    /// this one is. Nothing may be sent or received meanwhile.
    pub(crate) fn replace(&self, new: Socket) -> io::Result<()> {
        if let (Some(records), Some(new)) = (&self.records, new.records) {
            records.replace(new);
        }
        descriptor::replace(new.stream.as_fd(), self.stream.as_fd())
    }

    /// Closes the connection. Its descriptor is never ready from now on.
    pub(crate) fn set_aside(&self) -> io::Result<()> {
        descriptor::replace(Descriptor::epoll()?.as_fd(), self.stream.as_fd())
    }

    /// Accepts some of the bytes for sending. `WouldBlock` if none can be accepted now. Without
    /// bytes: if some that were accepted before are not sent yet.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.records {
            Some(records) => records.send(slices, |sealed| self.write(&[IoSlice::new(sealed)])),
            None if slices.is_empty() => Ok(0),
            None => self.write(slices),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all zeros is a valid message header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        // An `IoSlice` has the layout of an `iovec`, and the kernel only reads its bytes.
        header.msg_iov = slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = slices.len() as _;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the header, the slices and what they point to outlive the call.
        let sent = unsafe { libc::sendmsg(self.stream.as_raw_fd(), &header, flags) };
        checked("sendmsg", sent).map(|sent| sent as usize)
    }

    /// The connection as a reader. Never blocks.
    pub(crate) fn reader(&self) -> impl Read {
        match &self.records {
            Some(records) => SocketReader::Opening(records.reader(&*self.stream)),
            None => SocketReader::Plain(&self.stream),
        }
    }

    /// Bytes that were read from the connection and not delivered, if they can be.
    pub(crate) fn received(&self) -> Option<impl Read> {
        self.records.as_ref()?.received()
    }

    /// Whether data that was not read, or the end, has arrived.
    pub(crate) fn has_input(&self) -> bool {
        let peeked = self.stream.peek(&mut [0]);
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Ends one or both directions. Readers see the end.
    pub(crate) fn shutdown(&self, direction: Shutdown) {
        // A connection that is down already needs no shutdown.
        let _ = self.stream.shutdown(direction);
    }

    /// The round-trip time, as the kernel has measured it so far.
    pub(crate) fn round_trip(&self) -> Duration {
        let info = self.info();
        info.map_or(Duration::ZERO, |info| {
            Duration::from_micros(info.tcpi_rtt.into())
        })
    }

    /// The age of the peer host's last acknowledgement, if one is missing: sent data is not
    /// acknowledged.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let info = self.info()?;
        let owes = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
        owes.then(|| last_sign(&info))
    }

    /// For how long nothing at all has arrived from the peer's host.
    pub(crate) fn quiet(&self) -> Option<Duration> {
        self.info().as_ref().map(last_sign)
    }

    /// Since when the peer's host has not answered, although the kernel has sent something again or
    /// probed; and the round trip. None if nothing is missing.
    pub(crate) fn stall(&self) -> Option<Stall> {
        let info = self.info()?;
        let repeated = info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
        repeated.then(|| Stall {
            silence: last_sign(&info),
            round_trip: Duration::from_micros(info.tcpi_rtt.into()),
            tries: info
                .tcpi_total_retrans
                .wrapping_add(info.tcpi_probes.into()),
            is_idle: info.tcpi_unacked == 0,
        })
    }

    /// The addresses of the connection's ends, this one's first.
    pub(crate) fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        let (own, peer) = (self.stream.local_addr(), self.stream.peer_addr());
        Some((own.ok()?.ip(), peer.ok()?.ip()))
    }

    /// The traffic of the connection.
    pub(crate) fn traffic(&self) -> Option<TrafficCounts> {
        let info = self.info()?;
        let in_flight = u64::from(info.tcpi_unacked) * u64::from(info.tcpi_snd_mss);
        Some(TrafficCounts {
            sent_bytes: info.tcpi_bytes_acked,
            received_bytes: info.tcpi_bytes_received,
            retransmissions: info.tcpi_total_retrans.into(),
            queued_bytes: in_flight + u64::from(info.tcpi_notsent_bytes),
            quiet: Duration::from_millis(info.tcpi_last_data_recv.into()),
            renewals: 0,
        })
    }

    /// The kernel's information about the connection.
    fn info(&self) -> Option<libc::tcp_info> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
        let place = info.as_mut_ptr().cast();
        let raw = self.stream.as_raw_fd();
        // SAFETY: `place` is writable for `bytes` bytes, and both outlive the call.
        let result =
            unsafe { libc::getsockopt(raw, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut bytes) };
        if result != 0 {
            return None;
        }
        // SAFETY: it consists of numbers only, was zeroed, and the kernel filled the part that it
        // knows.
        Some(unsafe { info.assume_init() })
    }

    /// Receives exactly this many bytes, for a handshake.
    pub(crate) fn receive_exactly(
        &self,
        buffer: &mut [u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match (&*self.stream).read(&mut buffer[filled..]) {
                Ok(0) => {
                    return Err(LinkError::Refused(
                        "the peer closed the connection during the handshake".into(),
                    ));
                }
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_until(self.descriptor(), libc::POLLIN, deadline, cancel)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(LinkError::Refused(
                        "the peer reset the connection during the handshake".into(),
                    ));
                }
                Err(error) => return Err(LinkError::Io(failed("recvfrom", error))),
            }
        }
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

/// The age of the peer host's last sign.
fn last_sign(info: &libc::tcp_info) -> Duration {
    // A peer that only sends data may acknowledge nothing new for long.
    let last = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    Duration::from_millis(last.into())
}

/// The received data of a connection.
enum SocketReader<'a> {
    Plain(&'a TcpStream),
    Opening(RecordReader<'a, &'a TcpStream>),
}

impl Read for SocketReader<'_> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self {
            SocketReader::Plain(stream) => stream.read(place),
            SocketReader::Opening(reader) => reader.read(place),
        }
    }

    fn read_vectored(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            SocketReader::Plain(stream) => stream.read_vectored(places),
            SocketReader::Opening(reader) => reader.read_vectored(places),
        }
    }
}

/// The range of ports that the system assigns.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Like [`connect_from`], from the source address that the route selects.
///
/// # Errors
/// As for [`connect_from`].
pub fn connect(
    address: SocketAddr,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Descriptor<TcpStream>, LinkError> {
    connect_from(None, address, deadline, cancel)
}

/// Connects a non-blocking stream. Waits until it is connected, refused, past the deadline, or
/// cancelled (within 50 ms).
///
/// # Errors
/// [`LinkError::Absent`] if nothing listens there, [`LinkError::TimedOut`] past the deadline,
/// [`LinkError::Cancelled`] once `cancel` is true, or [`LinkError::Io`] with the system's reason.
pub fn connect_from(
    source: Option<IpAddr>,
    address: SocketAddr,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Descriptor<TcpStream>, LinkError> {
    let connecting = Connecting::start(source, address)?;
    if connecting.pending {
        wait_until(connecting.descriptor(), libc::POLLOUT, deadline, cancel)?;
    }
    connecting.finish()
}

/// A stream that connects.
pub(crate) struct Connecting {
    socket: Descriptor<TcpStream>,
    address: SocketAddr,
    /// It has not been connected from the start.
    pending: bool,
}

impl Connecting {
    /// Starts to connect, without waiting.
    pub(crate) fn start(source: Option<IpAddr>, address: SocketAddr) -> Result<Self, LinkError> {
        let family = match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let socket = unconnected(family)?;
        let raw = socket.as_raw_fd();
        if let Some(source) = source {
            bind(raw, source).map_err(|error| refused(address, error))?;
        }
        let pending = match start_connecting(raw, address) {
            Ok(()) => false,
            Err(error) if os_code(&error) == Some(libc::EINPROGRESS) => true,
            Err(error) => return Err(refused(address, error)),
        };
        Ok(Self {
            socket,
            address,
            pending,
        })
    }

    /// Ready for writing when it is connected, or has failed.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether it is.
    pub(crate) fn is_over(&self) -> bool {
        let mut entry = [poll_entry(self.descriptor(), libc::POLLOUT)];
        poll(&mut entry, Duration::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The connected stream, or why there is none.
    pub(crate) fn finish(self) -> Result<Descriptor<TcpStream>, LinkError> {
        let pending = self.socket.take_error();
        match pending.map_err(|error| failed("getsockopt(SO_ERROR)", error))? {
            None => Ok(self.socket),
            Some(error) => Err(refused(self.address, error)),
        }
    }
}

fn refused(address: SocketAddr, error: io::Error) -> LinkError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            LinkError::Absent(format!("nothing listens at {address}: {error}"))
        }
        _ => LinkError::Io(failed(format!("connecting to {address}"), explained(error))),
    }
}

/// Listens, with room for the simultaneous connections of all ranks of a large job (the system may
/// limit it further).
///
/// # Errors
/// If an address is in use or not one of this host, or no descriptor is left.
pub fn listen(addresses: &[SocketAddr]) -> io::Result<Descriptor<TcpListener>> {
    const QUEUE: libc::c_int = 4096;
    let listener = Descriptor::make(|| TcpListener::bind(addresses));
    let listener = listener.map_err(|error| failed("socket, bind or listen", error))?;
    // SAFETY: plain system call on a descriptor that we own; on a listening socket it changes the
    // length of the queue.
    let longer = unsafe { libc::listen(listener.as_raw_fd(), QUEUE) };
    checked("listen", longer).map(|_| listener)
}

fn start_connecting(raw: RawFd, address: SocketAddr) -> io::Result<()> {
    // SAFETY: the address is as long as it says, and outlives the call.
    with_raw("connect", address, |address, bytes| unsafe {
        libc::connect(raw, address, bytes)
    })
}

/// Binds a socket to an address, with any port.
fn bind(raw: RawFd, source: IpAddr) -> io::Result<()> {
    let source = SocketAddr::new(source, 0);
    // SAFETY: as above.
    with_raw("bind", source, |address, bytes| unsafe {
        libc::bind(raw, address, bytes)
    })
}

/// Makes a system call with an address in the kernel's form.
fn with_raw(
    name: &'static str,
    address: SocketAddr,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> libc::c_int,
) -> io::Result<()> {
    let result = match address {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            let bytes = size_of_val(&address) as libc::socklen_t;
            call((&raw const address).cast(), bytes)
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            let bytes = size_of_val(&address) as libc::socklen_t;
            call((&raw const address).cast(), bytes)
        }
    };
    checked(name, result).map(drop)
}

/// Waits for an event on a descriptor, the deadline, or `cancel`.
fn wait_until(
    raw: RawFd,
    events: i16,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<(), LinkError> {
    let mut watched = [poll_entry(raw, events)];
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(LinkError::Cancelled);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LinkError::TimedOut("the peer did not answer".into()));
        }
        if poll(&mut watched, left.min(CANCEL_POLL))? > 0 {
            return Ok(());
        }
    }
}

/// Adds the limit that was reached if no port is free to bind, or to connect from.
pub(crate) fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ (io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
            let range = std::fs::read_to_string(PORT_RANGE).unwrap_or_default();
            let (range, why) = (range.trim().replace('\t', "-"), error);
            let text = format!(
                "{why}. The address is not one of this host, or no port of {PORT_RANGE} ({range}) is free"
            );
            io::Error::new(kind, text)
        }
        _ => error,
    }
}

/// The argument of `poll` for one descriptor.
pub fn poll_entry(raw: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd: raw,
        events,
        revents: 0,
    }
}

/// Waits for events, rounding the time up to whole milliseconds. Returns how many entries have one.
///
/// # Errors
/// The system's reason, except for an interruption, which counts as no event.
pub fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let millis = timeout.as_millis().min(60_000) as libc::c_int + 1;
    // SAFETY: the pointer and the count describe `entries`, which outlive the call.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as _, millis) };
    match checked("poll", ready) {
        Ok(ready) => Ok(ready as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Whether a caller waits to be accepted.
pub fn has_waiting_caller(socket: &TcpListener) -> bool {
    let mut watched = [poll_entry(socket.as_raw_fd(), libc::POLLIN)];
    poll(&mut watched, Duration::ZERO).is_ok() && watched[0].revents != 0
}

/// The time between two probes of an idle peer; retransmissions follow sooner.
pub(crate) fn probe_interval(peer_timeout: Duration) -> Duration {
    Duration::from_secs((whole_seconds(peer_timeout) / 5).max(1))
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000).max(1) as u64
}

/// Makes the kernel probe an idle peer, so that an acknowledgement is missing if its host vanished.
/// The kernel gives the peer up `peer_timeout` after the first unanswered probe.
fn keep_alive(stream: &TcpStream, peer_timeout: Duration) -> io::Result<()> {
    let interval = probe_interval(peer_timeout).as_secs();
    set(stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(
        stream,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPIDLE,
        IDLE.as_secs(),
    )?;
    set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval)?;
    let probes = whole_seconds(peer_timeout).div_ceil(interval);
    set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes)
}

/// Bounds the kernel's retransmission timeout, which doubles each time: after a line was cut for a
/// while, the kernel would wait about as long again, and a peer that is silent for `peer_timeout`
/// counts as vanished.
fn retry_often(stream: &TcpStream, peer_timeout: Duration) {
    /// As in `linux/tcp.h` since Linux 6.15.
    const TCP_RTO_MAX_MS: i32 = 44;
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(120);
    let longest = (peer_timeout / 8).clamp(LEAST, MOST).as_millis() as u64;
    // Older kernels reject the option: there it takes longer until a repaired line is used again.
    let _ = set(stream, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, longest);
}

/// Marks the packets with the class's code point.
fn classify(stream: &TcpStream, class: TrafficClass) -> io::Result<()> {
    if class == TrafficClass::BestEffort {
        return Ok(());
    }
    let code_point = u64::from(class.code_point());
    match stream.local_addr()? {
        SocketAddr::V4(_) => set(stream, libc::IPPROTO_IP, libc::IP_TOS, code_point << 2),
        SocketAddr::V6(_) => set(
            stream,
            libc::IPPROTO_IPV6,
            libc::IPV6_TCLASS,
            code_point << 2,
        ),
    }
}

fn set(stream: &TcpStream, level: i32, option: i32, value: u64) -> io::Result<()> {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    let bytes = size_of_val(&value) as libc::socklen_t;
    let place = (&raw const value).cast();
    // SAFETY: the value outlives the call and is as long as it says.
    let set = unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, place, bytes) };
    checked("setsockopt", set).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The byte of the IP header with a connection's class.
    fn mark(class: TrafficClass) -> i32 {
        let listener = listen(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let stream = Descriptor::make(|| TcpStream::connect(listener.local_addr()?)).unwrap();
        let options = SocketOptions {
            peer_timeout: Duration::from_secs(10),
            traffic_class: class,
            congestion: CongestionChoice::Host,
        };
        let socket = Socket::new(stream, options).unwrap();
        let (mut value, mut bytes) = (0_i32, size_of::<i32>() as libc::socklen_t);
        let (raw, place) = (socket.descriptor(), (&raw mut value).cast());
        // SAFETY: the value is writable and as long as it says, and both outlive the call.
        let got =
            unsafe { libc::getsockopt(raw, libc::IPPROTO_IP, libc::IP_TOS, place, &mut bytes) };
        assert_eq!(got, 0);
        value
    }

    #[test]
    fn the_kernel_counts_traffic() {
        let listener = listen(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let stream = Descriptor::make(|| TcpStream::connect(listener.local_addr()?)).unwrap();
        let mut far = listener.accept().unwrap().0;
        let options = SocketOptions {
            peer_timeout: Duration::from_secs(10),
            traffic_class: TrafficClass::BestEffort,
            congestion: CongestionChoice::Host,
        };
        let socket = Socket::new(stream, options).unwrap();
        assert_eq!(socket.send(&[IoSlice::new(&[7; 1000])]).unwrap(), 1000);
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[8; 500]).unwrap();
        let (deadline, cancel) = (
            Instant::now() + Duration::from_secs(10),
            AtomicBool::new(false),
        );
        (socket.receive_exactly(&mut [0; 500], deadline, &cancel)).unwrap();
        // The peer's bytes carried the acknowledgement of the earlier ones.
        let traffic = socket.traffic().unwrap();
        assert_eq!((traffic.received_bytes, traffic.retransmissions), (500, 0));
        // The kernel counts the start of the connection as a byte.
        assert!((1000..=1001).contains(&traffic.sent_bytes), "{traffic:?}");
    }

    #[test]
    fn packets_carry_their_class() {
        assert_eq!(mark(TrafficClass::BestEffort), 0);
        assert_eq!(mark(TrafficClass::Bulk), 1 << 2);
        assert_eq!(mark(TrafficClass::LowLatency), 40 << 2);
    }
}
