//! The event-driven simulation: the executor's actions on every thread, in the executor's order.

use weft_schedule::Rank;

use crate::event_queue::{Event, EventQueue};
use crate::network::{Implied, SimulatedNetwork};
use crate::orbits::Orbits;
use crate::preparation::Preparation;
use crate::program::SimulatedProgram;
use crate::share::Ending;
use crate::thread::{MessageId, PairId, RankPair, SimulatedMessage, Thread};
use crate::trace::TraceSpan;
use crate::{Job, Machine, SimulationError};

/// Whether ranks that do the same are simulated once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SimulationSymmetry {
    /// Where the algorithm and the machine allow it; and links are left out that others imply.
    #[default]
    Auto,
    /// All ranks are simulated, with all links.
    Off,
}

/// How to simulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimulationOptions {
    /// Whether ranks that do the same are simulated once.
    pub symmetry: SimulationSymmetry,
    /// Whether to record events, of the simulated ranks only.
    pub trace: bool,
    /// How much may be simulated at most, in steps of all ranks that are simulated, tile by tile.
    /// `None`: as much as there is.
    pub work_max: Option<u64>,
}

/// How it was simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every rank was simulated.
    Full,
    /// This many ranks were simulated, which represent all.
    Representatives(u32),
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulationResult {
    /// When the last rank was done, in seconds.
    pub seconds: f64,
    /// When each rank was done, in seconds.
    pub finished: Vec<f64>,
    /// How it was simulated.
    pub mode: Mode,
    /// The number of tiles.
    pub tiles: u64,
    /// How much work was expected: see [`SimulationOptions::work_max`].
    pub work: u64,
    /// The number of occurrences that were simulated.
    pub events: u64,
    /// The events, if a trace was requested.
    pub trace: Vec<TraceSpan>,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Full => write!(f, "full"),
            Mode::Representatives(ranks) => write!(f, "representatives ({ranks})"),
        }
    }
}

/// Simulates a job on a machine.
///
/// # Errors
/// The machine or the job is invalid, or a rank waits forever.
pub fn simulate(
    machine: &Machine,
    job: &Job<'_>,
    options: &SimulationOptions,
) -> Result<SimulationResult, SimulationError> {
    let topology = job.checked(machine)?;
    let orbits = match options.symmetry {
        SimulationSymmetry::Auto => Orbits::of(machine, job.shifts(&topology)),
        SimulationSymmetry::Off => Orbits::trivial(machine.ranks()),
    };
    let host_of_rank = machine.host_of_rank();
    let preparation = Preparation {
        machine,
        job,
        topology: &topology,
        orbits,
        host_of_rank: &host_of_rank,
    };
    let tiles = job.tiles(&preparation.schedule(0))?;
    let work = preparation.check_work(tiles, options.work_max)?;
    let programs = preparation.compile(tiles)?;
    let implied = match options.symmetry {
        // A line that saves up bytes is not implied: it may have spent them when the other has not.
        SimulationSymmetry::Auto if orbits.every_host() && machine.network.burst_bytes == 0.0 => {
            Implied::of(orbits, &host_of_rank, &programs)
        }
        _ => Implied::default(),
    };
    let network = SimulatedNetwork::new(machine, orbits, &host_of_rank, implied);
    let mut simulation = Simulation::new(machine, job, options.trace, orbits, network, programs);
    let work = preparation.check_rates(
        work,
        simulation.network.rate_changes(),
        tiles,
        options.work_max,
    )?;
    simulation.tiles = tiles;
    simulation.run()?;
    let done: Vec<f64> = simulation
        .threads
        .iter()
        .filter_map(|t| t.finished)
        .collect();
    let finished = (0..machine.ranks()).map(|rank| done[orbits.representative(rank) as usize]);
    Ok(SimulationResult {
        seconds: done.iter().copied().fold(0.0, f64::max),
        finished: finished.collect(),
        mode: if orbits.shorten() {
            Mode::Representatives(orbits.representatives())
        } else {
            Mode::Full
        },
        tiles,
        work,
        events: simulation.events.noted(),
        trace: simulation.trace.unwrap_or_default(),
    })
}

/// A simulation under way.
pub(crate) struct Simulation<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) tiles: u64,
    pub(crate) tiles_in_flight: usize,
    /// As many tiles as this later, temporary memory is used again.
    pub(crate) slots: u64,
    pub(crate) now: f64,
    pub(crate) events: EventQueue,
    pub(crate) orbits: Orbits,
    pub(crate) network: SimulatedNetwork<'a>,
    /// Of the representatives.
    pub(crate) threads: Vec<Thread>,
    pub(crate) pairs: Vec<RankPair>,
    /// By pair, then by slot: the flag that the peer sets.
    pub(crate) flags: Vec<u64>,
    pub(crate) messages: Vec<SimulatedMessage>,
    pub(crate) unused: Vec<MessageId>,
    /// The arrivals over links at this time: the receiver, the sender's turn there, and the
    /// message.
    pub(crate) arrivals: Vec<(u32, u32, MessageId)>,
    /// Threads that have something to look at.
    pub(crate) runnable: Vec<u32>,
    pub(crate) trace: Option<Vec<TraceSpan>>,
}

/// The executor has at least this many slots, however few tiles are under way.
const SLOTS: u64 = 2;

impl<'a> Simulation<'a> {
    fn new(
        machine: &'a Machine,
        job: &Job<'_>,
        trace: bool,
        orbits: Orbits,
        mut network: SimulatedNetwork<'a>,
        programs: Vec<SimulatedProgram>,
    ) -> Self {
        let mut threads = Vec::with_capacity(programs.len());
        let mut pairs: Vec<RankPair> = Vec::new();
        for (index, program) in (0..).zip(programs) {
            let rank = orbits.rank(index);
            let first = pairs.len() as PairId;
            let pair = |(peer, turn): (&Rank, &u32)| RankPair {
                sender: index,
                peer: *peer,
                turn: *turn,
                receiver: orbits.representative(*peer),
                mirror: None,
                way: network.way(rank, *peer),
                credit: 0,
                held: 0.0,
                queue: std::collections::VecDeque::new(),
                leaving: None,
                queued: None,
            };
            pairs.extend(program.peers.iter().zip(&program.turns).map(pair));
            let mut thread = Thread::new(program, first, machine.slowdown(rank));
            thread.processor = network.processor(rank);
            threads.push(thread);
        }
        for (index, thread) in (0..).zip(&threads) {
            let first = thread.pairs as usize;
            for pair in &mut pairs[first..first + thread.program.peers.len()] {
                let receiver = &threads[pair.receiver as usize];
                let image = orbits.image(orbits.rank(index), pair.peer);
                let place = receiver.program.peers.binary_search(&image);
                pair.mirror = place.ok().map(|place| receiver.pairs + place as PairId);
            }
        }
        let slots = u64::from(job.tiles_in_flight).max(SLOTS);
        Simulation {
            machine,
            tiles: 0,
            tiles_in_flight: job.tiles_in_flight as usize,
            slots,
            now: 0.0,
            events: EventQueue::default(),
            orbits,
            network,
            flags: vec![0; pairs.len() * slots as usize],
            threads,
            pairs,
            messages: Vec::new(),
            unused: Vec::new(),
            arrivals: Vec::new(),
            runnable: Vec::new(),
            trace: trace.then(Vec::new),
        }
    }

    fn run(&mut self) -> Result<(), SimulationError> {
        for rank in 0..self.threads.len() as u32 {
            let late = self.machine.late_s(self.orbits.rank(rank));
            self.events.note(late, Event::Thread(rank));
        }
        let mut taken = Vec::new();
        let mut owners = Vec::new();
        while let Some(time) = self.events.take_next(&mut taken) {
            self.now = self.now.max(time);
            // First all flows that end: activities that begin at this time would put their endings
            // out of date.
            for event in &taken {
                if let Event::Ending(bundle, version) = *event {
                    let shares = &mut self.network.shares;
                    shares.end(self.now, (bundle, version), &mut owners);
                }
            }
            for owner in owners.drain(..) {
                self.flow_ended(owner);
            }
            for event in taken.drain(..) {
                match event {
                    Event::Thread(rank) => self.work_ended(rank),
                    Event::Arrival(message) => self.arrive(message),
                    Event::Ending(..) | Event::Spent => {}
                }
            }
            self.sort_arrivals();
            let mut runnable = std::mem::take(&mut self.runnable);
            for rank in runnable.drain(..) {
                self.advance(rank);
            }
            // No thread becomes runnable directly by another's action: all notes pass through the
            // event queue.
            self.runnable = runnable;
            let events = &mut self.events;
            let report = &mut |ending: Ending| events.note_ending(&ending);
            if let Some(time) = self.network.settle(self.now, report) {
                self.events.note(time, Event::Spent);
            }
        }
        self.check_all_finished()
    }

    /// Puts arrived messages into the inboxes: simultaneous ones by turns, those of one rank in the
    /// order of arrival.
    fn sort_arrivals(&mut self) {
        self.arrivals
            .sort_by_key(|(receiver, turn, _)| (*receiver, *turn));
        for (receiver, _, message) in self.arrivals.drain(..) {
            self.threads[receiver as usize].inbox.push_back(message);
        }
    }

    /// Lets a thread look for something to do in this turn.
    pub(crate) fn wake(&mut self, rank: u32) {
        let thread = &mut self.threads[rank as usize];
        if !thread.runnable {
            thread.runnable = true;
            self.runnable.push(rank);
        }
    }

    /// A flow has ended: a message has left, or the work of a thread, whose numbers follow those of
    /// all pairs.
    fn flow_ended(&mut self, owner: u32) {
        match owner.checked_sub(self.pairs.len() as u32) {
            Some(rank) => self.work_ended(rank),
            None => self.left(owner),
        }
    }

    fn check_all_finished(&self) -> Result<(), SimulationError> {
        let waiting = |thread: &Thread| thread.finished.is_none();
        let Some(rank) = self.threads.iter().position(waiting) else {
            return Ok(());
        };
        let thread = &self.threads[rank];
        let (tile, next) = match thread.tiles.front() {
            Some(tile) => (tile.index, tile.next),
            None => (thread.next, 0),
        };
        let instruction = thread.program.instructions.get(next as usize);
        Err(SimulationError::Stuck {
            rank: self.orbits.rank(rank as u32),
            step: instruction.map_or(0, |instruction| instruction.step),
            tile,
        })
    }
}
