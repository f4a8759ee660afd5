//! The endpoint: its pool, its doorbell, its transports and its links.

mod address;
mod places;
mod renewals;
mod table;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_call::OP_NAMES;
use weft_flight::{FlightRecorder, ProcessInfo, StageTrace, write_on_signal};
use weft_memory::{Pool, Region, Registrations, Unregistered};
use weft_transport::{
    Doorbell, EndpointId, Link, LinkError, Local, LoopbackTransport, POOL_HEADER, Segment,
    TrafficClass, Transport, TransportKind, fork,
};
use weft_transport_rdma::{RdmaOptions, RdmaTransport};
use weft_transport_shm::ShmTransport;
use weft_transport_tcp::{
    CongestionChoice, Encryption, Interface, Resumption, TcpOptions, TcpTransport,
};

pub use address::{EndpointAddress, TransportAddress};
use renewals::Renewals;
use table::{IncomingLinks, LinkTable};

use weft_call::Error;

use crate::lock::lock;

/// The longest wait for a flight record that is being written.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for goodbyes to be sent.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// The transports that an endpoint uses.
#[derive(Clone, Copy, Debug, Default)]
pub enum TransportChoice {
    /// Shared memory where ranks share a host; elsewhere RDMA if all ranks have a device for it,
    /// and else TCP.
    #[default]
    Auto,
    /// Shared memory only.
    Shm,
    /// RDMA verbs only.
    Rdma,
    /// TCP only.
    Tcp,
    /// Within one process only: for tests.
    Loopback,
    /// The transports that this function makes, the best first.
    Custom(MakeTransports),
}

/// Makes the transports of an endpoint, the best first.
pub type MakeTransports = fn(&Local) -> Result<Vec<Arc<dyn Transport>>, LinkError>;

/// The settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The transports to use.
    pub transport: TransportChoice,
    /// The network to listen on: an interface's name, an IP address, or a network such as
    /// `10.1.0.0/16`. Without it, the network of the route to `route_to`.
    pub interface: Option<String>,
    /// The rendezvous, as `host:port`: the network of the route to it is used.
    pub route_to: Option<String>,
    /// TCP connections of every link that this endpoint makes. Without a number, it depends on the
    /// networks and their round trip.
    pub tcp_connections: Option<usize>,
    /// The ports of RDMA devices to use, as `device` or `device:port` separated by commas: each is
    /// a rail of every link. Without them, the first active one; `all` for all active ones; `none`
    /// for no RDMA.
    pub rdma_devices: Option<String>,
    /// The index of the address (GID) of these ports to use, in place of the best.
    pub rdma_gid_index: Option<u8>,
    /// The byte that marks packets over RDMA for the network, in place of that of `traffic_class`.
    pub rdma_traffic_class: Option<u8>,
    /// The treatment of unregistered memory where links need registration.
    pub unregistered: Unregistered,
    /// The limit of the pool. Memory is only allocated as it is used.
    pub pool_bytes: u64,
    /// After this long without an acknowledgement, a host counts as vanished.
    pub peer_timeout: Duration,
    /// The treatment that is requested from the network for this endpoint's packets.
    pub traffic_class: TrafficClass,
    /// The congestion control of its TCP connections: a name, `auto`, or `host` for the host's
    /// default.
    pub tcp_congestion: String,
    /// Whether TCP connections that break are made anew under their links. The same on all ranks.
    pub tcp_resumption: Resumption,
    /// Whether links over networks are encrypted. The same on all ranks.
    pub encryption: Encryption,
    /// Whether the rendezvous fails if ranks of one machine cannot share memory, in place of using
    /// another transport.
    pub require_shared_memory: bool,
    /// The directory for flight records of groups that fail: each job makes a directory there.
    /// Without it, nothing is written.
    pub flight_directory: Option<PathBuf>,
    /// The number of a signal on which the flight records of this process are written as well. Its
    /// former handler is called too; a handler that is installed later replaces this one.
    pub flight_signal: Option<i32>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            interface: None,
            route_to: None,
            tcp_connections: None,
            rdma_devices: None,
            rdma_gid_index: None,
            rdma_traffic_class: None,
            unregistered: Unregistered::default(),
            pool_bytes: 1 << 30,
            peer_timeout: Duration::from_secs(10),
            traffic_class: TrafficClass::default(),
            tcp_congestion: "auto".into(),
            tcp_resumption: Resumption::default(),
            encryption: Encryption::default(),
            require_shared_memory: false,
            flight_directory: None,
            flight_signal: None,
        }
    }
}

/// One participant. A process usually has one; tests make one per thread.
pub struct Endpoint {
    id: EndpointId,
    pool: Arc<Pool>,
    doorbell: Arc<Doorbell>,
    transports: Vec<Arc<dyn Transport>>,
    address: Mutex<EndpointAddress>,
    meetings: Mutex<Meetings>,
    encryption: Encryption,
    require_shared_memory: bool,
    choice: TransportChoice,
    table: Arc<LinkTable>,
    renewals: Arc<Renewals>,
    registrations: Arc<Registrations>,
    stages: Arc<StageTrace>,
    flight: Arc<FlightRecorder>,
    peer_timeout: Duration,
    /// The generation (number of forks) of its process.
    generation: u64,
}

/// The effect of an endpoint's rendezvous on the transports that strangers can reach.
#[derive(Default)]
struct Meetings {
    /// The number of rendezvous under way.
    open: usize,
    /// Whether some group has members that share no memory with this endpoint: they may connect at
    /// any time.
    reach_others: bool,
    /// The transports that do not listen now.
    resting: Vec<Arc<dyn Transport>>,
}

impl Endpoint {
    /// Sets up the pool and the transports, and starts listening.
    ///
    /// # Errors
    /// [`Error::Config`] if an option is invalid or a transport cannot start; an error that names
    /// the limit if the operating system refuses memory, descriptors or threads.
    pub fn new(options: EndpointOptions) -> Result<Arc<Self>, Error> {
        Self::set_up(options, None)
    }

    /// Like [`Endpoint::new`]. Ranks with different labels count as being on different hosts,
    /// though they may share one: for emulating several hosts on one.
    ///
    /// # Errors
    /// As for [`Endpoint::new`].
    pub fn with_host_label(options: EndpointOptions, host_label: &str) -> Result<Arc<Self>, Error> {
        Self::set_up(options, Some(host_label))
    }

    fn set_up(options: EndpointOptions, host_label: Option<&str>) -> Result<Arc<Self>, Error> {
        if let Some(signal) = options.flight_signal {
            write_on_signal(signal)
                .map_err(|error| Error::Config(format!("flight_signal={signal}: {error}")))?;
        }
        let local = local(&options)?;
        let transports = transports(&local, &options)?;
        let address = EndpointAddress {
            id: local.id,
            host_name: system_text("/proc/sys/kernel/hostname")?,
            pid: std::process::id(),
            boot_id: boot_id(host_label)?,
            transports: published(&transports, options.transport),
        };
        let process = ProcessInfo {
            host_name: address.host_name.clone(),
            boot_id: address.boot_id.clone(),
            pid: address.pid,
            op_names: &OP_NAMES,
        };
        let stages = Arc::new(StageTrace::default());
        let known = (&stages, &local.doorbell);
        let flight = FlightRecorder::new(process, options.flight_directory);
        let endpoint = Arc::new(Self {
            id: local.id,
            pool: Arc::new(match registers(&transports) {
                true => Pool::keeping_memory(local.pool.clone()),
                false => Pool::new(local.pool.clone()),
            }),
            table: Arc::new(LinkTable::new(local.id, local.doorbell.clone())),
            registrations: Registrations::new(&transports, options.unregistered, known),
            stages,
            doorbell: local.doorbell,
            transports,
            address: Mutex::new(address),
            meetings: Mutex::default(),
            encryption: options.encryption,
            require_shared_memory: options.require_shared_memory,
            choice: options.transport,
            renewals: Arc::new(Renewals::new(flight.clone())),
            flight,
            peer_timeout: options.peer_timeout,
            generation: fork::generation(),
        });
        (endpoint.transports.iter()).try_for_each(|transport| endpoint.listen(transport))?;
        Ok(endpoint)
    }

    fn listen(&self, transport: &Arc<dyn Transport>) -> Result<(), Error> {
        let incoming = IncomingLinks {
            table: self.table.clone(),
            renewals: self.renewals.clone(),
            kind: transport.kind(),
        };
        let listening = transport.listen(Arc::new(incoming));
        listening.map_err(|error| cannot_start(transport.kind(), &error))
    }

    /// Starts a rendezvous, in which the address is published: listens again where it had stopped.
    /// Each call must be followed by [`Endpoint::end_meeting`].
    pub(super) fn begin_meeting(&self) -> Result<(), Error> {
        let mut meetings = lock(&self.meetings);
        meetings.open += 1;
        // A transport that cannot listen again stays in the list, and the next rendezvous tries
        // again.
        while let Some(transport) = meetings.resting.last() {
            self.listen(transport)?;
            meetings.resting.pop();
        }
        lock(&self.address).transports = published(&self.transports, self.choice);
        Ok(())
    }

    /// Ends a rendezvous; `shares_memory` is whether all of its ranks share memory, if it
    /// succeeded. Where all ranks of all groups do, no rank needs to connect over a network, and no
    /// port stays open.
    pub(super) fn end_meeting(&self, shares_memory: Option<bool>) {
        let mut meetings = lock(&self.meetings);
        meetings.open -= 1;
        meetings.reach_others |= shares_memory == Some(false);
        if meetings.open == 0 && !meetings.reach_others && shares_memory == Some(true) {
            let rest = self.transports.iter().filter(|transport| transport.rest());
            meetings.resting.extend(rest.cloned());
        }
    }

    /// Its identity.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// The memory that peers write to.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Wakes this endpoint's progress.
    pub fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbell
    }

    /// Whether callers have waited without result because of missing descriptors since the last
    /// call.
    pub fn take_descriptor_shortage(&self) -> bool {
        self.table.take_descriptor_shortage()
    }

    /// The last operations of its groups.
    pub fn flight(&self) -> &Arc<FlightRecorder> {
        &self.flight
    }

    /// After this long without an acknowledgement, a host counts as vanished.
    pub fn peer_timeout(&self) -> Duration {
        self.peer_timeout
    }

    /// The information that peers need to connect here.
    pub fn address(&self) -> EndpointAddress {
        lock(&self.address).clone()
    }

    /// Whether ranks of one machine must share memory.
    pub fn requires_shared_memory(&self) -> bool {
        self.require_shared_memory
    }

    /// The requested encryption of its links over networks.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// The name of the cipher of links of this kind to the peer; None without encryption.
    pub fn cipher(&self, peer: &EndpointAddress, kind: TransportKind) -> Option<&'static str> {
        self.transport(kind)?.cipher(peer.of(kind)?)
    }

    /// The kinds of links that it can make. The best is first.
    pub fn kinds(&self) -> impl Iterator<Item = TransportKind> {
        self.transports.iter().map(|transport| transport.kind())
    }

    /// Admits connections of this peer from now on: a member of a group that this endpoint makes.
    ///
    /// # Errors
    /// [`Error::Config`] if the peer's address for one of this endpoint's transports is malformed.
    pub fn admit(&self, peer: &EndpointAddress) -> Result<(), Error> {
        self.renewals.name(peer);
        for transport in &self.transports {
            if let Some(bytes) = peer.of(transport.kind()) {
                let admitted = transport.admit(peer.id, bytes);
                admitted.map_err(|error| Error::from_link(error, None, &peer.host_name))?;
            }
        }
        Ok(())
    }

    /// The link of this kind to the peer, which has [admitted](Endpoint::admit) this endpoint or
    /// will; made now if there is none. Several threads that request the same link get the same
    /// one.
    ///
    /// # Errors
    /// [`Error::Config`] if the peer does not offer this kind of link; otherwise the reason that
    /// the link could not be made before the deadline, or [`Error::Aborted`] once `cancel` is true.
    pub fn link(
        &self,
        peer: &EndpointAddress,
        kind: TransportKind,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<dyn Link>, Error> {
        let linked = self.try_link(peer, kind, deadline, cancel)?;
        linked.map_err(|error| Error::from_link(error, None, &peer.host_name))
    }

    /// The link of this kind to the peer, if there is one.
    pub fn ready_link(&self, peer: EndpointId, kind: TransportKind) -> Option<Arc<dyn Link>> {
        self.table.ready((peer, kind))
    }

    /// Like [`Endpoint::link`]; the inner result is that of the connection.
    ///
    /// # Errors
    /// [`Error::Config`] if this endpoint or the peer does not offer this kind of link.
    pub fn try_link(
        &self,
        peer: &EndpointAddress,
        kind: TransportKind,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Result<Arc<dyn Link>, LinkError>, Error> {
        let (Some(transport), Some(bytes)) = (self.transport(kind), peer.of(kind)) else {
            return Err(Error::Config(format!(
                "no {kind} link is possible between this process and process {} on {}: \
                 one of them was set up without that transport",
                peer.pid, peer.host_name
            )));
        };
        Ok(self
            .table
            .link(peer.id, bytes, transport.as_ref(), deadline, cancel))
    }

    fn transport(&self, kind: TransportKind) -> Option<&Arc<dyn Transport>> {
        self.transports.iter().find(|t| t.kind() == kind)
    }

    /// Makes memory a region, over all transports.
    ///
    /// # Errors
    /// If a transport cannot register the memory.
    pub fn expose(&self, segment: &Arc<Segment>) -> Result<Region, LinkError> {
        Region::expose(&self.transports, segment)
    }

    /// The caller's memory that links read in place.
    pub fn registrations(&self) -> &Arc<Registrations> {
        &self.registrations
    }

    /// The stages of tiles, while they are traced.
    pub fn stages(&self) -> &Arc<StageTrace> {
        &self.stages
    }

    /// Calls `on_link` for every existing link, and for every new one, made from either side,
    /// before it can be used. `on_link` must not request links.
    pub fn on_link(&self, on_link: Box<dyn Fn(Arc<dyn Link>) + Send + Sync>) {
        self.table.on_link(on_link);
    }

    /// Removes a link after it failed. A later [`Endpoint::link`] makes a new one.
    pub fn forget(&self, link: &Arc<dyn Link>) {
        self.table.forget(link);
    }

    /// Stops listening and closes every link, and waits a little until the goodbyes are sent and a
    /// flight record that is being written is complete. Idempotent. Has no effect in a forked
    /// child, where everything is the parent's.
    pub fn close(&self) {
        if self.generation != fork::generation() {
            return;
        }
        for transport in &self.transports {
            transport.close();
        }
        self.table.close();
        for transport in &self.transports {
            transport.drain(GOODBYE_TIMEOUT);
        }
        self.flight.end_writing(Instant::now() + RECORD_TIMEOUT);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

/// The published addresses of an endpoint's transports. A transport that was not requested, but is
/// available on this machine, is optional for the others.
fn published(transports: &[Arc<dyn Transport>], choice: TransportChoice) -> Vec<TransportAddress> {
    let address = |transport: &Arc<dyn Transport>| TransportAddress {
        kind: transport.kind(),
        maps: transport.capabilities().maps,
        optional: matches!(choice, TransportChoice::Auto)
            && transport.kind() == TransportKind::Rdma,
        bytes: transport.address(),
    };
    transports.iter().map(address).collect()
}

/// Whether adapters have registered the pool's memory.
fn registers(transports: &[Arc<dyn Transport>]) -> bool {
    transports
        .iter()
        .any(|transport| transport.capabilities().needs_registration)
}

fn local(options: &EndpointOptions) -> Result<Local, Error> {
    let bytes = options.pool_bytes;
    if bytes <= POOL_HEADER {
        return Err(Error::Config(format!(
            "pool_bytes is {bytes}; it must be more than {POOL_HEADER}"
        )));
    }
    let made = Local::create(bytes);
    made.map_err(|error| Error::refused_here(&format!("make a pool of {bytes} bytes"), &error))
}

fn transports(local: &Local, options: &EndpointOptions) -> Result<Vec<Arc<dyn Transport>>, Error> {
    let shm = || -> Result<Arc<dyn Transport>, Error> {
        let made = ShmTransport::new(local.clone());
        Ok(Arc::new(made.map_err(|e| {
            cannot_start(TransportKind::Shm, &LinkError::Io(e))
        })?))
    };
    let tcp = || -> Result<Arc<dyn Transport>, Error> {
        let made = TcpTransport::new(local.clone(), tcp_options(options)?);
        Ok(Arc::new(
            made.map_err(|e| cannot_start(TransportKind::Tcp, &e))?,
        ))
    };
    let rdma = || -> Result<Arc<dyn Transport>, Error> {
        let made = RdmaTransport::new(local.clone(), rdma_options(options)?);
        Ok(Arc::new(
            made.map_err(|e| cannot_start(TransportKind::Rdma, &e))?,
        ))
    };
    match options.transport {
        // Without a device there is none; `weft doctor` reports the reason.
        TransportChoice::Auto => Ok([Some(shm()?), rdma_if_wanted(options, rdma)?, Some(tcp()?)]
            .into_iter()
            .flatten()
            .collect()),
        TransportChoice::Shm => Ok(vec![shm()?]),
        TransportChoice::Rdma => Ok(vec![rdma()?]),
        TransportChoice::Tcp => Ok(vec![tcp()?]),
        TransportChoice::Loopback => Ok(vec![Arc::new(LoopbackTransport::new(local.clone()))]),
        TransportChoice::Custom(make) => {
            make(local).map_err(|e| cannot_start(TransportKind::Custom, &e))
        }
    }
}

fn tcp_options(options: &EndpointOptions) -> Result<TcpOptions, Error> {
    let congestion = CongestionChoice::parse(&options.tcp_congestion);
    Ok(TcpOptions {
        interface: interface(options),
        connections: options.tcp_connections,
        peer_timeout: options.peer_timeout,
        traffic_class: options.traffic_class,
        congestion: congestion.map_err(Error::Config)?,
        encryption: options.encryption,
        resumption: options.tcp_resumption,
    })
}

fn rdma_options(options: &EndpointOptions) -> Result<RdmaOptions, Error> {
    if options.encryption != Encryption::Off {
        return Err(Error::Config(format!(
            "transport=\"rdma\" with encrypt={}: adapters encrypt nothing. Choose transport \"tcp\" or \"auto\"",
            options.encryption
        )));
    }
    Ok(RdmaOptions {
        control: TcpOptions {
            // It carries little data, and its end shows that of the peer, whose queue pairs are not
            // made anew.
            connections: Some(1),
            resumption: Resumption::Off,
            ..tcp_options(options)?
        },
        devices: options.rdma_devices.clone(),
        gid_index: options.rdma_gid_index,
        traffic_class: options.rdma_traffic_class,
    })
}

/// RDMA where it was not requested: not for links that must be encrypted, and a failure is an error
/// only if devices are named.
fn rdma_if_wanted(
    options: &EndpointOptions,
    make: impl FnOnce() -> Result<Arc<dyn Transport>, Error>,
) -> Result<Option<Arc<dyn Transport>>, Error> {
    match options.rdma_devices.as_deref() {
        Some("none") => Ok(None),
        _ if options.encryption != Encryption::Off => Ok(None),
        Some(_) => make().map(Some),
        None => Ok(make().ok()),
    }
}

fn interface(options: &EndpointOptions) -> Interface {
    match (&options.interface, &options.route_to) {
        (Some(name), _) => Interface::Named(name.clone()),
        (None, Some(target)) => Interface::Towards(target.clone()),
        (None, None) => Interface::Default,
    }
}

fn cannot_start(kind: TransportKind, error: &LinkError) -> Error {
    match error {
        LinkError::Io(error) => Error::refused_here(&format!("start the {kind} transport"), error),
        error => Error::Config(format!("the {kind} transport cannot start: {error}")),
    }
}

fn boot_id(host_label: Option<&str>) -> Result<String, Error> {
    let running = system_text("/proc/sys/kernel/random/boot_id")?;
    Ok(match host_label {
        Some(label) => format!("{running}/{label}"),
        None => running,
    })
}

fn system_text(path: &str) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_string()),
        Err(error) => Err(Error::refused_here(&format!("read {path}"), &error)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
