//! The transport: a listener for connections, and the ports that links use.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{
    Capabilities, DmaBuf, EndpointId, Iovec, Link, LinkError, LinkEvents, Local,
    MemoryRegistration, RegionKey, Regions, RegistrationKey, Segment, Transport, TransportKind,
};
use weft_transport_tcp::{TcpOptions, TcpTransport};

use crate::closing::Goodbyes;
use crate::link::{CAPABILITIES, RdmaLink};
use crate::lock::lock;
use crate::registered::Registered;
use crate::setup::{LinkSetup, SetupRole};
use crate::verbs::{OpenDevice, Port, ServiceLevel, ports};

/// How long a caller may take to connect its queue pairs.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest and longest acknowledgement timeout, in verbs' encoding: 67 ms, which a busy
/// emulated device may need, and 1.07 s.
const ACK_TIMEOUTS: std::ops::RangeInclusive<u8> = 14..=18;
/// How often an adapter sends before it gives up.
const ATTEMPTS: u32 = 8;

/// The settings of an [`RdmaTransport`].
#[derive(Clone, Debug)]
pub struct RdmaOptions {
    /// The control connections, which set up links and detect their ends, and the treatment of
    /// packets that is requested from the network.
    pub control: TcpOptions,
    /// The ports to use, as `device` or `device:port`: each is a rail of every link. Without them,
    /// the first active one; `all` for all active ones.
    pub devices: Option<String>,
    /// The index of the address (GID) to use, in place of the best.
    pub gid_index: Option<u8>,
    /// The byte that marks packets for the network, in place of the connections' class.
    pub traffic_class: Option<u8>,
}

/// Makes links over RDMA verbs for one endpoint.
pub struct RdmaTransport {
    tcp: TcpTransport,
    makings: Arc<LinkSetup>,
    links: Arc<Mutex<Vec<Weak<RdmaLink>>>>,
    registrations: AtomicU64,
}

impl RdmaTransport {
    /// Opens the devices and binds a port for connections.
    ///
    /// # Errors
    /// [`LinkError::Setup`] if there is no library, no device, or none that can be used, or the
    /// limit of locked memory is too low; or an error of the operating system.
    pub fn new(local: Local, options: RdmaOptions) -> Result<RdmaTransport, LinkError> {
        let known = ports().map_err(LinkError::Refused)?;
        let mut chosen = chosen(&known, options.devices.as_deref()).map_err(LinkError::Refused)?;
        if let Some(index) = options.gid_index {
            for port in &mut chosen {
                port.use_gid(index).map_err(LinkError::Refused)?;
            }
        }
        let regions = Regions::new(local.pool.clone());
        let mut devices: Vec<(String, Arc<Registered>)> = Vec::new();
        let mut ports = Vec::with_capacity(chosen.len());
        for port in chosen {
            let open = devices.iter().find(|(name, _)| *name == port.device);
            let registered = match open {
                Some((_, registered)) => Arc::clone(registered),
                None => {
                    let device = OpenDevice::open(&port.device)?;
                    let registered = Arc::new(Registered::new(&device, &local.pool));
                    devices.push((port.device.clone(), Arc::clone(&registered)));
                    registered
                }
            };
            ports.push((port, registered));
        }
        check_limit(local.pool.len()).map_err(LinkError::Refused)?;
        let class = options.control.traffic_class.code_point() << 2;
        let service = service(
            options.traffic_class.unwrap_or(class),
            options.control.peer_timeout,
        );
        Ok(RdmaTransport {
            tcp: TcpTransport::new(local.clone(), options.control)?,
            makings: Arc::new(LinkSetup {
                local,
                regions,
                ports,
                service,
                goodbyes: Arc::new(Goodbyes::default()),
            }),
            links: Arc::default(),
            registrations: AtomicU64::new(0),
        })
    }

    fn remember(links: &Mutex<Vec<Weak<RdmaLink>>>, link: &Arc<RdmaLink>) {
        let mut links = lock(links);
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
    }
}

impl Transport for RdmaTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Rdma
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn address(&self) -> Vec<u8> {
        self.tcp.address()
    }

    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
        let key = self.makings.regions.expose(segment);
        for (_, registered) in self.devices() {
            registered.expose(key, segment);
        }
        Ok(key)
    }

    fn withdraw(&self, region: RegionKey) {
        let links: Vec<_> = lock(&self.links).iter().filter_map(Weak::upgrade).collect();
        for link in links {
            link.revoke_region(region);
        }
        self.makings.regions.withdraw(region);
        for (_, registered) in self.devices() {
            registered.withdraw(region);
        }
    }

    fn registration(self: Arc<Self>) -> Option<Arc<dyn MemoryRegistration>> {
        Some(self)
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        self.tcp.listen(Arc::new(Callers {
            makings: Arc::clone(&self.makings),
            links: Arc::clone(&self.links),
            events,
        }))
    }

    fn admit(&self, peer: EndpointId, address: &[u8]) -> Result<(), LinkError> {
        self.tcp.admit(peer, address)
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let Some(control) = self.tcp.connect(peer, address, deadline, cancel)? else {
            return Ok(None);
        };
        let link = self
            .makings
            .set_up(control, SetupRole::Caller, deadline, cancel)?;
        Self::remember(&self.links, &link);
        Ok(Some(link))
    }

    fn rest(&self) -> bool {
        self.tcp.rest()
    }

    fn close(&self) {
        self.tcp.close();
    }

    fn drain(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        self.makings.goodbyes.wait(timeout);
        self.tcp
            .drain(until.saturating_duration_since(Instant::now()));
    }
}

impl MemoryRegistration for RdmaTransport {
    fn register(&self, memory: Iovec) -> Result<RegistrationKey, LinkError> {
        self.register_by(memory, None)
    }

    fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError> {
        self.register_by(memory, Some(file))
    }

    fn deregister(&self, key: RegistrationKey) {
        // In a forked child, a lock may be held by a thread that there is not.
        for (_, registered) in self.devices().filter(|(_, known)| known.device().is_own()) {
            registered.deregister(key);
        }
    }
}

impl RdmaTransport {
    fn register_by(
        &self,
        memory: Iovec,
        file: Option<DmaBuf<'_>>,
    ) -> Result<RegistrationKey, LinkError> {
        let key = RegistrationKey(self.registrations.fetch_add(1, Ordering::Relaxed));
        for (_, registered) in self.devices() {
            let done = registered.register(key, memory, file);
            done.inspect_err(|_| self.deregister(key))?;
        }
        Ok(key)
    }

    /// Each device once.
    fn devices(&self) -> impl Iterator<Item = &(Port, Arc<Registered>)> {
        let ports = &self.makings.ports;
        let first = |number: usize| {
            let name = &ports[number].0.device;
            !ports[..number].iter().any(|(port, _)| port.device == *name)
        };
        (0..ports.len())
            .filter(move |number| first(*number))
            .map(|number| &ports[number])
    }
}

/// Makes links of incoming connections.
struct Callers {
    makings: Arc<LinkSetup>,
    links: Arc<Mutex<Vec<Weak<RdmaLink>>>>,
    events: Arc<dyn LinkEvents>,
}

impl LinkEvents for Callers {
    fn accept(&self, peer: EndpointId) -> bool {
        self.events.accept(peer)
    }

    /// On a new thread: the listener continues with others. Only members' connections are passed
    /// here.
    fn connected(&self, control: Arc<dyn Link>) {
        let (makings, links) = (Arc::clone(&self.makings), Arc::clone(&self.links));
        let (events, peer) = (Arc::clone(&self.events), control.peer());
        let setup = thread::Builder::new().name("weft-rdma-setup".into());
        let set_up = move || {
            let deadline = Instant::now() + SETUP_TIMEOUT;
            let never = AtomicBool::new(false);
            match makings.set_up(control, SetupRole::Called, deadline, &never) {
                Ok(link) => {
                    RdmaTransport::remember(&links, &link);
                    events.connected(link);
                }
                // The caller was sent the reason, or is gone.
                Err(_) => events.failed(peer),
            }
        };
        // Without a thread the connection ends, and the caller detects that.
        if setup.spawn(set_up).is_err() {
            self.events.failed(peer);
        }
    }

    fn failed(&self, peer: EndpointId) {
        self.events.failed(peer);
    }

    fn exhausted(&self) {
        self.events.exhausted();
    }
}

/// All memory that an endpoint uses is registered, and so locked: fails where this process may not
/// lock all of its pool.
fn check_limit(pool_bytes: u64) -> Result<(), String> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is written.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    if !known || limit.rlim_cur >= pool_bytes || may_lock() {
        return Ok(());
    }
    Err(format!(
        "this process may lock {} bytes of memory, and its pool has {pool_bytes}: raise the limit \
         (ulimit -l unlimited), or set a smaller WEFT_POOL_BYTES (pool_bytes)",
        limit.rlim_cur
    ))
}

/// Whether this process is exempt from limits of locked memory (`CAP_IPC_LOCK`).
fn may_lock() -> bool {
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    held.is_some_and(|held| held & IPC_LOCK != 0)
}

/// The ports to use.
fn chosen(known: &[Port], devices: Option<&str>) -> Result<Vec<Port>, String> {
    let usable = || known.iter().filter(|port| port.is_usable());
    let found: Vec<Port> = match devices {
        None => usable().take(1).cloned().collect(),
        Some("all") => usable().cloned().collect(),
        Some(names) => {
            let find = |name: &str| {
                let is_it = |port: &&Port| port.name() == name || port.device == name;
                let found = known.iter().find(is_it);
                let found = found.filter(|port| port.is_usable()).cloned();
                found.ok_or_else(|| {
                    let all: Vec<_> = known.iter().map(in_words).collect();
                    format!(
                        "no usable RDMA port matches {name}; this host has: {}",
                        all.join("; ")
                    )
                })
            };
            names
                .split(',')
                .map(|name| find(name.trim()))
                .collect::<Result<_, _>>()?
        }
    };
    match found.is_empty() {
        false => Ok(found),
        true => {
            let all: Vec<_> = known.iter().map(in_words).collect();
            Err(format!("no RDMA port is usable: {}", all.join("; ")))
        }
    }
}

fn in_words(port: &Port) -> String {
    format!("{} ({})", port.name(), port.describe())
}

/// The treatment of packets, and the acknowledgement timeout: an adapter should give up at about
/// the same time as a connection over TCP.
fn service(traffic_class: u8, peer_timeout: Duration) -> ServiceLevel {
    let each = peer_timeout / ATTEMPTS;
    let time = |number: u8| Duration::from_nanos(4096 << number);
    let timeout = ACK_TIMEOUTS.clone().find(|number| time(*number) >= each);
    ServiceLevel {
        // The usual mapping of code points to the eight priorities.
        level: traffic_class >> 5,
        traffic_class,
        timeout: timeout.unwrap_or(*ACK_TIMEOUTS.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(device: &str, number: u8, active: bool) -> Port {
        Port {
            device: device.into(),
            number,
            active,
            ethernet: true,
            gid_index: Some(1),
            gid: [0; 16],
            mtu: 3,
            lid: 0,
        }
    }

    #[test]
    fn ports_are_chosen_by_name_or_activity() {
        let known = [port("a", 1, false), port("b", 1, true), port("b", 2, true)];
        let names = |devices| {
            let found = chosen(&known, devices)?;
            Ok(found.iter().map(Port::name).collect::<Vec<_>>())
        };
        let of = |names: &[&str]| Ok::<_, String>(names.iter().map(|n| n.to_string()).collect());
        assert_eq!(names(None), of(&["b:1"]));
        assert_eq!(names(Some("all")), of(&["b:1", "b:2"]));
        assert_eq!(names(Some("b:2, b")), of(&["b:2", "b:1"]));
        for missing in ["a", "a:1", "c", ""] {
            let error = names(Some(missing)).unwrap_err();
            assert!(error.contains("a:1 (RoCE v2, no link"), "{error}");
        }
        assert!(chosen(&known[..1], None).is_err());
    }

    #[test]
    fn acknowledgement_timeout_follows_the_peer_timeout() {
        let timeout = |seconds| {
            let timeout = Duration::from_secs_f64(seconds);
            service(160, timeout).timeout
        };
        assert_eq!([timeout(0.1), timeout(3.0), timeout(100.0)], [14, 17, 18]);
    }
}
