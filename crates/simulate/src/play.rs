//! The event-driven play: every thread does what the executor does, in the order in which it does it.

use weft_schedule::Rank;

use crate::agenda::{Agenda, Occurrence};
use crate::making::Making;
use crate::network::{Implied, Network};
use crate::orbits::Orbits;
use crate::program::Program;
use crate::share::Ending;
use crate::thread::{Message, MessageId, Pair, PairId, Thread};
use crate::trace::Event;
use crate::{Error, Job, Machine};

/// Whether ranks that do the same are played once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlaySymmetry {
    /// Where the algorithm and the machine allow it; and links are left out that others imply.
    #[default]
    Auto,
    /// All ranks are played, with all links.
    Off,
}

/// How to play.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlayOptions {
    /// Whether ranks that do the same are played once.
    pub symmetry: PlaySymmetry,
    /// Whether to write down what happens. Only of the ranks that are played.
    pub trace: bool,
    /// How much may be played at most, in steps of all ranks that are played, tile by tile. `None`: as much as there is.
    pub work_max: Option<u64>,
}

/// How it was played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every rank was played.
    Full,
    /// So many ranks were played, which stand for all.
    Representatives(u32),
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Played {
    /// When the last rank was done, in seconds.
    pub seconds: f64,
    /// When each rank was done, in seconds.
    pub finished: Vec<f64>,
    /// How it was played.
    pub mode: Mode,
    /// The number of tiles.
    pub tiles: u64,
    /// How much work was expected: see [`PlayOptions::work_max`].
    pub work: u64,
    /// The number of occurrences that were simulated.
    pub occurrences: u64,
    /// What happened, if that was asked for.
    pub trace: Vec<Event>,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Full => write!(f, "full"),
            Mode::Representatives(ranks) => write!(f, "representatives ({ranks})"),
        }
    }
}

/// Plays a job on a machine.
///
/// # Errors
/// The machine or the job makes no sense, or a rank waits for ever.
pub fn play(machine: &Machine, job: &Job<'_>, options: &PlayOptions) -> Result<Played, Error> {
    let topology = job.checked(machine)?;
    let orbits = match options.symmetry {
        PlaySymmetry::Auto => Orbits::of(machine, job.shifts(&topology)),
        PlaySymmetry::Off => Orbits::trivial(machine.ranks()),
    };
    let host_of_rank = machine.host_of_rank();
    let making = Making {
        machine,
        job,
        topology: &topology,
        orbits,
        host_of_rank: &host_of_rank,
    };
    let tiles = job.tiles(&making.schedule(0))?;
    let work = making.check_work(tiles, options.work_max)?;
    let programs = making.compile(tiles)?;
    let implied = match options.symmetry {
        // A line that saves up bytes is not implied: it may have spent them when the other has not.
        PlaySymmetry::Auto if orbits.every_host() && machine.network.burst_bytes == 0.0 => {
            Implied::of(orbits, &host_of_rank, &programs)
        }
        _ => Implied::default(),
    };
    let network = Network::new(machine, orbits, &host_of_rank, implied);
    let mut play = Play::new(machine, job, options.trace, orbits, network, programs);
    let work = making.check_rates(work, play.network.rate_changes(), tiles, options.work_max)?;
    play.tiles = tiles;
    play.run()?;
    let done: Vec<f64> = play.threads.iter().filter_map(|t| t.finished).collect();
    let finished = (0..machine.ranks()).map(|rank| done[orbits.representative(rank) as usize]);
    Ok(Played {
        seconds: done.iter().copied().fold(0.0, f64::max),
        finished: finished.collect(),
        mode: if orbits.shorten() {
            Mode::Representatives(orbits.representatives())
        } else {
            Mode::Full
        },
        tiles,
        work,
        occurrences: play.agenda.noted(),
        trace: play.trace.unwrap_or_default(),
    })
}

/// A play under way.
pub(crate) struct Play<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) tiles: u64,
    pub(crate) tiles_in_flight: usize,
    /// As many tiles as this later, temporary memory is used again.
    pub(crate) slots: u64,
    pub(crate) now: f64,
    pub(crate) agenda: Agenda,
    pub(crate) orbits: Orbits,
    pub(crate) network: Network<'a>,
    /// Of the representatives.
    pub(crate) threads: Vec<Thread>,
    pub(crate) pairs: Vec<Pair>,
    /// By pair, then by slot: the flag that the peer sets.
    pub(crate) flags: Vec<u64>,
    pub(crate) messages: Vec<Message>,
    pub(crate) unused: Vec<MessageId>,
    /// What arrives at this time over links: the receiver, the sender's turn there, and the message.
    pub(crate) arrivals: Vec<(u32, u32, MessageId)>,
    /// Threads that have something to look at.
    pub(crate) runnable: Vec<u32>,
    pub(crate) trace: Option<Vec<Event>>,
}

/// The executor has at least this many slots, however few tiles are under way.
const SLOTS: u64 = 2;

impl<'a> Play<'a> {
    fn new(
        machine: &'a Machine,
        job: &Job<'_>,
        trace: bool,
        orbits: Orbits,
        mut network: Network<'a>,
        programs: Vec<Program>,
    ) -> Self {
        let mut threads = Vec::with_capacity(programs.len());
        let mut pairs: Vec<Pair> = Vec::new();
        for (index, program) in (0..).zip(programs) {
            let rank = orbits.rank(index);
            let first = pairs.len() as PairId;
            let pair = |(peer, turn): (&Rank, &u32)| Pair {
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
        Play {
            machine,
            tiles: 0,
            tiles_in_flight: job.tiles_in_flight as usize,
            slots,
            now: 0.0,
            agenda: Agenda::default(),
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

    fn run(&mut self) -> Result<(), Error> {
        for rank in 0..self.threads.len() as u32 {
            let late = self.machine.late_s(self.orbits.rank(rank));
            self.agenda.note(late, Occurrence::Thread(rank));
        }
        let mut taken = Vec::new();
        let mut owners = Vec::new();
        while let Some(time) = self.agenda.take_next(&mut taken) {
            self.now = self.now.max(time);
            // First all flows that end: what begins at this time would put their endings out of date.
            for occurrence in &taken {
                if let Occurrence::Ending(bundle, version) = *occurrence {
                    let shares = &mut self.network.shares;
                    shares.end(self.now, (bundle, version), &mut owners);
                }
            }
            for owner in owners.drain(..) {
                self.flow_ended(owner);
            }
            for occurrence in taken.drain(..) {
                match occurrence {
                    Occurrence::Thread(rank) => self.work_ended(rank),
                    Occurrence::Arrival(message) => self.arrive(message),
                    Occurrence::Ending(..) | Occurrence::Spent => {}
                }
            }
            self.sort_arrivals();
            let mut runnable = std::mem::take(&mut self.runnable);
            for rank in runnable.drain(..) {
                self.advance(rank);
            }
            // Nobody becomes runnable by what another thread does at once: everything told takes its way through the agenda.
            self.runnable = runnable;
            let agenda = &mut self.agenda;
            let tell = &mut |ending: Ending| agenda.note_ending(&ending);
            if let Some(time) = self.network.settle(self.now, tell) {
                self.agenda.note(time, Occurrence::Spent);
            }
        }
        self.check_all_finished()
    }

    /// Puts what has arrived into the inboxes: of what arrives at once, by turns; what comes from one rank, in the order in which it comes.
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

    /// A flow has ended: a message has left, or the work of a thread, whose numbers come behind those of all pairs.
    fn flow_ended(&mut self, owner: u32) {
        match owner.checked_sub(self.pairs.len() as u32) {
            Some(rank) => self.work_ended(rank),
            None => self.left(owner),
        }
    }

    fn check_all_finished(&self) -> Result<(), Error> {
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
        Err(Error::Stuck {
            rank: self.orbits.rank(rank as u32),
            step: instruction.map_or(0, |instruction| instruction.step),
            tile,
        })
    }
}
