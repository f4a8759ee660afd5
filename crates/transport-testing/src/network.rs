//! A private network whose line can be cut, for tests of hosts that vanish. It needs the right to
//! make network namespaces.

use std::process::Command;

/// Moves this thread, and the threads that it starts, to a new network. Prints a message and
/// returns false where that is not permitted.
pub fn enter_network() -> bool {
    // SAFETY: plain system call that concerns this thread only.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !entered {
        eprintln!("skipped: this process may not make a network namespace");
    }
    entered && set_loopback("up")
}

/// Sets the network's only interface `up` or `down`. Prints a message and returns false where that
/// does not work.
pub fn set_loopback(state: &str) -> bool {
    let status = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    let set = status.is_ok_and(|status| status.success());
    if !set {
        eprintln!("skipped: `ip link set lo {state}` failed");
    }
    set
}

/// Networks beside each other on this thread's own network (see [`enter_network`]), any of which
/// can fall silent: what is sent over it vanishes, without an error.
pub struct Networks;

impl Networks {
    /// Adds two. Prints a message and returns None where that does not work.
    pub fn add() -> Option<Networks> {
        let steps = [
            "ip address add 10.9.0.1/24 dev lo",
            "ip address add 10.9.1.1/24 dev lo",
            "ip link add hole type veth peer name bottom",
            "tc qdisc add dev lo ingress",
        ];
        let missing = steps.into_iter().find(|step| !run(step));
        if let Some(step) = missing {
            eprintln!("skipped: `{step}` failed");
        }
        missing.is_none().then_some(Networks)
    }

    /// The address of this host on one of them.
    pub fn address(&self, number: usize) -> String {
        format!("10.9.{number}.1")
    }

    /// Takes one down.
    pub fn silence(&self, number: usize) {
        let (place, address) = (place(number), self.address(number));
        let from_there = format!("u32 match ip src {address}/32");
        // Nothing is at the other end of the hole.
        let vanishes = "action mirred egress redirect dev hole";
        assert!(run(&format!(
            "tc filter add {place} {from_there} {vanishes}"
        )));
    }

    /// Brings it back.
    pub fn restore(&self, number: usize) {
        assert!(run(&format!("tc filter del {}", place(number))));
    }

    /// Takes all TCP connections down that exist now, and no new ones, as a translator of addresses
    /// does that has forgotten them.
    pub fn forget_connections(&self) {
        for (own, peer) in established() {
            let ports = format!(
                "match ip sport {} 0xffff match ip dport {} 0xffff",
                own.port, peer.port
            );
            let vanishes = "action mirred egress redirect dev hole";
            assert!(run(&format!(
                "tc filter add {FORGOTTEN} u32 match ip protocol 6 0xff {ports} {vanishes}"
            )));
        }
    }

    /// Lets packets of forgotten connections pass again.
    pub fn remember_connections(&self) {
        assert!(run(&format!("tc filter del {FORGOTTEN}")));
    }

    /// The number of TCP connections over a network.
    pub fn connections(&self, number: usize) -> usize {
        let address = self.address(number);
        let over = |(own, peer): &(End, End)| own.address == address && peer.address == address;
        // Both ends are here.
        established().iter().filter(|ends| over(ends)).count() / 2
    }
}

/// An end of a TCP connection.
struct End {
    address: String,
    port: u16,
}

/// The ends of all established connections over IPv4, by the kernel's table.
fn established() -> Vec<(End, End)> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("the kernel's table");
    let ends = table.lines().skip(1).filter_map(|line| {
        let [_, own, peer, state, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        (state == ESTABLISHED).then_some((end_of(own)?, end_of(peer)?))
    });
    ends.collect()
}

fn end_of(text: &str) -> Option<End> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    Some(End {
        address: std::net::Ipv4Addr::from(address).to_string(),
        port: u16::from_str_radix(port, 16).ok()?,
    })
}

/// The place of the filters that take forgotten connections down.
const FORGOTTEN: &str = "dev lo ingress protocol ip prio 9";

/// The place of the filter that takes one of the networks down.
fn place(number: usize) -> String {
    format!("dev lo ingress protocol ip prio {}", number + 1)
}

fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap_or_default())
        .args(words)
        .status();
    status.is_ok_and(|status| status.success())
}
