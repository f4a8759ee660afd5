//! The closed form: the time of a job without contention beyond that of the algorithm itself.
//!
//! [Note: The formula] An algorithm's phases state the work of the busiest rank per round. For one
//! tile, with m the bytes of a message, x the bytes that leave a host per round and k, j the
//! messages sent and received, a round takes
//!
//! ```text
//! thread = k (o_s + m O_s) + j (o_r + m O_r) + reduced γ + read π
//! wire   = max(x / B, m / C)
//! round  = thread + max(wire, copied β) + L
//! ```
//!
//! with the overheads o and O per message and byte, the latency L, the rate B of a host and C of a
//! connection, and γ, β and π per byte that is combined, copied, and read from a peer. Inside a
//! host a message is a copy, and L is the time of a signal; where only some messages leave their
//! host, thread and L are weighted accordingly. The line is not: x counts the crossing bytes of all
//! ranks of the busiest host. In a wire format m and x shrink, and sent data are encoded first.
//! With T tiles of which S are in flight, the busiest of thread and wire sets the pace, or the
//! chain of rounds if S tiles do not fill it:
//!
//! ```text
//! seconds = Σ round + (T - 1) max(Σ (thread + copied β), Σ wire, (Σ round + credit) / S)
//! ```

use weft_algorithms::{Phase, Symmetry};
use weft_schedule::Collective;

use crate::{Job, Machine, NetworkLink, ProgramSource, SimulationError};

/// The time of one tile.
#[derive(Clone, Copy, Default)]
struct TileTime {
    /// From its start to its end.
    chain: f64,
    /// The part of the busiest thread.
    thread: f64,
    /// The part of the busiest host's link.
    wire: f64,
    /// The part of the thread's time that the wire's time hides.
    hidden: f64,
    /// How often the latency between hosts is in it.
    crossings: f64,
}

/// The seconds that a job takes, by a formula: immediately, for any number of ranks, without
/// contention except that of the algorithm itself. All ranks count as slow and late as the slowest
/// and latest.
///
/// # Errors
/// The machine or the job is invalid, or the source is no algorithm of weft's: others have no
/// closed form.
pub fn closed_form(machine: &Machine, job: &Job<'_>) -> Result<f64, SimulationError> {
    let topology = job.checked(machine)?;
    let ProgramSource::Selection(selection) = job.source else {
        return Err(SimulationError::Job(
            "explicit schedules have no closed form; simulate them event by event".to_owned(),
        ));
    };
    let request = job.request(0, &topology);
    let cost = selection.cost(&request);
    let tiles = job.tiles(&job.schedule(selection, &request))?;
    let symmetric = selection.symmetry(&request) != Symmetry::None;
    let figures = TileFigures {
        senders: if symmetric {
            f64::from(machine.hosts.iter().copied().max().unwrap_or(1))
        } else {
            1.0
        },
        width: job.width(job.wire.encoding()),
        in_place: job.collective != Collective::ReduceScatter,
        signals_near: cost.phases.iter().any(|phase| phase.read > 0.0),
        ..TileFigures::new(machine, job.bytes as f64 / tiles as f64)
    };
    let (mut tile, mut last) = (TileTime::default(), TileTime::default());
    for phase in &cost.phases {
        let round = figures.round(phase);
        let rounds = f64::from(phase.rounds);
        tile.chain += rounds * round.chain;
        tile.thread += rounds * round.thread;
        tile.wire += rounds * round.wire;
        tile.crossings += rounds * round.crossings;
        last = round;
    }
    // As few of the messages cross, each that does takes the whole latency.
    if tile.crossings > 0.0 {
        tile.chain += (1.0 - tile.crossings).max(0.0) * figures.latency_between();
    }
    // No later work could hide the last copy.
    tile.chain += last.hidden;
    let paced = (tile.chain + figures.credit()) / f64::from(job.tiles_in_flight);
    let pace = tile.thread.max(tile.wire).max(paced);
    Ok(figures.late_s + tile.chain + (tiles - 1) as f64 * pace)
}

/// A machine's figures for messages of one tile.
struct TileFigures<'a> {
    machine: &'a Machine,
    /// Bytes of the message in one tile.
    bytes: f64,
    /// The size of elements on the wire, as a share of their size in the message.
    width: f64,
    /// The number of ranks of a host that send at the same time: all where ranks are symmetric,
    /// else perhaps one.
    senders: f64,
    /// Whether signals without bytes stay within their host: they do around reads from mapped
    /// memory.
    signals_near: bool,
    /// Whether results stand where a contribution stood.
    in_place: bool,
    slowdown: f64,
    late_s: f64,
    /// Seconds that a message takes longer for all the switches.
    switches_s: f64,
    /// The rate at which a host can send if everything passes the tightest switch.
    bytes_per_s: f64,
}

impl<'a> TileFigures<'a> {
    fn new(machine: &'a Machine, bytes: f64) -> Self {
        let late = machine.stragglers.iter().map(|straggler| straggler.late_s);
        let hosts = machine.hosts.len() as u32;
        let between = machine.switches.iter().filter(|s| s.hosts < hosts);
        let tightest = (between.clone()).map(|switch| switch.oversubscription);
        TileFigures {
            machine,
            bytes,
            width: 1.0,
            senders: 1.0,
            signals_near: false,
            in_place: true,
            slowdown: machine.slowdown_max(),
            late_s: late.fold(0.0, f64::max),
            switches_s: between.map(|switch| switch.latency_s).sum(),
            bytes_per_s: machine.network.bytes_per_s / tightest.fold(1.0, f64::max),
        }
    }

    /// The link that a phase's messages go over. `None`: memory.
    fn link(&self, crosses: bool) -> Option<&'a NetworkLink> {
        if crosses {
            Some(&self.machine.network)
        } else {
            self.machine.host.loopback.as_ref()
        }
    }

    /// Between a message's last byte on a host's line and its arrival.
    fn latency_between(&self) -> f64 {
        self.machine.network.latency_s + self.switches_s
    }

    /// From the end of a tile until the peer may use its slot again.
    fn credit(&self) -> f64 {
        match self.link(self.machine.hosts.len() > 1) {
            Some(link) => {
                link.latency_s + self.slowdown * (link.send_overhead_s + link.receive_overhead_s)
            }
            None => self.machine.host.signal_s,
        }
    }

    /// The time of one round of a phase.
    fn round(&self, phase: &Phase) -> TileTime {
        let host = &self.machine.host;
        // Elements reduced in place are in cache; otherwise there are, as a rule, two sources per
        // destination.
        let written = if self.in_place { 0.0 } else { 0.5 };
        let combine = host.read_s_per_byte + written * host.write_s_per_byte;
        let copy = host.read_s_per_byte + host.write_s_per_byte;
        // Data read from peers and not combined are copied.
        let copied = phase.copied + (phase.read - phase.reduced).max(0.0);
        let copying = self.slowdown * copied * self.bytes * copy;
        // Counted as if senders encoded everything; some of it arrived encoded.
        let encodes = if self.width == 1.0 {
            0.0
        } else {
            phase.sent() * self.bytes
        };
        let own = phase.reduced * self.bytes * combine
            + encodes * (host.read_s_per_byte + self.width * host.write_s_per_byte)
            + phase.read * self.bytes * host.peer_s_per_byte
            + host.step_s;
        let far = self.far(phase);
        let (near, across) = (self.travel(phase, false), self.travel(phase, true));
        let mixed = |near: f64, across: f64| (1.0 - far) * near + far * across;
        let thread = self.slowdown * (own + mixed(near.thread, across.thread));
        // The data that arrived last are copied while the next are on the wire. Crossing bytes are
        // counted for all ranks of a host together, so its line takes all of that time.
        let crossing = if far > 0.0 { across.wire } else { 0.0 };
        let wire = crossing.max((1.0 - far) * near.wire);
        // Of several messages sent together the last to arrive counts; of consecutive ones each
        // does.
        let crossings = if far > 0.0 && f64::from(phase.messages) > 1.0 {
            1.0
        } else {
            far
        };
        let latency = (1.0 - crossings) * near.chain + crossings * across.chain;
        TileTime {
            chain: thread + wire.max(copying) + latency,
            thread: thread + copying,
            wire,
            hidden: wire.min(copying),
            crossings,
        }
    }

    /// The share of messages that leave their host.
    fn far(&self, phase: &Phase) -> f64 {
        if self.machine.hosts.len() == 1 {
            return 0.0;
        }
        let all = self.senders * phase.sent().max(phase.received);
        if all == 0.0 {
            let near = self.signals_near || phase.inside;
            return if near { 0.0 } else { 1.0 };
        }
        (phase.crossing / all).min(1.0)
    }

    /// The time of a round's messages if all leave their host, or if none does; its chain is
    /// latency only.
    fn travel(&self, phase: &Phase, across: bool) -> TileTime {
        let host = &self.machine.host;
        let bytes = self.bytes * self.width;
        let (sent, received) = (phase.sent() * bytes, phase.received * bytes);
        let Some(link) = self.link(across) else {
            let write = host.read_s_per_byte + host.write_s_per_byte + host.peer_s_per_byte;
            return TileTime {
                chain: host.signal_s,
                // Each is a copy and a signal.
                thread: 2.0 * f64::from(phase.messages) * host.step_s
                    + sent * write
                    + received * host.peer_s_per_byte,
                ..TileTime::default()
            };
        };
        // A signal without bytes is a message too.
        let messages = f64::from(phase.messages);
        let (sends, receives) = if phase.share > 0.0 {
            (messages, phase.received / phase.share)
        } else {
            (messages.max(1.0), messages.max(1.0))
        };
        let (loaded, rate, switches) = if across {
            (phase.crossing * bytes, self.bytes_per_s, self.switches_s)
        } else {
            (sent.max(received), link.bytes_per_s, 0.0)
        };
        let flow = phase.share * bytes / link.flow_bytes_per_s();
        TileTime {
            chain: link.latency_s + switches,
            thread: sends * link.send_overhead_s
                + sent * link.send_s_per_byte
                + receives * link.receive_overhead_s
                + received * link.receive_s_per_byte,
            wire: (loaded / rate).max(flow),
            ..TileTime::default()
        }
    }
}
