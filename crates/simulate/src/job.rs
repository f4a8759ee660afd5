//! The job to be simulated: one call of a collective on all ranks.

use std::borrow::Cow;

use weft_algorithms::{
    Conditions, MemoryClass, ScheduleRequest, Selection, Shifts, Sizes, Topology, on_wire,
};
use weft_schedule::{Collective, Encoding, Grid, Rank, Schedule, TileLimits, WireFormat};

use crate::{Machine, SimulationError};

/// The tiles that the executor has in flight.
const TILES_IN_FLIGHT: u32 = 2;

/// The source of the programs.
#[derive(Clone, Copy, Debug)]
pub enum ProgramSource<'a> {
    /// One of weft's algorithms.
    Selection(&'a Selection),
    /// All ranks' schedules, in order.
    Schedules(&'a [Schedule]),
}

/// One call of a collective on all ranks.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The algorithm or schedules that run.
    pub source: ProgramSource<'a>,
    /// The collective. Explicit schedules name theirs; it must be the same.
    pub collective: Collective,
    /// The size of the message, in bytes: all blocks together where it consists of blocks.
    pub bytes: u64,
    /// The size of an element, in bytes.
    pub element_bytes: u64,
    /// The memory of the caller's buffers.
    pub memory: MemoryClass,
    /// How elements travel, of one of weft's algorithms between several hosts.
    pub wire: WireFormat,
    /// Which ranks the algorithm takes to be close to each other. `None`: those that share a host.
    pub topology: Option<&'a Topology>,
    /// The part of the largest chunk that one tile takes, in bytes. `None`: as much as `limits`
    /// allows.
    pub tile_bytes: Option<u64>,
    /// The number of tiles in flight per rank, at least 1.
    pub tiles_in_flight: u32,
    /// Further bounds of a tile. `None`: none, as if ranks had unlimited temporary memory.
    pub limits: Option<TileLimits>,
}

impl<'a> Job<'a> {
    /// A call with ordinary memory and 4-byte elements, cut as the executor of a group of this many
    /// ranks would.
    pub fn new(source: ProgramSource<'a>, collective: Collective, bytes: u64, ranks: u32) -> Self {
        Job {
            source,
            collective,
            bytes,
            element_bytes: 4,
            memory: MemoryClass::Ordinary,
            wire: WireFormat::Full,
            topology: None,
            tile_bytes: None,
            tiles_in_flight: TILES_IN_FLIGHT,
            limits: Some(TileLimits::of_group(ranks)),
        }
    }

    /// Checks what can be checked without a schedule, and returns the topology that the algorithm
    /// sees.
    pub(crate) fn checked(&self, machine: &Machine) -> Result<Cow<'a, Topology>, SimulationError> {
        machine.check()?;
        let wrong = |what: String| Err(SimulationError::Job(what));
        let ranks = machine.ranks();
        if self.element_bytes == 0 || self.tiles_in_flight == 0 || self.tile_bytes == Some(0) {
            return wrong(
                "element_bytes, tile_bytes and tiles_in_flight must be at least 1".to_owned(),
            );
        }
        let topology = match self.topology {
            Some(topology) if topology.ranks() != ranks => {
                return wrong(format!(
                    "the topology is not one of the machine's {ranks} ranks"
                ));
            }
            Some(topology) => Cow::Borrowed(topology),
            None => Cow::Owned(machine.topology()),
        };
        match self.source {
            ProgramSource::Schedules(schedules) => {
                let of_rank = |(rank, s): (usize, &Schedule)| {
                    s.rank as usize == rank && s.ranks == ranks && s.collective == self.collective
                };
                if schedules.len() != ranks as usize || !schedules.iter().enumerate().all(of_rank) {
                    return wrong(format!(
                        "schedules of {} for all of the machine's {ranks} ranks are needed, in order; there are {}",
                        self.collective,
                        schedules.len()
                    ));
                }
            }
            ProgramSource::Selection(selection) => {
                let name = self.collective.name();
                if selection.algorithm.collective != name {
                    return wrong(format!(
                        "{} is for {}, not for {name}",
                        selection.name(),
                        selection.algorithm.collective
                    ));
                }
                if let Some(root) = self.collective.root()
                    && root >= ranks
                {
                    return wrong(format!("root {root}: there are {ranks} ranks"));
                }
                let conditions = Conditions {
                    memory: self.memory,
                    ..Conditions::ordinary(machine.mapped())
                };
                if let Some(refusal) = selection.refusal(&topology, conditions) {
                    return Err(SimulationError::Refused(refusal));
                }
            }
        }
        Ok(topology)
    }

    /// The request for a rank's program.
    pub(crate) fn request<'b>(&self, rank: Rank, topology: &'b Topology) -> ScheduleRequest<'b> {
        ScheduleRequest {
            collective: self.collective,
            ranks: topology.ranks(),
            rank,
            memory: self.memory,
            sizes: Sizes::Equal,
            topology,
            parts: &[],
        }
    }

    /// A rank's program of one of weft's algorithms.
    pub(crate) fn schedule(&self, selection: &Selection, request: &ScheduleRequest) -> Schedule {
        on_wire(selection.build(request), self.wire)
    }

    /// The symmetry of the ranks' programs.
    pub(crate) fn shifts(&self, topology: &Topology) -> Shifts {
        match self.source {
            ProgramSource::Selection(selection) => selection.shifts(&self.request(0, topology)),
            ProgramSource::Schedules(_) => Shifts::NONE,
        }
    }

    /// The number of tiles that the executor cuts the message into.
    pub(crate) fn tiles(&self, schedule: &Schedule) -> Result<u64, SimulationError> {
        let elements = match self.collective {
            Collective::Barrier => 0,
            _ => self.bytes / self.element_bytes,
        };
        let chunks = schedule.grid.chunks();
        let largest = match &schedule.grid {
            Grid::Equal(_) | Grid::Blocks(_) => elements.div_ceil(u64::from(chunks)),
            grid @ Grid::Cuts(_) => {
                let bounds = (0..chunks).filter_map(|chunk| grid.bounds(chunk, elements));
                bounds.map(|b| b.end - b.start).max().unwrap_or(0)
            }
        };
        let unbounded = TileLimits {
            receive_bytes: u64::MAX,
            scratch_bytes: u64::MAX,
            chunk_bytes: u64::MAX,
        };
        let mut limits = self.limits.unwrap_or(unbounded);
        limits.chunk_bytes = limits.chunk_bytes.min(self.tile_bytes.unwrap_or(u64::MAX));
        let tiles = |limits: &TileLimits| {
            limits.tiles(schedule, largest, self.element_bytes, self.wire.encoding())
        };
        tiles(&limits).ok_or_else(|| {
            let doubled = |limits: &TileLimits| TileLimits {
                receive_bytes: limits.receive_bytes.saturating_mul(2),
                scratch_bytes: limits.scratch_bytes.saturating_mul(2),
                ..*limits
            };
            // By then any number of bytes fits.
            let doublings = u64::BITS as usize + 1;
            let enough = std::iter::successors(Some(limits), |limits| Some(doubled(limits)))
                .take(doublings)
                .find(|limits| tiles(limits).is_some());
            SimulationError::TemporaryMemory {
                chunks: (schedule.receive.iter().chain(&schedule.scratch))
                    .map(|width| u64::from(*width))
                    .sum(),
                receive_bytes: limits.receive_bytes,
                scratch_bytes: limits.scratch_bytes,
                enough: enough.unwrap_or(unbounded),
            }
        })
    }

    /// The bytes of these chunks in a tile. Real-valued: whole elements differ from this by less
    /// than one element per chunk.
    pub(crate) fn slice_bytes(
        &self,
        grid: &Grid,
        chunks: &std::ops::Range<u32>,
        encoding: Encoding,
        tiles: u64,
    ) -> f64 {
        let share = match grid {
            Grid::Equal(all) | Grid::Blocks(all) => {
                f64::from(chunks.end - chunks.start) / f64::from(*all)
            }
            Grid::Cuts(cuts) => {
                let at = |index: u32| {
                    let cut = cuts[index as usize];
                    f64::from(cut.numerator) / f64::from(cut.denominator)
                };
                at(chunks.end) - at(chunks.start)
            }
        };
        share * self.bytes as f64 / tiles as f64 * self.width(encoding)
    }

    /// The size of an element in an encoding, as a share of its size in the message.
    pub(crate) fn width(&self, encoding: Encoding) -> f64 {
        let block = encoding.block();
        let bytes = encoding.bytes(block, self.element_bytes);
        bytes as f64 / (block * self.element_bytes) as f64
    }
}
