//! The model of a machine: hosts, links, switches and stragglers.

use serde::{Deserialize, Serialize};
use weft_algorithms::{Reach, Topology};
use weft_schedule::Rank;

use crate::SimulationError;

/// A machine: hosts full of ranks, a network between them, and how fast everything is.
///
/// Ranks are numbered host by host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The number of ranks of each host.
    pub hosts: Vec<u32>,
    /// The figures of every host.
    pub host: Host,
    /// The network that connects the hosts.
    pub network: NetworkLink,
    /// Switches that units of hosts hang on, innermost (racks) first. A level that is not listed
    /// blocks nothing.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// The number of cores that all hosts share, where they are emulated on one machine; a host's
    /// own number then means nothing.
    #[serde(default)]
    pub shared_cores: Option<u32>,
    /// How different the ranks are.
    #[serde(default)]
    pub variation: Variation,
    /// Ranks that are slow or late.
    #[serde(default)]
    pub stragglers: Vec<Straggler>,
}

/// The figures of a host. Its ranks share cores and memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// The number of cores. Every rank has one thread that drives its progress.
    pub cores: u32,
    /// Seconds per byte that a copy or a reduction reads.
    pub read_s_per_byte: f64,
    /// Seconds per byte that a copy or a reduction writes.
    pub write_s_per_byte: f64,
    /// Additional seconds per byte that is in another rank's memory or was written by another rank
    /// of the host.
    pub peer_s_per_byte: f64,
    /// The rate at which all ranks together read and write, in bytes per second. `None`: unlimited.
    #[serde(default)]
    pub memory_bytes_per_s: Option<f64>,
    /// Seconds from a signal to a peer on the host until the peer has seen it.
    pub signal_s: f64,
    /// Seconds that the executor takes for an instruction, without its bytes.
    pub step_s: f64,
    /// How ranks of the host that do not map each other's memory are connected. `None`: they map
    /// it.
    #[serde(default)]
    pub loopback: Option<NetworkLink>,
}

/// The parameters of messages, in the terms of LogGP. Both directions carry the full rate at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkLink {
    /// Seconds from when a message's last byte is sent until the receiver can see it.
    pub latency_s: f64,
    /// Seconds of the sender's thread per message.
    pub send_overhead_s: f64,
    /// Seconds of the receiver's thread per message.
    pub receive_overhead_s: f64,
    /// Seconds of the sender's thread per byte.
    #[serde(default)]
    pub send_s_per_byte: f64,
    /// Seconds of the receiver's thread per byte.
    #[serde(default)]
    pub receive_s_per_byte: f64,
    /// The rate at which a host sends, and at which it receives, in bytes per second, all its ranks
    /// together.
    pub bytes_per_s: f64,
    /// The burst that a host's line lets pass after it has been idle, in bytes, before it keeps to
    /// its rate: see `token_buckets`. The closed form ignores it.
    #[serde(default)]
    pub burst_bytes: f64,
    /// The highest rate of one connection, in bytes per second.
    #[serde(default)]
    pub connection_bytes_per_s: Option<f64>,
    /// The bytes that a connection takes from its sender before they have left.
    #[serde(default = "default_buffer_bytes")]
    pub buffer_bytes: u64,
}

/// A level of switches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Switch {
    /// The number of hosts below one of them; the last one may have fewer.
    pub hosts: u32,
    /// The rate at which the hosts below can send together, divided by the switch's upward rate. 1
    /// or less: no contention.
    pub oversubscription: f64,
    /// Seconds that a message takes longer that passes from below one of them to below another.
    #[serde(default)]
    pub latency_s: f64,
}

/// Random differences in speed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Variation {
    /// The greatest share by which a rank's thread is slower than the machine's figures: uniformly
    /// distributed, constant for a rank.
    pub slowdown_max: f64,
    /// The seed of the draw.
    pub seed: u64,
}

/// A rank that is slow or late.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Straggler {
    /// Which one.
    pub rank: Rank,
    /// Its thread takes this many times as long for everything.
    pub slowdown: f64,
    /// Seconds after the others at which it begins.
    #[serde(default)]
    pub late_s: f64,
}

fn default_buffer_bytes() -> u64 {
    1 << 20
}

impl Default for Host {
    /// One core of a server for every rank: 10 GB/s per thread.
    fn default() -> Self {
        Host {
            cores: u32::MAX,
            read_s_per_byte: 0.4e-10,
            write_s_per_byte: 0.6e-10,
            peer_s_per_byte: 0.5e-10,
            memory_bytes_per_s: None,
            signal_s: 0.4e-6,
            step_s: 0.1e-6,
            loopback: None,
        }
    }
}

impl Default for NetworkLink {
    /// Ethernet of 100 Gbit/s with a latency of 5 us.
    fn default() -> Self {
        NetworkLink {
            latency_s: 5e-6,
            send_overhead_s: 1e-6,
            receive_overhead_s: 1e-6,
            send_s_per_byte: 0.0,
            receive_s_per_byte: 0.0,
            bytes_per_s: 12.5e9,
            burst_bytes: 0.0,
            connection_bytes_per_s: None,
            buffer_bytes: default_buffer_bytes(),
        }
    }
}

impl Machine {
    /// A machine of `ranks` ranks spread over `hosts` hosts as evenly as possible, the first hosts
    /// having one more if the number is not divisible.
    ///
    /// # Errors
    /// There are no ranks, or not as many ranks as hosts.
    pub fn even(
        ranks: u32,
        hosts: u32,
        host: Host,
        network: NetworkLink,
    ) -> Result<Machine, SimulationError> {
        if hosts == 0 || ranks < hosts {
            return Err(SimulationError::Machine(format!(
                "{ranks} ranks on {hosts} hosts: every host needs a rank"
            )));
        }
        let of = |index: u32| ranks / hosts + u32::from(index < ranks % hosts);
        Ok(Machine {
            hosts: (0..hosts).map(of).collect(),
            host,
            network,
            switches: Vec::new(),
            shared_cores: None,
            variation: Variation::default(),
            stragglers: Vec::new(),
        })
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.hosts.iter().sum()
    }

    /// The host of each rank.
    pub fn host_of_rank(&self) -> Vec<u32> {
        let hosts = self.hosts.iter().enumerate();
        hosts
            .flat_map(|(host, ranks)| (0..*ranks).map(move |_| host as u32))
            .collect()
    }

    /// Which ranks share a host.
    pub fn topology(&self) -> Topology {
        Topology::hosts(&self.host_of_rank())
    }

    /// The reach of ranks into each other's memory.
    pub fn mapped(&self) -> Reach {
        let lone = self.hosts.iter().all(|ranks| *ranks == 1);
        match self.host.loopback {
            Some(_) if !lone => Reach::None,
            _ => Reach::across(self.hosts.len()),
        }
    }

    /// Checks that all figures make sense.
    ///
    /// # Errors
    /// One does not; the message names it.
    pub fn check(&self) -> Result<(), SimulationError> {
        let wrong = |what: String| Err(SimulationError::Machine(what));
        if self.hosts.is_empty() || self.hosts.contains(&0) {
            return wrong("there must be hosts, each with at least 1 rank".to_owned());
        }
        if self
            .hosts
            .iter()
            .map(|ranks| u64::from(*ranks))
            .sum::<u64>()
            > u64::from(u32::MAX / 2)
        {
            return wrong(format!("at most {} ranks are possible", u32::MAX / 2));
        }
        if self.shared_cores == Some(0) {
            return wrong("shared_cores is 0; it must be at least 1".to_owned());
        }
        self.host.check()?;
        self.network.check("network")?;
        for switch in &self.switches {
            if switch.hosts == 0 {
                return wrong("switches.hosts is 0; it must be at least 1".to_owned());
            }
            positive("switches.oversubscription", switch.oversubscription)?;
            not_negative("switches.latency_s", switch.latency_s)?;
        }
        if let Some(pair) = (self.switches.windows(2)).find(|p| p[1].hosts % p[0].hosts != 0) {
            return wrong(format!(
                "a switch above {} hosts cannot be above switches of {} hosts each: not a multiple",
                pair[1].hosts, pair[0].hosts
            ));
        }
        not_negative("variation.slowdown_max", self.variation.slowdown_max)?;
        for straggler in &self.stragglers {
            if straggler.rank >= self.ranks() {
                return wrong(format!(
                    "straggler {}: there are {} ranks",
                    straggler.rank,
                    self.ranks()
                ));
            }
            positive("stragglers.slowdown", straggler.slowdown)?;
            not_negative("stragglers.late_s", straggler.late_s)?;
        }
        Ok(())
    }

    /// Whether all ranks have the same speed.
    pub(crate) fn is_uniform(&self) -> bool {
        self.stragglers.is_empty() && self.variation.slowdown_max == 0.0
    }

    /// How many times as long a rank's thread takes for everything.
    pub(crate) fn slowdown(&self, rank: Rank) -> f64 {
        let chance = fraction(self.variation.seed ^ u64::from(rank).wrapping_mul(0x9e37_79b9));
        let drawn = 1.0 + self.variation.slowdown_max * chance;
        let own = self.stragglers.iter().filter(|s| s.rank == rank);
        own.fold(drawn, |slowdown, straggler| slowdown * straggler.slowdown)
    }

    /// That of the slowest rank, or more.
    pub(crate) fn slowdown_max(&self) -> f64 {
        let stragglers = self.stragglers.iter().map(|straggler| straggler.slowdown);
        (1.0 + self.variation.slowdown_max) * stragglers.fold(1.0, f64::max)
    }

    /// When a rank begins, in seconds.
    pub(crate) fn late_s(&self, rank: Rank) -> f64 {
        let own = self.stragglers.iter().filter(|s| s.rank == rank);
        own.map(|straggler| straggler.late_s).fold(0.0, f64::max)
    }
}

impl Host {
    fn check(&self) -> Result<(), SimulationError> {
        if self.cores == 0 {
            return Err(SimulationError::Machine(
                "host.cores is 0; it must be at least 1".to_owned(),
            ));
        }
        not_negative("host.read_s_per_byte", self.read_s_per_byte)?;
        not_negative("host.write_s_per_byte", self.write_s_per_byte)?;
        not_negative("host.peer_s_per_byte", self.peer_s_per_byte)?;
        not_negative("host.signal_s", self.signal_s)?;
        not_negative("host.step_s", self.step_s)?;
        if let Some(rate) = self.memory_bytes_per_s {
            positive("host.memory_bytes_per_s", rate)?;
        }
        self.loopback
            .as_ref()
            .map_or(Ok(()), |link| link.check("host.loopback"))
    }
}

impl NetworkLink {
    fn check(&self, name: &str) -> Result<(), SimulationError> {
        let field = |field: &str| format!("{name}.{field}");
        not_negative(&field("latency_s"), self.latency_s)?;
        not_negative(&field("send_overhead_s"), self.send_overhead_s)?;
        not_negative(&field("receive_overhead_s"), self.receive_overhead_s)?;
        not_negative(&field("send_s_per_byte"), self.send_s_per_byte)?;
        not_negative(&field("receive_s_per_byte"), self.receive_s_per_byte)?;
        positive(&field("bytes_per_s"), self.bytes_per_s)?;
        not_negative(&field("burst_bytes"), self.burst_bytes)?;
        match self.connection_bytes_per_s {
            Some(rate) => positive(&field("connection_bytes_per_s"), rate),
            None => Ok(()),
        }
    }

    /// The highest rate of one flow, in bytes per second.
    pub(crate) fn flow_bytes_per_s(&self) -> f64 {
        self.connection_bytes_per_s.unwrap_or(f64::INFINITY)
    }
}

fn not_negative(name: &str, value: f64) -> Result<(), SimulationError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(SimulationError::Machine(format!(
        "{name} is {value}; it must be 0 or more"
    )))
}

fn positive(name: &str, value: f64) -> Result<(), SimulationError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(SimulationError::Machine(format!(
        "{name} is {value}; it must be more than 0"
    )))
}

/// A number in 0..1 that looks drawn by chance (splitmix64).
fn fraction(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
