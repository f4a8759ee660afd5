//! Selection of the network to listen on.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_transport::fork::{AboveStandardStreams, Descriptor};
use weft_transport::{LinkError, checked, failed, is_own_limit, last_failure};

use crate::lookup::{Lookup, without_brackets};

/// The choice of the network to listen on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Interface {
    /// The interface of the default route, or the loopback interface if there is none.
    #[default]
    Default,
    /// The interface of the route to this target, given as `host:port`.
    Towards(String),
    /// A named one: an interface's name, an IP address of this host, or a network such as
    /// `10.1.0.0/16`. Or several of them separated by commas, to be used together; or `all` that
    /// are not virtual.
    Named(String),
}

/// The most networks that can be used together.
const NETWORKS_MAX: usize = 4;
/// The most addresses that are published, of all networks together.
const ADDRESSES: usize = 8;

/// Sufficient for a name that was resolved before, when this rank reached the rendezvous.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
static NEVER: AtomicBool = AtomicBool::new(false);

/// An address that belongs to no host (RFC 5737): the route to it is the default route.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

impl Interface {
    /// The addresses of this host to listen on and to publish: by network, the best first.
    pub(crate) fn addresses(&self) -> Result<Vec<(u8, IpAddr)>, LinkError> {
        let networks = match self {
            Interface::Default => vec![vec![
                source_towards(NOWHERE).map_or(Ipv4Addr::LOCALHOST.into(), |source| source.ip()),
            ]],
            Interface::Towards(target) => vec![towards(target)?],
            Interface::Named(name) if name == "all" => all()?,
            Interface::Named(names) => {
                let names: Vec<&str> = names.split(',').map(str::trim).collect();
                if names.len() > NETWORKS_MAX {
                    return Err(LinkError::Setup(format!(
                        "{} interfaces were given, but at most {NETWORKS_MAX} can be used together",
                        names.len()
                    )));
                }
                let each = names
                    .iter()
                    .map(|name| named(name, ADDRESSES / names.len()));
                each.collect::<Result<_, _>>()?
            }
        };
        let numbered = (0..).zip(networks);
        let numbered =
            numbered.flat_map(|(number, ips)| ips.into_iter().map(move |ip| (number, ip)));
        Ok(numbered.collect())
    }
}

/// The source address of the route to the target. If the route stays on this host (the target is
/// here), peers elsewhere need the address of the default route too, unless the target's name means
/// the own host on every host (such as localhost): then all ranks are on this one.
fn towards(target: &str) -> Result<Vec<IpAddr>, LinkError> {
    let deadline = Instant::now() + LOOKUP_TIMEOUT;
    let found = Lookup::new(target).and_then(|mut lookup| lookup.wait(deadline, &NEVER));
    let targets = found.map_err(|error| {
        unless_own_limit(error, |error| {
            format!(
                "this host cannot resolve the rendezvous address {target} ({error}): set MASTER_ADDR to rank 0's \
                 address, or to a name that this host resolves"
            )
        })
    })?;
    let mut first = Err(io::Error::other("it has no address"));
    for target in targets {
        first = source_towards(target);
        if first.is_ok() {
            break;
        }
    }
    let first = first.map_err(|error| {
        unless_own_limit(error, |error| {
            format!("there is no route to the rendezvous {target:?} ({error})")
        })
    })?;
    if let Some(scope) = scope_of(first) {
        return beside_link_local(first, scope);
    }
    let first = first.ip();
    let mut addresses = vec![first];
    if first.is_loopback()
        && !means_loopback(target)
        && let Ok(outward) = source_towards(NOWHERE)
    {
        addresses.push(outward.ip());
    }
    Ok(addresses)
}

/// A failure of the setup, unless a limit of this process is the reason: it keeps its number, by
/// which the error says what to raise.
fn unless_own_limit(error: io::Error, text: impl FnOnce(&io::Error) -> String) -> LinkError {
    match is_own_limit(&error) {
        true => LinkError::Io(error),
        false => LinkError::Setup(text(&error)),
    }
}

/// The interface of a link-local IPv6 address.
fn scope_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    }
}

/// The other addresses of the interface with a link-local one, whose scope is meaningless to peers.
fn beside_link_local(address: SocketAddr, scope: u32) -> Result<Vec<IpAddr>, LinkError> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer is as long as names of interfaces can be.
    let known = unsafe { libc::if_indextoname(scope, name.as_mut_ptr()) };
    if known.is_null() {
        return Err(last_failure("if_indextoname").into());
    }
    // SAFETY: the call succeeded, so it wrote a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
    named(&name, ADDRESSES).map_err(|_| {
        LinkError::Setup(format!(
            "the route to the rendezvous leads from {}%{name}, and that interface has only this \
             link-local address, which other hosts cannot use: give it another, or choose an \
             interface with WEFT_INTERFACE",
            address.ip()
        ))
    })
}

/// Whether the host of a `host:port` means the own host on every host.
fn means_loopback(target: &str) -> bool {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    let host = without_brackets(host);
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// Asks the kernel for the route by connecting a datagram socket, which sends nothing.
fn source_towards(target: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = Descriptor::make(|| UdpSocket::bind((any, 0)));
    let socket = socket.map_err(|error| failed("socket or bind", error))?;
    (socket.connect(target)).map_err(|error| failed("connect", error))?;
    let address = socket.local_addr();
    address.map_err(|error| failed("getsockname", error))
}

/// The addresses of every interface that is not virtual.
fn all() -> Result<Vec<Vec<IpAddr>>, LinkError> {
    let mut names: Vec<String> = interfaces()?.into_iter().map(|(name, _)| name).collect();
    names.retain(|name| !is_virtual(name));
    names.sort_unstable();
    names.dedup();
    names.truncate(NETWORKS_MAX);
    match names.is_empty() {
        true => Interface::Default
            .addresses()
            .map(|found| vec![found.into_iter().map(|(_, ip)| ip).collect()]),
        false => (names.iter())
            .map(|name| named(name, ADDRESSES / names.len()))
            .collect(),
    }
}

/// The names of loopback interfaces, bridges, containers and tunnels begin like this.
fn is_virtual(name: &str) -> bool {
    const BEGINNINGS: [&str; 8] = [
        "lo", "docker", "br-", "virbr", "cni", "flannel", "tun", "tap",
    ];
    BEGINNINGS
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// At most `most` addresses of an interface, address or network.
fn named(name: &str, most: usize) -> Result<Vec<IpAddr>, LinkError> {
    let all = interfaces()?;
    let wanted = Wanted::parse(name);
    let mut found: Vec<IpAddr> = all
        .iter()
        .filter(|(interface, ip)| wanted.matches(interface, *ip))
        .map(|(_, ip)| *ip)
        .collect();
    // IPv4 first: most peers can reach it.
    found.sort_by_key(IpAddr::is_ipv6);
    found.truncate(most);
    if found.is_empty() {
        let known: Vec<String> = all
            .iter()
            .map(|(name, ip)| format!("{name} ({ip})"))
            .collect();
        return Err(LinkError::Setup(format!(
            "no interface of this host matches {name:?}; it has {}",
            known.join(", ")
        )));
    }
    Ok(found)
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Ip(IpAddr),
    Network(IpAddr, u8),
    Name(&'a str),
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Self {
        if let Ok(ip) = text.parse() {
            return Wanted::Ip(ip);
        }
        let network = text.split_once('/').and_then(|(ip, bits)| {
            let (ip, bits): (IpAddr, u8) = (ip.parse().ok()?, bits.parse().ok()?);
            (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
        });
        match network {
            Some((ip, bits)) => Wanted::Network(ip, bits),
            None => Wanted::Name(text),
        }
    }

    fn matches(&self, interface: &str, ip: IpAddr) -> bool {
        match self {
            Wanted::Ip(wanted) => ip == *wanted,
            Wanted::Network(network, bits) => in_network(ip, *network, *bits),
            Wanted::Name(name) => interface == *name,
        }
    }
}

fn in_network(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    let top = |value: u128, width: u32| value.checked_shr(width - u32::from(bits)).unwrap_or(0);
    match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let [a, b] = [a, b].map(|ip| top(u32::from(ip).into(), 32));
            a == b
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let [a, b] = [a, b].map(|ip| top(ip.into(), 128));
            a == b
        }
        _ => false,
    }
}

/// The names and addresses of the interfaces that are up. Link-local IPv6 addresses are left out:
/// they need a scope that is valid on one host only.
pub(crate) fn interfaces() -> io::Result<Vec<(String, IpAddr)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // The C library asks the kernel over a socket.
    let _above = AboveStandardStreams::new()?;
    // SAFETY: `list` is writable and outlives the call.
    checked("getifaddrs", unsafe { libc::getifaddrs(&mut list) })?;
    let mut found = Vec::new();
    let mut next = NonNull::new(list);
    while let Some(entry) = next {
        // SAFETY: the kernel's list is valid until it is freed below.
        let entry = unsafe { entry.as_ref() };
        if entry.ifa_flags & libc::IFF_UP as u32 != 0
            // SAFETY: the list is valid until it is freed below.
            && let Some(ip) = unsafe { ip_of(entry.ifa_addr) }
        {
            // SAFETY: every entry has a NUL-terminated name, valid until the list is freed.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), ip));
        }
        next = NonNull::new(entry.ifa_next);
    }
    // SAFETY: the list is from `getifaddrs`, and nothing borrows from it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// The address is null or that of an entry of `getifaddrs`, which is not freed yet.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or valid by the caller's promise.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these; the list aligns its addresses for
            // any family.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(interface: Interface, expected: &[&str]) {
        let found = interface.addresses().unwrap();
        let ips = expected.iter().map(|ip| ip.parse().unwrap());
        assert_eq!(found, (0..).zip(ips).collect::<Vec<_>>());
    }

    #[test]
    fn loopback_by_its_address_and_network() {
        check(Interface::Named("127.0.0.1".into()), &["127.0.0.1"]);
        check(Interface::Named("127.0.0.0/8".into()), &["127.0.0.1"]);
    }

    #[test]
    fn job_of_one_host_listens_on_loopback() {
        check(Interface::Towards("127.0.0.1:1".into()), &["127.0.0.1"]);
    }

    #[test]
    fn names_of_the_own_host_are_recognized() {
        for (target, expected) in [
            ("127.0.0.1:1", true),
            ("127.0.1.1:1", true),
            ("[::1]:1", true),
            ("::1:1", true),
            ("localhost:29500", true),
            ("10.0.0.1:1", false),
            ("node-1:29500", false),
        ] {
            assert_eq!(means_loopback(target), expected, "{target}");
        }
    }

    #[test]
    fn several_networks_are_numbered() {
        let twice = Interface::Named("127.0.0.1, 127.0.0.0/8".into());
        check(twice, &["127.0.0.1", "127.0.0.1"]);
    }

    #[test]
    fn too_many_networks_are_refused() {
        let error = Interface::Named("a,b,c,d,e".into())
            .addresses()
            .unwrap_err();
        assert!(error.to_string().contains("5 interfaces"), "{error}");
    }

    #[test]
    fn unknown_interface_error_lists_the_known_ones() {
        let error = Interface::Named("nosuch0".into()).addresses().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }

    #[test]
    fn networks() {
        let check = |ip: &str, network: &str, expected: bool| {
            let wanted = Wanted::parse(network);
            assert_eq!(
                wanted.matches("eth0", ip.parse().unwrap()),
                expected,
                "{ip} {network}"
            );
        };
        check("10.1.2.3", "10.1.0.0/16", true);
        check("10.2.2.3", "10.1.0.0/16", false);
        check("10.2.2.3", "0.0.0.0/0", true);
        check("fd00::1", "fd00::/8", true);
        check("fd00::1", "::/0", true);
        check("10.1.2.3", "::/0", false);
        check("10.1.2.3", "eth0", true);
        check("10.1.2.3", "10.1.0.0/33", false);
    }
}
